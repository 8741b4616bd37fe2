"""Inputs of same_results.py: logs, campaigns and inventories, made with the code of this clone."""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gpu_campaigns
import published_logs
from bert_logs import bert
from judged_runs import gpu_run
from log_examples import EXAMPLES
from make_logs import (
    arcface_torch,
    dllogger,
    dllogger_pytorch,
    gluoncv,
    maxtext,
    megatron,
    oneflow,
    plsc,
    plsc_of,
    speedometer,
    torchtitan,
    write,
)
from mlperf_rounds import of_epochs, result_log, write_result
from nccl_logs import bandwidth_run, nccl_tests
from recorded_campaign import finished_campaign
from report_examples import mxnet_campaign, paddle_campaign, tensorflow_campaign
from slurm_standin import slurm

MADE = 1_770_000_000  # when all files were changed
DIGEST = f"sha256:{'ab' * 32}"
FORMATS = {
    "1n1g/rn50_b128_fp32_1.log": gluoncv(384.2),
    "1n1g/rn50_b128_fp32_2.log": gluoncv(385.1),
    "1n8g/rn50_b128_fp32_1.log": gluoncv(2556.0, world=8),
    "1n8g/r100_b64_fp32_1.log": speedometer(1999.2),
    "1n4g/r50_b128_fp32_1.log": plsc(1539.7),
    "1n4g/r50_b128_fp32_2.log": plsc_of(4),
    "oneflow/1n1g/rn50_b128_fp32_1.log": oneflow(390.6, times=True),
    "tf_gpu8_amp_bs256.txt": dllogger(9400.0, 8, amp=True, final=9401.0),
    "1n8g/rn50_b256_amp_1.log": dllogger_pytorch(2480.33, world=8),
    "1n8g/rn50_b256_amp_2.log": dllogger_pytorch(2490.0, world=8, as_json=True),
    "1n8g/r50_b128_amp_1.log": arcface_torch(2271.25),
    "1n8g/llama8b_b2_bf16_1.log": torchtitan(6000, world=8),
    "1n8g/llama2-7b_b4_bf16_1.log": maxtext(8671.794, world=8),
    "megatron/1n8g/llama3-8b_b2_bf16_1.log": megatron(123.4),
    "1n8g/bertlarge_b128_fp32_1.log": bert(0.5, world=8),
}
DAMAGED = {
    "1n1g/rn50_b128_fp32_1.log": gluoncv(384.2)[:150],  # cut off
    "1n1g/rn50_b128_fp32_2.log": ["no log"],
    "1n2g/rn50_b128_fp32_1.log": gluoncv(700.0, batch=64),  # another batch than its name
    "1n4g/rn50_b128_fp32_1.log": [],
    "1n8g/rn50_b128_fp32_1.log": gluoncv(2556.0, world=8),
}


def make_inputs(folder: Path, listing: Mapping[str, Any]) -> None:
    """Make all inputs in a new folder. `listing` is what `list --json` prints."""
    folder.mkdir(parents=True)
    _logs(folder / "logs")
    _campaigns(folder / "campaigns")
    _inventories(folder, listing)
    nvidia = [result_log(8200.0 + 10 * n) for n in range(10)]
    write_result(folder / "round", nvidia, scaling=1.01)
    epochs = [of_epochs(700.0 + n) for n in range(4)]
    write_result(folder / "round", epochs, benchmark="resnet", submitter="Dell", system="two")
    write(folder / "nccl/all_reduce.log", nccl_tests())
    write(folder / "nccl/wrong.log", nccl_tests(wrong="3", end="1 FAILED"))
    slurm(folder / "bin")
    for path in folder.rglob("*"):
        os.utime(path, (MADE, MADE))


def _logs(folder: Path) -> None:
    for log in EXAMPLES:
        if log.is_real:
            place = folder / "fixtures" / log.form / log.path.name
            write(place, log.data.decode().splitlines())
    for entry in published_logs.TABLES:
        directory = folder / Path(entry["source"]).stem
        for repeat, value in enumerate(published_logs.runs_of(entry, 3), start=1):
            published_logs.write_log(directory, entry, repeat, value)
    for kind, logs in {"formats": FORMATS, "damaged": DAMAGED}.items():
        for name, lines in logs.items():
            write(folder / kind / name, lines)


def _campaigns(folder: Path) -> None:
    """Each `results` folder of `folder` holds campaigns that belong together."""
    # Logs that are made in a folder with a random name state it nowhere.
    with tempfile.TemporaryDirectory() as place:
        finished_campaign(Path(place) / "results")
        shutil.copytree(Path(place) / "results/one", folder / "recorded/one")
    for number, (name, factor) in enumerate(
        {"first": 1, "second": 1.002, "third": 0.998, "slower": 0.95}.items(), start=1
    ):
        created = f"2026-01-{10 + number}T10:00:00+00:00"
        rates = gpu_campaigns.scaled(factor)
        changes = {"parameters": gpu_campaigns.NOISE}
        gpu_campaigns.campaign(folder / "several" / name, rates, created=created, **changes)
    mxnet_campaign(folder / "frameworks/mxnet", planted=True)
    tensorflow_campaign(folder / "frameworks/tensorflow")
    paddle_campaign(folder / "frameworks/paddle")
    hot = ["{time},{device},12565,97,900,1530,89,287.51,0x0000000000000040,0"] * 20
    for topology, samples in (("1n1g", None), ("1n2g", hot), ("1n4g", [])):
        gpu_run(folder / "judged/judged", topology, samples=samples)
    for repeat in (1, 2):
        bandwidth_run(folder / "bandwidth/bandwidth", "1n8g", repeat, nccl_tests(250 + repeat))


def _inventories(folder: Path, listing: Mapping[str, Any]) -> None:
    """For each stack: what an inventory changes to have it with all its environments, the same with
    digests of all images, and files of a scheduler's site without and with them."""
    for name, stack in listing["stacks"].items():
        environments = {}
        for framework, entry in listing["frameworks"].items():
            environments[framework] = entry["environments"].get(name)
            for flavor, stacks in entry["flavors"].items():
                environments[f"{framework}-{flavor}"] = stacks.get(name)
        existing = {key: value for key, value in environments.items() if value}
        images = {f"localhost/dlperf-{key}": DIGEST for key in existing}
        images |= {e["container"]["image"]: DIGEST for e in existing.values() if e.get("container")}
        variables = {"dlperf_stack": name, "dlperf_frameworks": sorted(existing)}
        gpu = stack["accelerator"] == "gpu"
        site = {
            "dlperf_accelerator": stack["gpu"]["models"][0] if gpu else "cpu",
            "dlperf_devices_per_node": 8 if gpu else 2,
            "dlperf_matrix": "published" if gpu else "smoke",
            **variables,
        }
        _group(folder / "stacks" / name, variables)
        _group(folder / "images" / name, {**variables, "dlperf_container_images": images})
        write(folder / f"sites/{name}.yml", [json.dumps(site)])
        site["dlperf_container_images"] = images
        write(folder / f"sites/{name}-images.yml", [json.dumps(site)])


def _group(folder: Path, variables: Mapping[str, Any]) -> None:
    """An inventory without hosts, which changes variables of the one before it."""
    write(folder / "hosts.yml", ["nodes: {}"])
    write(folder / "group_vars/nodes.yml", [json.dumps(variables)])
