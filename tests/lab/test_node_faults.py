"""Nodes that go away while the runs of a campaign train on them, for a while or for good, and nodes
that others use. A campaign has its nodes: signals end it in order, and no other one runs there."""

import csv
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from child_processes import started
from fault_campaigns import (
    NODES,
    STEPS,
    Campaign,
    inside,
    left,
    processes_of,
    provision,
    until,
)
from lab_under_test import Lab

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.faults]


@pytest.fixture
def campaign(faulty_lab: Lab, faulty_catalog: Path, tmp_path: Path) -> Campaign:
    return Campaign(faulty_lab, faulty_catalog, tmp_path / "campaign", steps=75)


@pytest.mark.parametrize("policy", ["retry", "shrink", "stop"])
def test_node_that_is_unreachable(campaign: Campaign, policy: str) -> None:
    lab = campaign.lab
    argv = campaign.run(f"--on-node-loss={policy}", nodes="1,2", repeats=2)
    with started(lab, *argv) as process, cut_off(lab, "node2") as node:
        until("a run on two nodes runs", 600, lambda: two_nodes(campaign, "running"))
        campaign.trains(process)
        node("down")
        began = time.monotonic()
        until("it has failed", 600, lambda: two_nodes(campaign, "failed", "category"))
        seconds = time.monotonic() - began
        if policy == "retry":
            node("up")
        text, _ = process.communicate(timeout=900)
    outcome = f"node lost, then {policy}"
    states = campaign.statuses()
    if policy == "retry":
        assert (process.returncode, states) == (0, ["done"] * 4), text
    elif policy == "shrink":
        assert process.returncode == 1, text  # the removed runs failed
        assert "plan.2.json: 2 runs removed, because node2 is lost" in " ".join(text.split())
        assert states.count("done") == 2
    else:
        assert process.returncode == 1, text
        # The next run may have started before the controller saw the loss.
        assert states in (
            ["done", "failed", *["planned"] * 2],
            ["done", "done", "failed", "planned"],
        )
    until("no process is left", 60, lambda: left(lab) == [])
    campaign.note("node2 unreachable", "its network cut, each `--on-node-loss`", outcome, seconds)
    if policy == "stop":
        campaign.check_resumes("--retry-failed")


def two_nodes(campaign: Campaign, status: str, key: str = "status") -> bool:
    return any(
        outcome.get("status") == status and outcome.get(key)
        for run, outcome in campaign.outcomes().items()
        if "2n1g" in run
    )


@contextmanager
def cut_off(lab: Lab, node: str) -> Iterator[Any]:
    def network(state: str) -> None:
        inside(lab, node, f"ip link set eth0 {state}")

    try:
        yield network
    finally:
        network("up")


def test_network_that_is_gone_for_a_while(campaign: Campaign) -> None:
    """Of the node that launches: the run there goes on as long as its lease."""
    lab = campaign.lab
    with started(lab, *campaign.run(nodes="1")) as process, cut_off(lab, "node1") as node:
        campaign.trains(process, 8)
        node("down")
        time.sleep(5)  # TCP tries again after 6 s, and next after 13 s, nearly the lease
        node("up")
        text, _ = process.communicate(timeout=900)
    assert process.returncode == 0, text
    campaign.check_complete()
    campaign.note("controller does not reach node1", "its network cut for 5 s", "done", None)


REBOOT = """
ip link set eth0 down
for p in /proc/[0-9]*; do
  p=${p#/proc/}
  case $p:$(tr '\\0' ' ' < /proc/$p/cmdline 2>/dev/null) in
    1:*|$$:*|*listener*) ;;
    *) kill -KILL $p 2>/dev/null;;
  esac
done
rm -rf /run/dlperf /tmp/*
"""


@pytest.mark.parametrize("name", ["node1", "node2"])
def test_node_that_is_rebooted(campaign: Campaign, name: str) -> None:
    """All but its first processes are killed, its volatile files are gone, and it does not answer
    for 30 s. Its runs are tried again."""
    lab = campaign.lab
    with started(lab, *campaign.run(repeats=2)) as process, cut_off(lab, name) as node:
        campaign.trains(process)
        inside(lab, name, REBOOT)
        began = time.monotonic()
        time.sleep(30)
        node("up")
        until("it has failed", 600, lambda: two_nodes(campaign, "failed", "category"))
        seconds = time.monotonic() - began
        first = next(iter(campaign.outcomes().values()))
        text, _ = process.communicate(timeout=900)
    assert process.returncode == 0, text
    assert "lost: retry 1 of 2" in text
    campaign.check_complete()
    campaign.note(
        f"{name} rebooted",
        "all processes killed, /run and /tmp emptied, no network for 30 s",
        f"{first['category']}, then done",
        seconds,
    )


