"""`accept`, `ab` and `bisect` on nodes of a lab, one of which is slow: the whole way, from a suite
to a page that is checked."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fault_campaigns import Campaign
from lab_under_test import END, Lab

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.faults]

# 75 steps of 50 ms; node2 sleeps a quarter longer. Other tests run beside this: margins are wide.
SUITE = """\
name: lab
nodes: [node1, node2]
margin: 10%
slow: 16%
pilot: 3
items:
  - workload: faulty
    gpus_per_node: 1
    iterations: 75
    parameters: {seconds: 0.05}
    parts: each node
    target: 19.8 samples/s
"""


@pytest.fixture
def campaign(faulty_lab: Lab, faulty_catalog: Path, tmp_path: Path) -> Campaign:
    return Campaign(faulty_lab, faulty_catalog, tmp_path / "campaign", steps=75)


def dlperf(campaign: Campaign, status: int, command: str, *arguments: object) -> str:
    done = campaign.lab.command(*campaign.argv(command, *arguments))
    assert done.returncode == status, done.stdout[-END:]
    return done.stdout


def document(campaign: Campaign, status: int, *arguments: object) -> Any:
    """What a command with --json prints beside its notes, which the lab mixes in."""
    text = dlperf(campaign, status, *arguments, "--json")
    return json.loads(text[text.index("\n{\n") if not text.startswith("{") else 0 :])


def test_a_slow_node_is_not_accepted(campaign: Campaign, tmp_path: Path) -> None:
    suite, key = tmp_path / "suite.yml", tmp_path / "key"
    suite.write_text(SUITE)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    allowed = tmp_path / "allowed"
    public = key.with_suffix(".pub").read_text()
    allowed.write_text(f'me@example.org namespaces="dlperf_runner" {public}')
    campaign.lab.said("node2", "echo slow > /home/dlperf/fault")
    try:
        written = ("--measure", tmp_path / "rack", "--page", tmp_path / "page", "--sign", key)
        text = dlperf(campaign, 1, "accept", suite, *campaign.inventories, *written)
    finally:
        campaign.lab.said("node2", "rm -f /home/dlperf/fault")
    assert "failed: 1 failed, 1 passed." in text
    check = ("accept", suite, "--results", tmp_path / "rack", "--check", tmp_path / "page")
    text = dlperf(campaign, 0, *check, "--allowed-signers", allowed)
    assert "as computed from the suite and the logs" in text
    # Somebody makes the slow node fast.
    log = next((tmp_path / "rack/1-node2").rglob("r1/*.log"))
    log.write_text(log.read_text().replace("rate 1", "rate 2"))
    text = dlperf(campaign, 2, *check, "--allowed-signers", allowed)
    assert "changed since manifest.jsonl" in text


CHOICE = ("--workload=faulty", "--nodes=1", "--iterations=75")


def test_two_versions_take_turns(campaign: Campaign, tmp_path: Path) -> None:
    sides = ("--a", "seconds=0.05", "--b", "seconds=0.1", "--most", 4)
    folder = ("--campaign", tmp_path / "ab")
    found = document(campaign, 0, "ab", *CHOICE, *campaign.inventories, *sides, *folder)
    assert found["verdict"] == "slower"
    assert found["low"] - 0.1 < -0.5 < found["high"] + 0.1
    assert found["differs_in"] == ["parameters seconds=0.05 and seconds=0.1"]
    runs = [
        (json.loads(path.read_text())["outcome"]["started"], side, int(path.parent.name[1:]))
        for side in "ab"
        for path in (tmp_path / "ab" / side).glob("runs/*/*/run.json")
    ]
    order = [f"{side}{number}" for _, side, number in sorted(runs)]
    assert order == ["a1", "b1", "b2", "a2", "a3", "b3", "b4", "a4"]


def test_the_slow_version_is_found(campaign: Campaign, tmp_path: Path) -> None:
    versions = "0.05,0.0501,0.1"
    given = ("--name", "seconds", "--versions", versions, "--slower", "30%", "--most", 4)
    folder = ("--campaign", tmp_path / "bisect")
    found = document(campaign, 0, "bisect", *CHOICE, *campaign.inventories, *given, *folder)
    assert found["version"] == "0.1"
    assert [step["version"] for step in found["steps"]] == ["0.1", "0.0501"]
