"""A campaign as `plan`, `bench.yml`, `summarize` and `report` leave it, with its manifest."""

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from command_line import output
from make_logs import edit, gluoncv, write
from planned_campaigns import create, set_outcome

from dlperf_runner.campaign import directory as campaigns
from dlperf_runner.campaign.manifest import seal_run
from dlperf_runner.commands.report import make_report

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
    digest = hashlib.sha256((place / run["log_name"]).read_bytes()).hexdigest()
    hosts = {"node1": {"hostname": "node1"}}
    began = {"started": datetime.now(UTC).isoformat()}
    set_outcome(
        campaign, run, status="done", exit_status=0, log_sha256=digest, hosts=hosts, **began
    )
    seal_run(campaign, run["id"])


def finished_campaign(results: Path) -> Path:
    """`results` with a campaign of two cases and two repeats, its history and its report."""
    for number, run in enumerate(create(results / "one", nodes="1")):
        end(results / "one", run, 10.0 + number)
    output("summarize", results / "one")
    make_report([results / "one"])
    return results


def replace(name: str, old: str, new: str) -> Callable[[Path], object]:
    return lambda campaign: edit([campaign / name], old, new)
