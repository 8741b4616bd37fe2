"""A campaign's directory: what was planned, and what became of every run.

    results/<campaign>/campaign.json        id, created, choice, inventory, number of runs, rules of
                                            validity
    results/<campaign>/plan.json            the plan as `plan --json` prints it
    results/<campaign>/runs/<case>/r<k>/    run.json (the run, and its `outcome`), then its logs

The state is in these files alone. Each is written whole (a temporary name, then a rename), so a
campaign that was cut off anywhere can be read, and can go on: what is missing is the plan minus
what is done.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import UserError
from ..core.files import read_json, write_json

if TYPE_CHECKING:
    from ..core.case import Run
    from ..core.node import Node
    from ..plan.choice import Choice

RESULTS = Path("results")
LATEST = "latest"

PLANNED_OUTCOME: dict[str, Any] = {
    "status": "planned",
    "exit_status": None,
    "started": None,
    "ended": None,
    "elapsed_s": None,
    "message": None,
    "hosts": {},
    "versions": {},
}


def new_directory(results: Path = RESULTS, now: datetime | None = None) -> Path:
    """A name for a new campaign that is not taken: the time, to the second, in UTC."""
    stem = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    directory, number = results / stem, 2
    while directory.exists():
        directory, number = results / f"{stem}-{number}", number + 1
    return directory


def create_campaign(
    directory: Path,
    choice: Choice,
    nodes: Sequence[Node],
    runs: Sequence[Run],
    now: datetime | None = None,
) -> dict[str, Any]:
    """Write a new campaign with every run planned; returns the plan's document.

    A directory that holds a campaign, or a part of one, is refused.
    """
    from ..catalog.validity import catalogued_rules
    from ..plan.make import plan_document

    refuse_taken(directory)
    document = plan_document(choice, nodes, runs)
    for run in runs:
        record = {**asdict(run), "outcome": PLANNED_OUTCOME}
        write_json(run_directory(directory, record) / "run.json", record)
    write_json(directory / "plan.json", document)
    # Last, so that a directory with a campaign.json is a whole campaign.
    campaign = {
        "schema": document["schema"],
        "id": directory.resolve().name,
        "created": (now or datetime.now(UTC)).isoformat(timespec="seconds"),
        "choice": document["choice"],
        "inventory": document["inventory"],
        "runs": len(runs),
        # Set before the run, so that they cannot be chosen to fit what comes out.
        "validity": catalogued_rules().model_dump(mode="json"),
    }
    write_json(directory / "campaign.json", campaign)
    return document


def refuse_taken(directory: Path) -> None:
    """Raise where a new campaign would meet an old one, or a part of one."""
    held = [name for name in ("campaign.json", "plan.json", "runs") if (directory / name).exists()]
    if held or (directory.exists() and not directory.is_dir()):
        raise UserError(
            "this is no place for a new campaign",
            where=str(directory),
            expected="a new directory, or one without a campaign",
            found=", ".join(held) or "a file",
            hint="go on with a campaign with --resume" if _is_campaign(directory) else None,
        )


def read_campaign(directory: Path) -> dict[str, Any]:
    """campaign.json; a UserError where the directory is no campaign."""
    if not _is_campaign(directory):
        raise UserError(
            "this is no campaign",
            where=str(directory),
            expected="a directory with a campaign.json and a plan.json",
        )
    return read_json(directory / "campaign.json")


def read_plan(directory: Path) -> dict[str, Any]:
    """The plan as it was printed when the campaign was made."""
    read_campaign(directory)
    plan = read_json(directory / "plan.json")
    runs = plan.get("runs")
    if not isinstance(runs, list) or not all(_is_run(run) for run in runs):
        raise UserError(
            "this is no plan", where=str(directory / "plan.json"), expected="runs, each with an id"
        )
    return plan


def run_directory(directory: Path, run: Mapping[str, Any]) -> Path:
    """Where a run's files are; `run` is one of the plan's."""
    return directory / "runs" / str(run["case"]) / f"r{run['repeat']}"


def read_record(directory: Path, run: Mapping[str, Any]) -> dict[str, Any]:
    """A run's run.json; the run as planned where there is none yet."""
    path = run_directory(directory, run) / "run.json"
    return read_json(path) if path.exists() else {**run, "outcome": PLANNED_OUTCOME}


def read_records(directory: Path) -> list[dict[str, Any]]:
    """Every run of the plan with its outcome, in the plan's order."""
    return [read_record(directory, run) for run in read_plan(directory)["runs"]]


def is_done(directory: Path, run: Mapping[str, Any]) -> bool:
    """Whether the run was carried out and its log is there."""
    outcome = read_record(directory, run).get("outcome")
    log = run_directory(directory, run) / str(run["log_name"])
    return isinstance(outcome, dict) and outcome.get("status") == "done" and log.is_file()


def is_cut_off(outcome: Mapping[str, Any]) -> bool:
    """Whether a run that stands as running has lost the controller that would say how it ended;
    known on that controller only."""
    controller = outcome.get("controller")
    if outcome.get("status") != "running" or not isinstance(controller, dict):
        return False
    if controller.get("host") != socket.gethostname() or not isinstance(controller["pid"], int):
        return False
    try:
        os.kill(controller["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def remaining_plan(directory: Path) -> dict[str, Any]:
    """The campaign's plan with only the runs that are not done yet."""
    plan = read_plan(directory)
    return {**plan, "runs": [run for run in plan["runs"] if not is_done(directory, run)]}


def _is_campaign(directory: Path) -> bool:
    return (directory / "campaign.json").is_file()


def _is_run(value: object) -> bool:
    keys = ("id", "case", "repeat", "log_name")
    return isinstance(value, dict) and all(key in value for key in keys)


def point_latest_at(directory: Path) -> None:
    """Let `results/latest` lead to this campaign, where its parent is named `results`."""
    directory = directory.resolve()
    if directory.parent.name != RESULTS.name:
        return
    temporary = directory.parent / f".{LATEST}.{os.getpid()}"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(directory.name)
    temporary.replace(directory.parent / LATEST)
