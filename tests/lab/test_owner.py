"""A campaign has an owner and its nodes: signals end it in order, and no other one runs beside it.

Seconds are bounds, stated in docs/campaigns.md, for machines that are not overloaded.
"""

import csv
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from child_processes import started
from fault_campaigns import until
from lab_under_test import FRAMEWORKS, Lab

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.campaigns]  # minutes

NODES = ("node1", "node2")
END_S = 45  # from the signal to no process of the campaign anywhere
LONG = {"iterations": 30, "warmup": 2, "repeats": 1}
LOCK = "/run/dlperf/lock"


@pytest.fixture(scope="module")
def nodes(lab: Lab) -> Lab:
    lab.play("provision.yml")
    return lab


def runner(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "dlperf_runner", *map(str, arguments)]


def training(lab: Lab, node: str) -> list[str]:
    """Command lines of the benchmarks' user on a node, without those that only look at them."""
    told = lab.said(node, "ps -u dlperf -o pid=,args= || true")
    return [line for line in told.splitlines() if "AnsiballZ" not in line and "sshd" not in line]


def playbooks(directory: Path) -> list[int]:
    """ansible-playbook processes of a campaign, workers too."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (entry / "cmdline").read_bytes()
            if b"ansible-playbook" in line and str(directory).encode() in line:
                found.append(int(entry.name))
    return found


def wait_for_training(lab: Lab, directory: Path, process: subprocess.Popen[str]) -> None:
    """Until the run under way has printed a step, on both nodes."""

    def trains() -> bool:
        assert process.poll() is None, process.communicate()
        logs = directory.glob("runs/*/*/progress.json")
        return any("Speed" in log.read_text() for log in logs)

    until("the run trains", 240, trains)
    assert all(training(lab, node) for node in NODES)


def outcomes(directory: Path) -> dict[str, Any]:
    runs = [json.loads(path.read_text()) for path in directory.glob("runs/*/*/run.json")]
    return {run["id"]: run["outcome"] for run in runs}


def check_nothing_is_left(lab: Lab, directory: Path, seconds: float) -> None:
    def all_gone() -> bool:
        return not playbooks(directory) and not any(training(lab, node) for node in NODES)

    until("no process of the campaign anywhere", seconds, all_gone)


def arguments_of_run(directory: Path, **more: object) -> list[str]:
    chosen = {"model": "resnet50v1b", "nodes": 2, "gpus-per-node": 1, "campaign": directory}
    return [f"--{k}={v}" for k, v in (chosen | LONG | more).items()]


def playbook(directory: Path, **more: object) -> list[str]:
    chosen = {"model": "resnet50v1b", "nodes": 2, "gpus_per_node": 1, "campaign": directory}
    pairs = (chosen | LONG | more).items()
    return ["ansible-playbook", "bench.yml", *(x for k, v in pairs for x in ("-e", f"{k}={v}"))]


def test_term_ends_the_playbook_alone_in_order(nodes: Lab, tmp_path: Path) -> None:
    directory = tmp_path / "campaign"
    with started(nodes, *playbook(directory)) as process:
        wait_for_training(nodes, directory, process)
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=END_S)
    assert process.returncode == 2, text
    assert "A signal stopped the campaign" in text
    assert f"-e resume={directory}" in text
    check_nothing_is_left(nodes, directory, END_S)
    assert all(nodes.ssh(node, f"test -e {LOCK}").returncode for node in NODES)


def invalid(directory: Path) -> list[str]:
    with (directory / "measurements.csv").open() as table:
        return [row["why_invalid"] for row in csv.DictReader(table) if row["valid"] == "False"]


def test_campaigns_on_other_nodes_run_side_by_side(nodes: Lab, tmp_path: Path) -> None:
    """The lab's nodes share processors, so only who holds what is looked at here."""
    directories = [tmp_path / node for node in NODES]
    commands = [
        [*runner("run", *arguments_of_run(directory, nodes=1, iterations=20)), f"--limit={node}"]
        for node, directory in zip(NODES, directories, strict=True)
    ]
    with started(nodes, *commands[0]) as one, started(nodes, *commands[1]) as two:
        until("both train", 300, lambda: all(training(nodes, node) for node in NODES))
        assert [process.communicate(timeout=600) and process.returncode for process in (one, two)] \
            == [0, 0]  # fmt: skip


# Several: on a busy machine one has less than the rule's share of a core.
LOOP = "nohup setsid timeout 900 sh -c 'while :; do :; done' >/dev/null 2>&1 &"
BURN = f"for n in 1 2 3 4; do {LOOP} done"


@contextmanager
def burner(nodes: Lab) -> Iterator[None]:
    """Another user of both nodes; ended with all that it, and the benchmarks' own, compute."""
    for node in NODES:
        nodes.said(node, "id burner >/dev/null 2>&1 || useradd --create-home burner")
    try:
        yield
    finally:
        for node in NODES:
            nodes.ssh(node, "pkill -u burner; pkill -u dlperf -f 'while :'; true")
            nodes.ssh(node, "sleep 1; userdel --remove burner")


def test_run_does_not_start_where_somebody_computes(nodes: Lab, tmp_path: Path) -> None:
    """Who takes no lock: another user on the first node, and the benchmarks' own user, by hand, on
    the node that mpirun goes to."""
    directory = tmp_path / "campaign"
    with burner(nodes):
        nodes.said("node1", f'su burner -c "{BURN}"')
        nodes.said("node2", f'su dlperf -c "{BURN}"')
        done = nodes.command(*runner("run", *arguments_of_run(directory, iterations=12)))
    assert done.returncode == 1, done.stdout
    (outcome,) = outcomes(directory).values()
    assert outcome["status"] == "failed"
    assert "node1: others use" in outcome["message"]
    assert "node2: others use" in outcome["message"]
    assert "--wait 30m" in done.stdout  # as the category advises


def test_run_that_somebody_joins_is_invalid(nodes: Lab, tmp_path: Path) -> None:
    directory = tmp_path / "campaign"
    with burner(nodes), started(
        nodes, *runner("run", *arguments_of_run(directory, iterations=100))
    ) as process:  # fmt: skip
        wait_for_training(nodes, directory, process)
        for node in NODES:
            nodes.said(node, f'su burner -c "{BURN}"')
        text, _ = process.communicate(timeout=600)
    assert "was also running" in text, text
    (why,) = set(invalid(directory))
    assert "node1: sh of user" in why
    assert "node2: sh of user" in why
    (outcome,) = outcomes(directory).values()
    assert outcome["status"] == "done"
    with (directory / "summary.csv").open() as table:
        assert len(table.readlines()) == 1  # no case is left


# ---- the nodes of campaigns get further frameworks


def test_frameworks_are_added_to_provisioned_nodes(nodes: Lab) -> None:
    mxnet = "stat -c %Y /opt/dlperf/envs/mxnet/pyvenv.cfg"
    before = nodes.said("node2", mxnet)
    assert nodes.said("node2", "ls /opt/dlperf/envs").split() == ["mxnet"]
    nodes.up(lab_nodes=2, lab_frameworks=FRAMEWORKS)
    nodes.play("provision.yml")
    assert nodes.said("node2", "ls /opt/dlperf/envs").split() == sorted(FRAMEWORKS.split(","))
    assert nodes.said("node2", mxnet) == before
