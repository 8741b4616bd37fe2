"""Campaigns that were planned on the lab's nodes, and ends of their runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plan_examples import lab_nodes

from dlperf_runner.campaign import directory as campaigns
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.plan.choice import parse_choice
from dlperf_runner.plan.make import make_plan


def create(directory: Path, **options: object) -> list[dict[str, Any]]:
    chosen = {"workload": "mxnet-resnet50v1b", "nodes": "1,2", "repeats": 2, **options}
    choice = parse_choice(chosen)
    runs = make_plan(choice, load_catalog(), lab_nodes())
    campaigns.create_campaign(directory, choice, lab_nodes(), runs)
    return campaigns.read_plan(directory)["runs"]


def set_outcome(directory: Path, run: Mapping[str, Any], **outcome: object) -> Path:
    """Change the outcome in the record of a run."""
    record = campaigns.read_record(directory, run)
    record["outcome"] = {**record["outcome"], **outcome}
    return campaigns.write_json(campaigns.run_directory(directory, run) / "run.json", record)


def end(directory: Path, run: Mapping[str, Any], **outcome: object) -> None:
    """What benchmark_run leaves of a run."""
    path = set_outcome(directory, run, **outcome)
    if outcome["status"] == "done":
        path.with_name(run["log_name"]).write_text("Epoch[0]\n")
