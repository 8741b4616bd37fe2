"""Campaigns that were planned on the lab's nodes, and ends of their runs."""

from __future__ import annotations

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


def end(directory: Path, run: dict[str, Any], **outcome: Any) -> None:
    """What benchmark_run leaves of a run."""
    place = campaigns.run_directory(directory, run)
    record = campaigns.read_record(directory, run)
    record["outcome"] = {**record["outcome"], **outcome}
    campaigns.write_json(place / "run.json", record)
    if outcome["status"] == "done":
        (place / run["log_name"]).write_text("Epoch[0]\n")
