"""Faults while the runs of a campaign train on two nodes: each run ends with a category and advice,
or is done all the same, and the campaign goes on. See tests/support/faults.py for the faults,
test_end_to_end.py for three of them, and test_node_faults.py for nodes that go away."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_campaigns import Campaign, Sufferer, left, suffering
from faults import FAULTS, Fault
from lab_under_test import Lab

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.faults]


@pytest.fixture(scope="module")
def sufferer(
    faulty_lab: Lab, faulty_catalog: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sufferer]:
    directory = tmp_path_factory.mktemp("all") / "campaign"
    campaign = Campaign(faulty_lab, faulty_catalog, directory, steps=75)
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
