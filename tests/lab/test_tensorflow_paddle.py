"""TensorFlow 2 and PaddlePaddle 3 from the index, each on two nodes: provisioned, and its program
trained on one process, on two, and on two nodes."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from lab_under_test import Lab
from trained_campaigns import (
    check,
    check_learnt,
    check_second_provisioning,
    check_table,
    provisioned,
    runs_of,
    step_shares,
    trained,
)

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.tensorflow_paddle]


class Installed(NamedTuple):
    framework: str
    package: str
    version: str


INSTALLED = (
    Installed("paddle3", "paddlepaddle", "3.3.1"),
    Installed("tensorflow2", "tensorflow-cpu", "2.21.0"),
)


@pytest.fixture(scope="module", params=INSTALLED, ids=lambda each: each.framework)
def installed(request: pytest.FixtureRequest) -> Installed:
    return request.param


@pytest.fixture(scope="module")
def nodes(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp(installed.framework)
    with provisioned(directory, f"lab_frameworks={installed.framework}") as lab:
        yield lab


def test_the_program_learns_on_one_process_on_two_and_on_two_nodes(
    installed: Installed, campaign: Path
) -> None:
    workload = f"{installed.framework}-resnet50v1.5"
    check(runs_of(campaign), [workload], installed.package, installed.version)


def test_a_step_that_xla_compiled_learns(nodes: Lab, installed: Installed, tmp_path: Path) -> None:
    if installed.framework != "tensorflow2":
        pytest.skip("XLA compiles for TensorFlow")
    options = ("--workload", "tensorflow2-resnet50v1.5", "-p", "xla=true")
    found = trained(nodes, tmp_path / "xla", *options, "--nodes", "1", "--gpus-per-node", "1")
    ((run, log),) = found
    assert run["parameters"]["xla"] == "true"  # type: ignore[index]
    check_learnt(run, log)


def test_the_table_names_the_version(nodes: Lab, installed: Installed, campaign: Path) -> None:
    check_table(nodes, campaign, 1, installed.version)


def test_the_report_says_where_the_time_goes(nodes: Lab, campaign: Path) -> None:
    alone = "all-reduce of the gradients alone: 94114088 bytes"
    text = step_shares(nodes, campaign, alone)
    assert "On 2n2g, the program waited for input in 0.0% of the time." in text
    assert len([*campaign.rglob("*-time-*.svg")]) == 1


def test_a_second_provisioning_changes_nothing(nodes: Lab) -> None:
    check_second_provisioning(nodes)
