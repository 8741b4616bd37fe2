"""Faults while the runs of a campaign train on two nodes: each run ends with a category and advice,
or is done all the same, and the campaign goes on. See tests/support/faults.py for the faults of
single runs, and test_end_to_end.py for three of them."""

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
    Campaign,
    Sufferer,
    inside,
    left,
    provision,
    suffering,
    until,
)
from faults import FAULTS, Fault
from lab_under_test import Lab

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.faults]


@pytest.fixture
def campaign(faulty_lab: Lab, faulty_catalog: Path, tmp_path: Path) -> Campaign:
    return Campaign(faulty_lab, faulty_catalog, tmp_path / "campaign", steps=75)


@pytest.fixture(scope="module")
def sufferer(
    faulty_lab: Lab, faulty_catalog: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sufferer]:
    campaign = Campaign(faulty_lab, faulty_catalog, tmp_path_factory.mktemp("all") / "campaign")
    with suffering(campaign, FAULTS) as made:
        yield made


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_run_with_a_fault_ends_and_the_campaign_goes_on(sufferer: Sufferer, fault: Fault) -> None:
    sufferer.check(fault)


def test_campaign_ends_after_all_faults_and_says_what_is_missing(sufferer: Sufferer) -> None:
    """Runs that lost a node, or were not theirs to lose, were run once more after the others."""
    text = sufferer.finish()
    campaign = sufferer.campaign
    assert sufferer.process.returncode == 1, text
    told = " ".join(text.split())  # lines are as wide as a terminal
    for run, outcome in campaign.outcomes().items():
        if outcome["status"] == "failed":
            assert f" {run.rpartition('/')[2]}: failed ({outcome['category']})" in told, text
    assert "retry 1 of 2" in text
    assert "step 35 follows" in text  # it was truncated
    assert campaign.lost() == 0
    assert left(campaign.lab) == []


# ---- nodes that go away


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
