"""MLflow: a local directory with a SQLite file, which `mlflow ui` shows. A case of a campaign is an
MLflow run in the experiment of its workload; its own runs are the steps of a metric."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..core.extras import require
from ..core.files import require_regular
from ..core.lists import counted
from .record import THROUGHPUT, ExportedCampaign, ExportedCase, identifier

FILE = "mlflow.db"
_ID = "dlperf.id"


def write(campaigns: Sequence[ExportedCampaign], directory: Path) -> str:
    """Add the cases that are not there yet. Returns what to do next."""
    require("mlflow", "mlflow", "sqlalchemy", "alembic")
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # nothing leaves this machine
    for name in ("mlflow", "alembic"):  # both print each step of making the file
        logging.getLogger(name).setLevel(logging.WARNING)
    from mlflow import MlflowClient

    place = directory.resolve()
    place.mkdir(parents=True, exist_ok=True)
    require_regular(place / FILE, inside=place)
    address = f"sqlite:///{place / FILE}"
    client = MlflowClient(tracking_uri=address)
    pairs = [(campaign, case) for campaign in campaigns for case in campaign.cases]
    new = [pair for pair in pairs if _add(client, place, *pair)]
    present = f", {len(pairs) - len(new)} were there" if len(new) < len(pairs) else ""
    return f"{counted(len(new), 'run')} added{present}; mlflow ui --backend-store-uri {address}"


def _add(client: Any, place: Path, campaign: ExportedCampaign, case: ExportedCase) -> bool:
    """Add a case. False if it is there."""
    experiment = _experiment(client, place, f"dlperf {case.labels['workload']}")
    tags = {_ID: identifier(campaign, case), "dlperf.campaign": campaign.name}
    if client.search_runs([experiment], f"tags.`{_ID}` = '{tags[_ID]}'", max_results=1):
        return False
    time = int(campaign.created.timestamp() * 1000)
    if campaign.tags:
        tags["dlperf.tags"] = ",".join(campaign.tags)
    if campaign.notes:
        tags["mlflow.note.content"] = campaign.notes
    name = f"{campaign.name} {case.name}"
    run = client.create_run(experiment, start_time=time, run_name=name, tags=tags).info.run_id
    for label, text in case.labels.items():
        client.log_param(run, label, text)
    for metric, number in case.numbers.items():
        client.log_metric(run, metric, number.value, timestamp=time)
    for repeat, value in enumerate(case.runs, start=1):
        client.log_metric(run, f"{THROUGHPUT}_of_run_{case.rate}", value, time, repeat)
    client.set_terminated(run, end_time=time)
    return True


def _experiment(client: Any, place: Path, name: str) -> str:
    experiment = client.get_experiment_by_name(name)
    if experiment is not None:
        return str(experiment.experiment_id)
    return str(client.create_experiment(name, artifact_location=(place / "artifacts").as_uri()))


DIRECTORIES = {"mlflow": write}
