"""From provisioned nodes to the speed-up table, on one node and on two: real MPI, real training."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_under_test import PROJECT, Lab

pytestmark = pytest.mark.lab

CASES = ("1n1g", "1n2g", "2n2g")


@pytest.fixture(scope="module")
def provisioned(lab: Lab) -> Lab:
    lab.play("provision.yml")
    return lab


@pytest.fixture(scope="module")
def campaign(provisioned: Lab) -> Iterator[Path]:
    """The command of the README, with a directory of the tests' own."""
    directory = PROJECT / "results" / f"test-{provisioned.directory.parent.name}"
    shutil.rmtree(directory, ignore_errors=True)
    provisioned.play("bench.yml", "-e", "model=resnet50v1b", "-e", f"campaign={directory}")
    yield directory
    latest = PROJECT / "results" / "latest"
    if latest.is_symlink() and latest.resolve() == directory.resolve():
        latest.unlink()
    shutil.rmtree(directory)


def dlperf(lab: Lab, *arguments: str) -> tuple[int, str]:
    done = lab.command(sys.executable, "-m", "dlperf_runner", *arguments)
    return done.returncode, done.stdout


def test_every_run_is_done_and_keeps_what_was_asked_and_what_came(campaign: Path) -> None:
    plan = json.loads((campaign / "plan.json").read_text())
    assert [f"{run['nodes']}n{run['gpus_per_node']}g" for run in plan["runs"]] == list(CASES)
    for run in plan["runs"]:
        directory = campaign / "runs" / run["id"]
        record = json.loads((directory / "run.json").read_text())
        outcome = record.pop("outcome")
        assert record == run  # key for key what was planned
        assert (outcome["status"], outcome["exit_status"]) == ("done", 0)
        assert outcome["elapsed_s"] > 0
        assert outcome["started"] < outcome["ended"]
        assert set(outcome["hosts"]) == set(run["hosts"])
        assert {"mxnet", "horovod", "openmpi"} <= set(outcome["versions"])
        assert (directory / run["log_name"]).stat().st_size > 0
        assert not (directory / "progress.json").exists()


def test_the_world_of_each_log_is_the_planned_one_and_the_loss_falls(campaign: Path) -> None:
    for log in campaign.glob("runs/*/r1/*.log"):
        text = log.read_text()
        run = json.loads((log.parent / "run.json").read_text())
        assert f"world_size={run['world_size']}" in text
        losses = [float(x) for x in re.findall(r"Loss\[([\d.]+)\]", text)]
        assert len(losses) == run["total_steps"]
        assert losses[-1] < losses[0]


def test_benchmarks_run_as_the_ordinary_user(provisioned: Lab, campaign: Path) -> None:
    owners = provisioned.said("node1", f"stat -c %U /opt/dlperf/runs/{campaign.name}/*/*/*.log")
    assert set(owners.split()) == {"dlperf"}


def test_summarize_prints_the_table_and_writes_the_results(
    provisioned: Lab, campaign: Path
) -> None:
    status, text = dlperf(provisioned, "summarize", str(campaign))
    assert status == 0, text
    assert "node_num | gpu_num | samples/s | speedup" in text
    with (campaign / "summary.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert [(row["nodes"], row["gpus_per_node"], row["world_size"]) for row in rows] == [
        ("1", "1", "1"),
        ("1", "2", "2"),
        ("2", "2", "4"),
    ]
    assert all(float(row["samples_per_second_median"]) > 0 for row in rows)
    assert float(rows[0]["speedup"]) == 1.0
    result = json.loads((campaign / "bz2_result.json").read_text())
    assert set(result["rn50"]) == set(CASES)


def test_the_runner_gives_the_same_directory_and_resumes(provisioned: Lab, campaign: Path) -> None:
    """One run of the campaign is taken away; `run --resume` makes that one again, and no other."""
    kept = campaign / "runs" / "mxnet-resnet50v1b-builtin_fp32_b2_1n2g" / "r1" / "run.json"
    lost = campaign / "runs" / "mxnet-resnet50v1b-builtin_fp32_b2_1n1g" / "r1"
    before = kept.read_bytes()
    shutil.rmtree(lost)
    status, text = dlperf(provisioned, "status", str(campaign))
    assert (status, "2 of 3 runs done" in text) == (1, True)
    status, text = dlperf(provisioned, "run", "--resume", str(campaign))
    assert status == 0, text
    assert "node_num | gpu_num | samples/s | speedup" in text
    assert sorted(path.name for path in lost.iterdir()) == ["rn50_b2_fp32_1.log", "run.json"]
    assert kept.read_bytes() == before


def test_a_run_that_fails_is_told_and_loses_nothing(provisioned: Lab, tmp_path: Path) -> None:
    """More classes than memory can hold: the program dies, the campaign says how and where."""
    directory = tmp_path / "failing"
    done = provisioned.command(
        "ansible-playbook", "bench.yml", "-e", "model=resnet50v1b", "-e", "nodes=1",
        "-e", "gpus_per_node=1", "-e", f"campaign={directory}",
        "-e", '{"parameters": {"classes": 100000000000}}',
    )  # fmt: skip
    assert done.returncode != 0
    assert "Not every run is done" in done.stdout
    assert "node1: exit status" in done.stdout
    record = json.loads(next(directory.glob("runs/*/r1/run.json")).read_text())
    assert record["outcome"]["status"] == "failed"
    assert next(directory.glob("runs/*/r1/*.log")).stat().st_size > 0


def test_more_than_the_inventory_has_is_refused(provisioned: Lab) -> None:
    done = provisioned.command(
        "ansible-playbook", "bench.yml", "-e", "model=resnet50v1b", "-e", "matrix=published"
    )
    assert done.returncode != 0
    assert "4n8g needs 4 nodes with 8 devices" in done.stdout
