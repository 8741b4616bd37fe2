"""The GPU kit's dry form: packed, gone through without a GPU and without frameworks, and read.

tests/lab/test_pytorch.py does the same on a node that has PyTorch. What needs a GPU is skipped in
both, with the reason.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from modules import load

pack = load("tests/gpu/pack.py")
LIMIT = 50 << 20  # bytes
NO_GPU = "needs a GPU: nvidia-smi names none"


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kit") / "gpu-kit"
    assert 0 < pack.pack(folder) < LIMIT
    return folder


def go(kit: Path, out: Path, *options: str) -> tuple[int, Mapping[str, Any]]:
    """The exit status of a dry call, and results.json. `-S` hides frameworks, if there are any."""
    argv = [sys.executable, "-S", str(kit / "run_gpu.py"), "--out", str(out), "--cpu", *options]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, json.loads((out / "results.json").read_text(encoding="utf-8"))


def test_each_step_is_done_or_skipped_with_its_reason(kit: Path, tmp_path: Path) -> None:
    status, results = go(kit, tmp_path / "out", "--minutes", "5")
    steps = results["steps"]
    assert status == 0
    assert (results["product"], steps["facts"]["state"]) == ("cpu", "done")
    assert set(steps["facts"]["modules"].values()) == {"read"}
    reasons = {name: entry["reason"] for name, entry in steps.items() if name != "facts"}
    needs_gpu = ("compute", "nccl", "fault/out-of-memory", "fault/kernel-that-spins")
    for name, reason in reasons.items():
        assert steps[name]["state"] == "skipped"
        lacks = f"{sys.executable} has no package {'jax' if '/jax-' in name else 'torch'}"
        assert reason == (NO_GPU if name.startswith(needs_gpu) else lacks), name
    assert {"train", "fault", "plain", "telemetry"} <= {name.partition("/")[0] for name in reasons}


def test_a_later_call_goes_on_and_does_nothing_twice(kit: Path, tmp_path: Path) -> None:
    _, first = go(kit, tmp_path / "out", "--only", "compute")
    states = {entry["state"] for name, entry in first["steps"].items() if name != "compute"}
    assert (first["steps"]["compute"]["state"], states) == ("skipped", {"waiting"})
    go(kit, tmp_path / "out", "--only", "facts")
    facts = tmp_path / "out" / "facts" / "lscpu.txt"
    facts.write_text("as the first call left it")
    _, last = go(kit, tmp_path / "out", "--minutes", "5")
    assert facts.read_text() == "as the first call left it"
    assert "waiting" not in {entry["state"] for entry in last["steps"].values()}


def test_no_step_begins_without_time(kit: Path, tmp_path: Path) -> None:
    status, results = go(kit, tmp_path / "out", "--minutes", "0.1")
    assert status == 0
    assert {entry["state"] for entry in results["steps"].values()} == {"waiting"}


def test_a_product_that_the_kit_does_not_know_is_named(kit: Path, tmp_path: Path) -> None:
    """A stand-in for nvidia-smi; it only names the GPU."""
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text('#!/bin/sh\n[ "$1" != --query-gpu=name ] || echo NVIDIA RTX 4090\n')
    smi.chmod(0o755)
    argv = [sys.executable, "-S", str(kit / "run_gpu.py"), "--out", str(tmp_path / "out"), "--list"]
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": f"{smi.parent}:/usr/bin:/bin"},
    )
    assert "train/" in done.stdout  # those of a CPU, which say so when they come
    go_on = [*argv[:-1], "--only", "telemetry/cost", "--minutes", "10"]
    (kit / "sites").mkdir(exist_ok=True)
    (kit / "sites" / "torch.py").touch()
    environment = {"PATH": f"{smi.parent}:/usr/bin:/bin", "PYTHONPATH": str(kit / "sites")}
    subprocess.run(go_on, capture_output=True, text=True, check=True, env=environment)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    entry = results["steps"]["telemetry/cost"]
    assert "the kit has no campaign for NVIDIA RTX 4090" in entry["reason"]


@pytest.mark.parametrize("product", ["cpu", "h100", "h200", "b200", "a100"])
def test_campaigns_are_those_of_the_planner(kit: Path, product: str) -> None:
    gpus = json.loads((kit / "kit.json").read_text())["products"]
    for name in ("train", "faults", "telemetry"):
        campaign = kit / "campaigns" / product / name
        planned = json.loads((campaign / "plan.json").read_text())["runs"]
        runs = json.loads((campaign / "kit_runs.json").read_text())
        assert [run["id"] for run in runs] == [run["id"] for run in planned]
        for run, row in zip(planned, runs, strict=True):
            script = (campaign / row["directory"] / "run.sh").read_text()
            assert "/@KIT@/environments/" in script
            assert ("--no-cuda" in script) == (product == "cpu")
            assert run["accelerator"] == (gpus[product]["gpu"] if product in gpus else "cpu")
            assert (run["nodes"], run["gpus_per_node"]) == (1, 1)


def test_every_precision_and_both_ways_to_compile_are_planned_on_a_gpu(kit: Path) -> None:
    runs = json.loads((kit / "campaigns/h100/train/plan.json").read_text())["runs"]
    precisions: dict[str, set[str]] = {}
    for run in runs:
        precisions.setdefault(run["workload"], set()).add(run["precision"])
    everything = {"fp32", "tf32", "amp", "bf16"}
    assert precisions == {
        "pytorch-resnet50v1.5": everything,
        "pytorch-bert-large": everything,
        "pytorch-arcface": everything,
        "pytorch-llama": {"fp32", "tf32", "bf16"},
        "jax-llama": {"bf16", "fp32"},
        "jax-resnet50v1.5": {"bf16", "tf32", "fp32"},
    }
    compiled = {(run["workload"], run["parameters"].get("compile")) for run in runs}
    for workload in ("pytorch-resnet50v1.5", "pytorch-llama", "pytorch-bert-large"):
        assert {(workload, "on"), (workload, "off")} <= compiled
    assert {run["parameters"].get("recipe") for run in runs} >= {"none", "float8"}
