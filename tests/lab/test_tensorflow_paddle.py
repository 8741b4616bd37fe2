"""TensorFlow 2 and PaddlePaddle 3 from the index on two nodes: provisioned, and the program of each
trained on one process, on two, and on two nodes."""

from collections.abc import Iterator
from pathlib import Path

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

INSTALLED = {
    "paddle3-resnet50v1.5": ("paddlepaddle", "3.3.1"),
    "tensorflow2-resnet50v1.5": ("tensorflow-cpu", "2.21.0"),
}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("frameworks")
    with provisioned(directory, "paddle3,tensorflow2") as lab:
        yield lab


@pytest.mark.parametrize("workload", INSTALLED)
def test_the_program_learns_on_one_process_on_two_and_on_two_nodes(
    workload: str, campaign: Path
) -> None:
    runs = [(run, log) for run, log in runs_of(campaign) if run["workload"] == workload]
    check(runs, [workload], *INSTALLED[workload])


def test_a_step_that_xla_compiled_learns(nodes: Lab, tmp_path: Path) -> None:
    options = ("--workload", "tensorflow2-resnet50v1.5", "-p", "xla=true")
    found = trained(nodes, tmp_path / "xla", *options, "--nodes", "1", "--gpus-per-node", "1")
    ((run, log),) = found
    assert run["parameters"]["xla"] == "true"  # type: ignore[index]
    check_learnt(run, log)


def test_the_table_names_the_versions(nodes: Lab, campaign: Path) -> None:
    check_table(nodes, campaign, len(INSTALLED), {version for _, version in INSTALLED.values()})


def test_the_report_says_where_the_time_goes(nodes: Lab, campaign: Path) -> None:
    alone = "all-reduce of the gradients alone: 94114088 bytes"
    text = step_shares(nodes, campaign, alone)
    waits = "On 2n2g, the program waited for input in 0.0% of the time."
    assert text.count(waits) == len(INSTALLED)
    assert len([*campaign.rglob("*-time-*.svg")]) == len(INSTALLED)


def test_a_second_provisioning_changes_nothing(nodes: Lab) -> None:
    check_second_provisioning(nodes)
