"""Campaigns that a report has something to say about, with what an attacker would put in a log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from make_logs import campaign_run, dllogger, gluoncv, plsc, published

from dlperf_runner.core.files import write_json

SCRIPT = "<script>document.title='planted'</script>"
IMAGE = '"><img src=x onerror="document.title=\'planted\'">'
FORMULA = '=HYPERLINK("http://planted.example","x")'
CHINESE = "节点 ünïcode ✓"
TOPOLOGIES = ("1n1g", "1n2g", "1n4g", "1n8g", "2n8g", "4n8g")


def _speeds() -> dict[str, list[float]]:
    """The published runs of MXNet ResNet50-v1b, by topology."""
    runs: dict[str, list[float]] = {}
    for run in published("published_runs"):
        key = (run["model"], run["precision"], run["batch_size_per_device"])
        if key == ("resnet50v1b", "fp32", "128"):
            runs.setdefault(run["topology"], []).append(float(run["samples_per_second"]))
    return runs


def mxnet_campaign(directory: Path, *, planted: bool = False) -> Path:
    """The published runs as a campaign of 4 nodes, of which the last has another kernel; one run
    failed, one has no believable log. With `planted`, texts that would break a careless page."""
    hostile = f"{SCRIPT}{IMAGE}{CHINESE}" if planted else "no route to host"
    for topology, speeds in _speeds().items():
        nodes = int(topology[0])
        hosts = {
            f"node{number}": {
                "hostname": f"node{number}",
                "distribution": "Debian 12.15",
                "kernel": "6.1.0-18" if number == 4 else "6.1.0-17",
                "processor": f"EPYC {SCRIPT}" if planted else "AMD EPYC",
                "processors": 48,
                "memory_mib": 393216,
                "driver": "440.33.01",
                "gpus": [FORMULA if planted else "Tesla V100-SXM2-16GB"] * 8,
            }
            for number in range(1, nodes + 1)
        }
        for repeat, speed in enumerate(speeds, start=1):
            changes: dict[str, Any] = {
                "stack": "v100-cuda10.2",
                "accelerator": "gpu",
                "hosts": list(hosts),
                "commands": [_command(host, topology) for host in hosts],
                "outcome": {
                    "status": "done",
                    "exit_status": 0,
                    "message": None,
                    "hosts": hosts,
                    "versions": {
                        "mxnet-cu102": "1.6.0.post0",
                        "numpy": SCRIPT if planted else "1.21",
                    },
                    "gpu_memory_mib": {host: {"0": 12565, "1": 12570} for host in hosts},
                },
            }
            campaign_run(directory, topology, repeat, gluoncv(speed), **changes)
    failed = {"status": "failed", "message": hostile, "hosts": {}, "versions": {}}
    campaign_run(directory, "1n1g", 8, None, stack="v100-cuda10.2", outcome=failed)
    _campaign_json(directory, ["node1", "node2", "node3", "node4"])
    return directory


def tensorflow_campaign(directory: Path) -> Path:
    """TensorFlow on the same model, with the speeds of NVIDIA's own report, one run each."""
    for topology, speed in (("1n1g", 414.73), ("1n8g", 3275.93), ("4n8g", 12671.9)):
        devices = int(topology[0]) * int(topology[2])
        lines = dllogger(speed, devices, amp=False, final=speed)
        changes: dict[str, Any] = {
            "case": f"tensorflow-resnet50v1.5-builtin_fp32_b256_{topology}",
            "workload": "tensorflow-resnet50v1.5",
            "framework": "tensorflow",
            "model": "resnet50v1.5",
            "batch_size_per_device": 256,
            "total_steps": 500,
            "warmup_steps": 200,
            "stack": "v100-cuda10.2",
            "accelerator": "gpu",
            "environment": "tensorflow",
            "log_format": "dllogger",
            "log_name": "rn50_b256_fp32_1.log",
        }
        campaign_run(directory, topology, 1, lines, **changes)
    _campaign_json(directory, ["node1"])
    return directory


def paddle_campaign(directory: Path) -> Path:
    """Another model: it stands in charts and tables of its own."""
    for topology, speed in (("1n1g", 397.78), ("1n4g", 1539.66)):
        changes: dict[str, Any] = {
            "workload": "paddle-arcface",
            "framework": "paddle",
            "model": "arcface",
            "total_steps": 150,
            "warmup_steps": 50,
            "log_format": "plsc",
            "log_name": "r50_b128_fp32_1.log",
        }
        campaign_run(directory, topology, 1, plsc(speed), **changes)
    _campaign_json(directory, ["node1"])
    return directory


def _command(host: str, topology: str) -> dict[str, Any]:
    argv = ["/opt/dlperf/envs/mxnet/bin/python", "-u", "mxnet_resnet50.py", "--topology", topology]
    return {"host": host, "argv": argv, "env": {"NCCL_DEBUG": "INFO"}, "cwd": "/opt/dlperf/src/a b"}


def _campaign_json(directory: Path, nodes: list[str]) -> None:
    inventory = [
        {
            "name": name,
            "address": f"10.11.0.{number}",
            "devices_per_node": 8,
            "stack": "v100-cuda10.2",
        }
        for number, name in enumerate(nodes, start=2)
    ]
    choice = {
        "model": ["resnet50"],
        "batch_size": [128],
        "repeats": 5,
        "parameters": {"classes": "10"},
    }
    write_json(
        directory / "campaign.json",
        {
            "schema": 1,
            "id": directory.name,
            "created": "2026-11-21T06:39:21+00:00",
            "choice": choice,
            "inventory": inventory,
            "runs": len(json.dumps(nodes)),
        },
    )
