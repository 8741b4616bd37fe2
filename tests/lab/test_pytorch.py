"""PyTorch as Debian 13 has it, on two nodes: provisioned, and both programs trained on one process,
on two, and on two nodes, by torchrun and by mpirun."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_under_test import Lab
from trained_campaigns import CASES, check, runs_of

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.pytorch]

TORCH = "torch", "2.6.0"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Their host names resolve to 127.0.1.1 first, as Debian's installer sets them up."""
    lab = Lab(tmp_path_factory.mktemp("pytorch") / "lab")
    options = ["lab_nodes=2", "lab_suite=trixie", "lab_frameworks=pytorch"]
    lab.play("playbooks/lab.yml", *(part for each in options for part in ("-e", each)))
    try:
        lab.play("provision.yml")
        for node in ("node1", "node2"):
            first = f"echo 127.0.1.1 {node} | cat - /etc/hosts > /tmp/h && cp /tmp/h /etc/hosts"
            lab.said(node, first)
            assert lab.said(node, f"getent hosts {node}").startswith("127.0.1.1")
        yield lab
    finally:
        lab.down()


@pytest.fixture(scope="module")
def campaign(nodes: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("campaigns") / "torchrun"
    nodes.play("bench.yml", "-e", f"campaign={directory}")
    return directory


def test_both_programs_learn_on_one_process_on_two_and_on_two_nodes(campaign: Path) -> None:
    check(runs_of(campaign), ["pytorch-llama", "pytorch-resnet50v1.5"], *TORCH)


def test_the_table_has_tokens_and_images(nodes: Lab, campaign: Path) -> None:
    done = nodes.command("python", "-m", "dlperf_runner", "summarize", str(campaign))
    assert done.returncode == 0, done.stdout
    assert "tokens/s" in done.stdout
    assert "samples/s" in done.stdout
    with (campaign / "summary.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == 2 * len(CASES)
    assert {row["framework_version"] for row in rows} == {"2.6.0+debian"}


def test_mpirun_starts_them_too(nodes: Lab, tmp_path: Path) -> None:
    directory = tmp_path / "mpirun"
    done = nodes.command(
        *("python", "-m", "dlperf_runner", "run", "--workload", "pytorch-llama"),
        *("--parameter", "launcher=torch_mpirun", "--campaign", str(directory)),
    )
    assert done.returncode == 0, done.stdout
    found = runs_of(directory)
    check(found, ["pytorch-llama"], *TORCH)
    assert all("mpirun" in str(run["commands"]) for run, _ in found)


def test_a_second_provisioning_changes_nothing(nodes: Lab) -> None:
    recap = nodes.play("provision.yml", "--tags", "framework").rpartition("PLAY RECAP")[2]
    assert re.findall(r"changed=(\d+)", recap) == ["0", "0"]
