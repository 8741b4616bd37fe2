"""Weights & Biases: directories of offline runs, which `wandb sync` uploads. A case of a campaign
is a run; its own runs are the steps of a metric."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..core.extras import require
from ..core.lists import counted
from .record import THROUGHPUT, ExportedCampaign, identifier

PROJECT = "dlperf"


def write(campaigns: Sequence[ExportedCampaign], directory: Path) -> str:
    """Write a directory for each case. Returns what to do next."""
    require("wandb", "wandb")
    os.environ["WANDB_ERROR_REPORTING"] = "false"  # nothing leaves this machine
    import wandb

    place = directory.resolve()
    place.mkdir(parents=True, exist_ok=True)
    # The machine that exports says nothing about the one that was measured.
    settings = wandb.Settings(
        mode="offline",
        root_dir=str(place),
        silent=True,
        console="off",
        disable_git=True,
        disable_job_creation=True,
        save_code=False,
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
    )
    pairs = [(campaign, case) for campaign in campaigns for case in campaign.cases]
    for campaign, case in pairs:
        run = wandb.init(
            project=PROJECT,
            dir=str(place),
            id=identifier(campaign, case),  # an upload replaces an earlier one
            name=f"{campaign.name} {case.name}",
            group=campaign.name,
            job_type=case.labels["workload"],
            tags=list(campaign.tags),
            notes=campaign.notes,
            config=dict(case.labels),
            settings=settings,
            reinit="create_new",
        )
        for repeat, value in enumerate(case.runs, start=1):
            run.log({f"{THROUGHPUT}_of_run_{case.rate}": value}, step=repeat)
        run.summary.update({name: number.value for name, number in case.numbers.items()})
        run.finish()
    wandb.teardown()
    return f"{counted(len(pairs), 'run')} written; wandb sync {place}/wandb/offline-run-*"


DIRECTORIES = {"wandb": write}
