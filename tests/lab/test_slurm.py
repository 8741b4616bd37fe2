"""Slurm of Debian 12 on two nodes of the lab, and campaigns that an ordinary user runs on it from a
login node: node1, on which this package is installed without Ansible.
"""

import csv
import json
import re
import signal
from functools import partial
from pathlib import Path

import pytest
from lab_under_test import Lab, Shared, sharing
from slurm_lab import (
    MINE,
    NODES,
    SlurmNodes,
    dlperf,
    given,
    options,
    outcome,
    provisioned_as,
    records,
    run,
    signal_runner,
    start,
    wait_for,
    wait_for_run,
)

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.slurm]

FRAMEWORKS = ("mxnet", "nccl")
GIVEN = given(*FRAMEWORKS)
LONG = (*MINE, "--iterations", "100000")


shared = sharing(partial(provisioned_as, GIVEN, FRAMEWORKS))


@pytest.fixture
def cluster(shared: Shared[SlurmNodes]) -> Lab:
    return shared.get().lab


@pytest.fixture
def folder(shared: Shared[SlurmNodes]) -> Path:
    return shared.get().folder


def test_nodes_share_a_key_that_nobody_is_shown(shared: Shared[SlurmNodes], cluster: Lab) -> None:
    key = cluster.said("node1", "cat /etc/munge/munge.key")
    assert re.fullmatch("[0-9a-f]{128}", key)
    assert key not in shared.get().said
    assert key == cluster.said("node2", "cat /etc/munge/munge.key")


@pytest.fixture
def trained(cluster: Lab, folder: Path) -> Path:
    """A campaign, which the first test that asks for it runs."""
    if not (folder / "trained").exists():
        status, text = run(cluster, "trained", "--workload", "mxnet-resnet50v1b,nccl-allreduce")
        assert status == 0, text
        assert "node_num | gpu_num | samples/s | speedup" in text
    return folder / "trained"


def test_real_training_on_one_and_two_nodes(cluster: Lab, folder: Path, trained: Path) -> None:
    found = records(trained)
    assert len(found) == 5
    assert len(list((trained / "jobs").iterdir())) == 1  # one allocation for all
    for record in found:
        told = record["outcome"]
        assert isinstance(told, dict)
        assert (told["status"], told["exit_status"]) == ("done", 0), record["id"]
        assert set(told["hosts"]) <= set(NODES)
        assert len(told["hosts"]) == record["nodes"]
        assert told["mpi"] == "pmix"
        assert {"mxnet", "openmpi"} <= set(told["versions"]) or record["framework"] == "nccl"
        log = trained / "runs" / str(record["id"]) / str(record["log_name"])
        assert cluster.said("node1", f"stat -c %U /shared/{log.relative_to(folder)}") == "dlperf"
        if record["workload"] == "mxnet-resnet50v1b":
            text = log.read_text()
            assert f"world_size={record['world_size']}" in text
            losses = [float(x) for x in re.findall(r"Loss\[([\d.]+)\]", text)]
            assert len(losses) == record["total_steps"]
            assert losses[-1] < losses[0]
    status, text = dlperf(cluster, "summarize", "--verify", "trained")
    assert status == 0, text
    with (trained / "summary.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == 5


def test_srun_starts_a_program_once_on_each_node(cluster: Lab, folder: Path) -> None:
    status, text = run(cluster, "own", *MINE)
    assert status == 0, text
    two = folder / "own/runs/mine-builtin_fp32_b1_2n1g/r1"
    (first,) = two.glob("*.log")
    assert "process 0 of 2 on node1" in first.read_text()
    assert "process 1 of 2 on node2" in first.with_name(f"{first.name}.node2").read_text()
    status, text = run(cluster, "ended", *MINE, "--nodes", "2", "--iterations", "13")
    assert status == 1, text
    told = outcome(folder / "ended")
    assert told["status"] == "failed"
    assert told["exit_status"] not in (0, None)
    assert isinstance(told["elapsed_s"], float)
    assert told["elapsed_s"] < 60  # the first process would wait for the second one for ever


def test_a_campaign_by_ssh_gives_the_same_document(
    cluster: Lab, folder: Path, trained: Path
) -> None:
    chosen = ["-e", "workload=nccl-allreduce", "-e", f"campaign={folder}/ssh", "-e", "nodes=2"]
    cluster.play("bench.yml", "-e", json.dumps(GIVEN), *chosen)
    other = outcome(folder / "ssh")
    (mine,) = (
        r["outcome"] for r in records(trained)
        if r["nodes"] == 2 and r["framework"] == "nccl"
    )  # fmt: skip
    assert isinstance(mine, dict)
    assert set(other) - set(mine) <= {"beside"}
    assert set(mine) - set(other) == {"job", "mpi"}
    assert mine["hosts"] == other["hosts"]
    assert mine["versions"] == other["versions"]


def test_control_c_cancels_the_job(cluster: Lab, folder: Path) -> None:
    process = start(cluster, *options("stopped", *LONG, "--nodes", "2"))
    wait_for_run(cluster, "stopped")
    signal_runner(cluster, "INT")  # ends the job after the current run
    wait_for("the order", cluster, "ls /shared/stopped/jobs/1", "stop")
    assert outcome(folder / "stopped")["status"] == "running"
    signal_runner(cluster, "INT")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGINT, output
    assert "resume with: dlperf run --resume /shared/stopped" in output
    assert outcome(folder / "stopped")["category"] == "cancelled"
    assert cluster.said("node1", "squeue -h -t running,pending,completing") == ""
    for node in NODES:
        assert cluster.ssh(node, "pgrep -f train.py").stdout == ""


def test_a_job_that_reaches_its_time_limit(cluster: Lab, folder: Path) -> None:
    status, text = run(cluster, "late", *LONG, "--nodes", "1", "--repeats", "2", "--time", "1m")
    assert status == 1, text
    first, second = (record["outcome"] for record in records(folder / "late"))
    assert isinstance(first, dict) and isinstance(second, dict)
    assert (first["status"], first["category"]) == ("failed", "time_limit")
    assert "--time" in str(first["message"])
    assert second["status"] == "planned"
    assert "ended before 1 run began" in text


def test_a_job_that_waits_too_long_is_cancelled(cluster: Lab, folder: Path) -> None:
    cluster.said("node1", "scontrol update nodename=node2 state=drain reason=test")
    try:
        status, text = run(cluster, "waits", *LONG, "--nodes", "2", "--max-wait", "5s")
    finally:
        cluster.said("node1", "scontrol update nodename=node2 state=resume")
    assert status == 1, text
    assert re.search(r"job \d+: waiting \(", text)
    assert "it waited longer than --max-wait" in text
    assert outcome(folder / "waits")["status"] == "planned"
    assert cluster.said("node1", "squeue -h -t running,pending") == ""
