"""The builtin workloads of TensorFlow, Paddle and MXNet ArcFace on provisioned nodes: real training
over MPI and the frameworks' own launchers, on one process, on two, and on two nodes."""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from pathlib import Path

import pytest
from lab_under_test import FRAMEWORKS, Lab

pytestmark = pytest.mark.lab

# Workload: what it runs on in the lab
TOPOLOGIES = {
    "mxnet-arcface": ["1n1g", "1n2g"],
    "paddle-arcface": ["1n1g", "1n2g", "2n2g"],
    "tensorflow-resnet50v1.5": ["1n1g", "1n2g", "2n2g"],
}
# The loss of the same batch as the log has it at first and at last
LOSSES = {
    "mxnet-arcface": r"^Loss of the fixed batch: (\S+) at first, (\S+) at last$",
    "tensorflow-resnet50v1.5": r"Loss of the fixed batch: (\S+) at first, (\S+) at last$",
    "paddle-arcface": r"batch:\d+ lr:\S+ loss:(\S+) qps",
    "oneflow-resnet50v1.5": r"^train: epoch 0, iter \d+, loss: (\S+),",
}


def loss_of(log: Path, workload: str) -> tuple[float, float]:
    found = re.findall(LOSSES[workload], log.read_text(), re.MULTILINE)
    values = [
        float(value) for each in found for value in ([each] if isinstance(each, str) else each)
    ]
    return values[0], values[-1]


def check_campaign(lab: Lab, campaign: Path, topologies: dict[str, list[str]]) -> None:
    """Every run is done, learnt its batch, and stands in the table with speed-up and efficiency."""
    runs = json.loads((campaign / "plan.json").read_text())["runs"]
    planned: dict[str, list[str]] = {}
    for run in runs:
        planned.setdefault(run["workload"], []).append(f"{run['nodes']}n{run['gpus_per_node']}g")
        directory = campaign / "runs" / run["id"]
        outcome = json.loads((directory / "run.json").read_text())["outcome"]
        assert (outcome["status"], outcome["exit_status"]) == ("done", 0)
        first, last = loss_of(directory / run["log_name"], run["workload"])
        assert math.isfinite(last), run["id"]
        assert last < first, run["id"]
    assert planned == topologies
    done = lab.command(sys.executable, "-m", "dlperf_runner", "summarize", str(campaign))
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("| node_num | gpu_num | samples/s | speedup | efficiency |") == len(
        planned
    )
    with (campaign / "summary.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == len(runs)
    for row in rows:
        assert float(row["samples_per_second_median"]) > 0
        assert float(row["speedup"]) > 0
        efficiency = float(row["speedup"]) / int(row["world_size"])
        assert float(row["scaling_efficiency"]) == pytest.approx(efficiency)


@pytest.fixture(scope="module")
def provisioned(lab: Lab) -> Lab:
    """Two nodes with three frameworks, given to a lab that is up as a user gives them."""
    lab.play("playbooks/lab.yml", "-e", "lab_nodes=2", "-e", f"lab_frameworks={FRAMEWORKS}")
    lab.play("provision.yml")
    return lab


def test_provisioning_again_changes_nothing(provisioned: Lab) -> None:
    recap = provisioned.play("provision.yml").rpartition("PLAY RECAP")[2]
    assert re.findall(r"(node\d) .*changed=(\d+)", recap) == [("node1", "0"), ("node2", "0")]


def test_one_model_names_the_workloads_of_two_frameworks(provisioned: Lab, tmp_path: Path) -> None:
    campaign = tmp_path / "arcface"
    provisioned.play("bench.yml", "-e", "model=arcface", "-e", f"campaign={campaign}")
    chosen = {name: TOPOLOGIES[name] for name in ("mxnet-arcface", "paddle-arcface")}
    check_campaign(provisioned, campaign, chosen)


def test_a_framework_narrows_the_choice(provisioned: Lab, tmp_path: Path) -> None:
    campaign = tmp_path / "tensorflow"
    choice = ["-e", "model=resnet50", "-e", "framework=tensorflow"]
    provisioned.play("bench.yml", *choice, "-e", f"campaign={campaign}")
    name = "tensorflow-resnet50v1.5"
    check_campaign(provisioned, campaign, {name: TOPOLOGIES[name]})


def test_a_framework_that_the_nodes_lack_is_said_before_anything_runs(provisioned: Lab) -> None:
    done = provisioned.command("ansible-playbook", "bench.yml", "-e", "framework=oneflow")
    assert done.returncode == 2
    assert "oneflow-resnet50v1.5 needs oneflow, which these nodes do not have" in done.stdout


@pytest.mark.heavy
def test_oneflow_trains_on_two_nodes(tmp_path: Path) -> None:
    """Its environment is 4 GB on each node, and takes no Python newer than 3.10."""
    lab = Lab(tmp_path / "lab")
    options = ["lab_nodes=2", "lab_suite=bullseye", "lab_frameworks=oneflow"]
    lab.play("playbooks/lab.yml", *(part for each in options for part in ("-e", each)))
    try:
        lab.play("provision.yml")
        campaign = tmp_path / "campaign"
        lab.play("bench.yml", "-e", "framework=oneflow", "-e", f"campaign={campaign}")
        check_campaign(lab, campaign, {"oneflow-resnet50v1.5": ["1n1g", "1n2g", "2n2g"]})
    finally:
        lab.down()
