"""TensorFlow 2 and PaddlePaddle 3 from the index, on two nodes: provisioned, and both programs
trained on one process, on two, and on two nodes."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_under_test import Lab
from trained_campaigns import CASES, check, provisioned, runs_of

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.tensorflow_paddle]

FRAMEWORKS = {"tensorflow2": ("tensorflow-cpu", "2.21.0"), "paddle3": ("paddlepaddle", "3.3.1")}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("tensorflow-paddle")
    with provisioned(directory, f"lab_frameworks={','.join(FRAMEWORKS)}") as lab:
        yield lab


@pytest.fixture(scope="module")
def campaign(nodes: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("campaigns") / "resnet"
    nodes.play("bench.yml", "-e", f"campaign={directory}")
    return directory


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_both_programs_learn_on_one_process_on_two_and_on_two_nodes(
    campaign: Path, framework: str
) -> None:
    found = [(run, log) for run, log in runs_of(campaign) if run["framework"] == framework]
    check(found, [f"{framework}-resnet50v1.5"], *FRAMEWORKS[framework])


def test_a_table_has_both(nodes: Lab, campaign: Path) -> None:
    done = nodes.command("python", "-m", "dlperf_runner", "summarize", str(campaign))
    assert done.returncode == 0, done.stdout
    with (campaign / "summary.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == 2 * len(CASES)
    assert {(row["framework"], row["framework_version"]) for row in rows} == {
        (name, version) for name, (_, version) in FRAMEWORKS.items()
    }


def test_a_second_provisioning_changes_nothing(nodes: Lab) -> None:
    recap = nodes.play("provision.yml", "--tags", "framework").rpartition("PLAY RECAP")[2]
    assert re.findall(r"changed=(\d+)", recap) == ["0", "0"]
