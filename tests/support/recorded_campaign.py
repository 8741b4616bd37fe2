"""A campaign as `plan`, `bench.yml`, `summarize` and `report` leave it, with its manifest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from command_line import output
from make_logs import gluoncv, write
from plan_examples import lab_nodes

from dlperf_runner.campaign import directory as campaigns
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.commands.report import make_report
from dlperf_runner.plan.choice import parse_choice
from dlperf_runner.plan.make import make_plan

RUN = "runs/mxnet-resnet50v1b-builtin_fp32_b2_1n1g/r1"
LOG = f"{RUN}/rn50_b2_fp32_1.log"


def end(campaign: Path, run: dict[str, Any], rate: float) -> None:
    """What the role and bench.yml leave of a run."""
    place = campaigns.run_directory(campaign, run)
    steps, warmup = run["total_steps"], run["warmup_steps"]
    write(
        place / run["log_name"],
        gluoncv(rate, batch=2, world=run["world_size"], steps=steps, warmup=warmup),
    )
    (place / "telemetry-node1.csv").write_text("time,memory\n1.0,512\n")
    record = campaigns.read_record(campaign, run)
    record["outcome"] |= {
        "status": "done",
        "exit_status": 0,
        "log_sha256": hashlib.sha256((place / run["log_name"]).read_bytes()).hexdigest(),
        "hosts": {"node1": {"hostname": "node1"}},
    }
    campaigns.write_json(place / "run.json", record)
    output("seal", campaign, run["id"])


def finished_campaign(results: Path) -> Path:
    """`results` with a campaign of two cases and two repeats, its history and its report."""
    choice = parse_choice({"workload": "mxnet-resnet50v1b", "nodes": "1", "repeats": 2})
    runs = make_plan(choice, load_catalog(), lab_nodes())
    plan = campaigns.create_campaign(results / "one", choice, lab_nodes(), runs)
    for number, run in enumerate(json.loads(json.dumps(plan["runs"]))):
        end(results / "one", run, 10.0 + number)
    output("summarize", results / "one")
    make_report([results / "one"])
    return results


def replace(name: str, old: str, new: str) -> Callable[[Path], object]:
    def alter(campaign: Path) -> None:
        text = (campaign / name).read_text()
        assert old in text
        (campaign / name).write_text(text.replace(old, new, 1))

    return alter
