"""The role benchmark_run, executed by Ansible on this machine as three hosts: what comes home."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
from test_gpu_sampler import TWO, prints, stand_in

from dlperf_runner.core.case import Command, Run

ROOT = Path(__file__).parents[2]
HOSTS = ["node1", "node2", "node3"]


@pytest.fixture
def programs(tmp_path: Path) -> str:
    """PATH with stand-ins for nvidia-smi and for the ssh by which other nodes are asked."""
    smi = prints(tmp_path / "bin", TWO.format(10, 20))
    ssh = stand_in(tmp_path / "ssh", "ssh", 'while [ "$1" != -- ]; do shift; done\nexec sh -c "$3"')
    return f"{ssh}:{smi}:/usr/bin:/bin"


def command(host: str, path: str, *argv: str) -> dict[str, Any]:
    return asdict(Command(host, argv, {"PATH": path}))


def run_role(directory: Path, path: str, launched_on: list[str], **changes: Any) -> Path:
    """Execute the role for a run of three nodes; returns the run's directory on the controller."""
    nodes = directory / "nodes"
    # Train until every sampler of this node has been at work.
    waited = " ".join(
        f'"{nodes}/{host}/campaign/case/r1/telemetry-{name}.csv"'
        for host in launched_on
        for name in (HOSTS if len(launched_on) == 1 else [host])
    )
    train = f"for n in $(seq 100); do cat {waited} && break; sleep 0.1; done; echo trained"
    document = {
        "id": "case/r1",
        "case": "case",
        "repeat": 1,
        "workload": "w",
        "framework": "f",
        "model": "m",
        "source": "builtin",
        "precision": "fp32",
        "batch_size_per_device": 2,
        "nodes": 3,
        "gpus_per_node": 1,
        "world_size": 3,
        "total_steps": 3,
        "warmup_steps": 1,
        "stack": "s",
        "accelerator": "a GPU",
        "environment": "f",
        "log_format": "x",
        "log_name": "train.log",
        "timeout_s": 60,
        "hosts": HOSTS,
        "parameters": {},
        "commands": [command(host, path, "sh", "-c", train) for host in launched_on],
        **changes,
    }
    # Further keys of the run do not matter here.
    document |= {field.name: "" for field in fields(Run) if field.name not in document}
    play = {
        "hosts": "all",
        "gather_facts": False,
        "connection": "local",
        "tasks": [{"name": "Run", "include_role": {"name": "benchmark_run"}}],
        "vars": {
            "ansible_python_interpreter": sys.executable,
            "benchmark_run_campaign": str(directory / "campaign"),
            "benchmark_run_user": getpass.getuser(),
            "benchmark_run_directory": str(nodes / "{{ inventory_hostname }}"),
            "benchmark_run_run": document,
        },
    }
    playbook = directory / "play.yml"
    playbook.write_text(json.dumps([play]))
    finished = subprocess.run(
        [
            *(Path(sys.executable).parent / "ansible-playbook", "-i", ",".join(HOSTS) + ","),
            playbook,
        ],
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return directory / "campaign" / "runs" / "case" / "r1"


def outcome(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "run.json").read_text())["outcome"]
    assert found["status"] == "done", found
    return found


@pytest.mark.parametrize("launched_on", [HOSTS[:1], HOSTS], ids=["mpirun", "every node"])
def test_gpu_memory_of_every_node_comes_home(
    tmp_path: Path, programs: str, launched_on: list[str]
) -> None:
    run = run_role(tmp_path, programs, launched_on)
    # One device of each node is the run's.
    assert outcome(run)["gpu_memory_mib"] == {host: {"0": 10} for host in HOSTS}
    logs = ["train.log", *(f"train.log.{host}" for host in launched_on[1:])]
    assert sorted(path.name for path in run.iterdir()) == sorted(
        ["run.json", *logs, *(f"telemetry-{host}.csv" for host in HOSTS)]
    )


def test_run_on_cpu_asks_for_no_gpu(tmp_path: Path, programs: str) -> None:
    commands = [command("node1", programs, "sleep", "1")]
    run = run_role(tmp_path, programs, HOSTS[:1], accelerator="cpu", commands=commands)
    assert "gpu_memory_mib" not in outcome(run)
    assert sorted(path.name for path in run.iterdir()) == ["run.json", "train.log"]
    assert not (tmp_path / "bin" / "calls").exists()