def test_power_cut_of_all_nodes(campaign: Campaign) -> None:
    lab = campaign.lab
    with started(lab, *campaign.run("--on-node-loss=stop", nodes="1,2")) as process:
        until("a run is done", 600, lambda: "done" in campaign.statuses())
        campaign.trains(process)
        os.kill(lab.state["pid"], signal.SIGKILL)
        began = time.monotonic()
        text, _ = process.communicate(timeout=900)
        seconds = time.monotonic() - began
    assert process.returncode == 1, text
    (outcome,) = [o for o in campaign.outcomes().values() if o["status"] == "failed"]
    assert outcome["category"] == "node lost"
    provision(lab)
    campaign.check_resumes("--retry-failed")
    campaign.note(
        "power cut of all nodes",
        "the lab killed, made again, resumed",
        "node lost, then done",
        seconds,
    )


# ---- whose nodes they are


END_S = 45  # from a signal to no process of the campaign anywhere, as docs/campaigns.md says
# Several: on a busy machine one has less than the rule's share of a core.
LOOP = "nohup setsid timeout 900 sh -c 'while :; do :; done' >/dev/null 2>&1 &"
BURN = f"for n in 1 2 3 4; do {LOOP} done"


@contextmanager
def burner(lab: Lab) -> Iterator[None]:
    """Another user of both nodes; ended with all that it, and the benchmarks' own, compute."""
    for node in NODES:
        lab.said(node, "id burner >/dev/null 2>&1 || useradd --create-home burner")
    try:
        yield
    finally:
        for node in NODES:
            lab.ssh(node, "pkill -u burner; pkill -u dlperf -f 'while :'; true")
            lab.ssh(node, "sleep 1; userdel --remove burner")


def test_term_ends_the_playbook_alone_in_order(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, directory = campaign.lab, campaign.directory
    monkeypatch.setenv("DLPERF_CATALOG", str(campaign.catalog))
    chosen = {"workload": "faulty", "nodes": 2, "iterations": 75, "campaign": directory}
    argv = ["ansible-playbook", "bench.yml", *campaign.inventories]
    argv += [word for key, value in chosen.items() for word in ("-e", f"{key}={value}")]
    with started(lab, *argv) as process:
        campaign.trains(process, 8)
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=END_S)
    assert process.returncode == 2, text
    assert "A signal stopped the campaign" in text
    assert f"-e resume={directory}" in text
    until("no process is left on the nodes", END_S, lambda: left(lab) == [])
    until("no playbook is left", END_S, lambda: processes_of(campaign, 0) == [0])
    assert all(lab.ssh(node, "test -e /run/dlperf/lock").returncode for node in NODES)


def test_campaigns_on_other_nodes_run_side_by_side(campaign: Campaign, tmp_path: Path) -> None:
    """The lab's nodes share processors, so only who holds what is looked at here."""
    lab, catalog = campaign.lab, campaign.catalog
    both = [Campaign(lab, catalog, tmp_path / node, steps=75) for node in NODES]
    one, two = (
        [*each.run(nodes="1"), f"--limit={node}"] for each, node in zip(both, NODES, strict=True)
    )
    with started(lab, *one) as first, started(lab, *two) as second:
        until("both run", 300, lambda: all(each.statuses() == ["running"] for each in both))
        for process in (first, second):
            text, _ = process.communicate(timeout=600)
            assert process.returncode == 0, text


def test_run_does_not_start_where_somebody_computes(campaign: Campaign) -> None:
    """Who takes no lock: another user on the first node, and the benchmarks' own user, by hand, on
    the node that mpirun goes to."""
    lab = campaign.lab
    with burner(lab):
        lab.said("node1", f'su burner -c "{BURN}"')
        lab.said("node2", f'su dlperf -c "{BURN}"')
        done = lab.command(*campaign.run())
    assert done.returncode == 1, done.stdout
    (outcome,) = campaign.outcomes().values()
    assert outcome["status"] == "failed"
    assert "node1: others use" in outcome["message"]
    assert "node2: others use" in outcome["message"]
    assert "--wait 30m" in done.stdout  # as the category advises


def test_run_that_somebody_joins_is_invalid(campaign: Campaign) -> None:
    lab, campaign.steps = campaign.lab, STEPS
    with burner(lab), started(lab, *campaign.run()) as process:
        campaign.trains(process, 8)
        for node in NODES:
            lab.said(node, f'su burner -c "{BURN}"')
        text, _ = process.communicate(timeout=600)
    assert "was also running" in text, text
    with (campaign.directory / "measurements.csv").open() as table:
        rows = list(csv.DictReader(table))
    (why,) = {row["why_invalid"] for row in rows if row["valid"] == "False"}
    assert "node1: sh of user" in why
    assert "node2: sh of user" in why
    assert campaign.statuses() == ["done"]
    with (campaign.directory / "summary.csv").open() as table:
        assert len(table.readlines()) == 1  # no case is left
