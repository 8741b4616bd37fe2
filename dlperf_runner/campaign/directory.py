"""The directory of a campaign: its plan, and the outcome of every run.

    results/<campaign>/campaign.json        id, created, choice, inventory, number of runs in
                                            plan.json, validity rules
    results/<campaign>/plan.json            the output of `plan --json`
    results/<campaign>/campaign.yml         the campaign file that the choice is from, if any
    results/<campaign>/catalog/             the files of the user's own catalogue that it used
    results/<campaign>/plan.<n>.json        revision n of the plan, from 2 on: more runs, or runs
                                            that are `removed`, and why
    results/<campaign>/runs/<case>/r<k>/    run.json (the run, and its `outcome`), then its logs
    results/<campaign>/manifest.jsonl       SHA-256 of all files (see manifest.py)

These files are the only state. Each is written atomically (a temporary file, then a rename), so an
interrupted campaign can always be read and resumed. The remaining runs are the plan minus those
that ended by themselves, done or failed. A plan and its revisions are never changed; a further
revision is added.
"""

from __future__ import annotations

import hashlib
import re
import socket
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import UserError
from ..core.files import json_text, read_json, stored, write_json, write_link, write_whole
from .lock import exists
from .manifest import FILE, PLAN, append, digest, read, seal, seal_run

if TYPE_CHECKING:
    from ..core.case import Run
    from ..core.node import Node
    from ..plan.campaign_file import CampaignFile
    from ..plan.choice import Choice

RESULTS = Path("results")
LATEST = "latest"
CATALOG = "catalog"
_RUN_KEYS = ("id", "case", "repeat", "log_name")
_OUTCOME_TEXTS = ("status", "message", "reason", "category", "advice")
_REVISION = re.compile(r"plan\.([1-9]\d*)\.json", re.ASCII)

# Why a run ended that did not end by itself (benchmark_job); it remains to be run.
CUT_OFF = ("stopped", "lease", "lock", "busy", "unreachable")
UNREACHABLE = ": unreachable: "  # in a campaign's problems, between a host and its error

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


def kept_by(directories: Iterable[Path]) -> tuple[Path, ...]:
    """The folders in which campaigns keep the entries of the user's catalogue that they used."""
    folders = (directory.resolve() / CATALOG for directory in directories)
    return tuple(dict.fromkeys(folder for folder in folders if folder.is_dir()))


def new_directory(results: Path = RESULTS, now: datetime | None = None) -> Path:
    """An unused directory name for a new campaign: the current UTC time, to the second."""
    stem = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    names = chain([stem], (f"{stem}-{number}" for number in count(2)))
    return next(results / name for name in names if not (results / name).exists())


def create_campaign(
    directory: Path,
    choice: Choice,
    nodes: Sequence[Node],
    runs: Sequence[Run],
    now: datetime | None = None,
    file: CampaignFile | None = None,
) -> dict[str, Any]:
    """Write a new campaign, with every run planned, and a copy of the campaign file that the choice
    is from. Returns the plan document. Raises UserError if the directory already has a campaign or
    a part of one."""
    from ..catalog.reader import files_to_keep
    from ..catalog.validity import catalogued_rules
    from ..plan.make import plan_document

    refuse_taken(directory)
    document = plan_document(choice, nodes, runs)
    written = _write_planned(directory, document["runs"])
    written.append(write_json(directory / "plan.json", document, inside=directory))
    campaign = {
        "schema": document["schema"],
        "id": directory.resolve().name,
        "created": (now or datetime.now(UTC)).isoformat(timespec="seconds"),
        "choice": document["choice"],
        "inventory": document["inventory"],
        "runs": len(runs),
        "manifest": FILE,  # so that its absence shows
        # Stored before the runs, so that nobody can adjust the rules to the results.
        "validity": catalogued_rules().model_dump(mode="json"),
        **(file.record if file else {}),
    }
    if file:
        from ..plan.campaign_file import KEPT

        written.append(write_whole(directory / KEPT, file.content, inside=directory))
    for path, content in files_to_keep({run.workload for run in runs}):
        written.append(write_whole(directory / CATALOG / path, content, inside=directory))
    # Written last, so that a directory with a campaign.json is always a complete campaign.
    last, text = directory / "campaign.json", json_text(campaign)
    digests = {path.relative_to(directory).as_posix(): digest(path) for path in written}
    digests[last.name] = hashlib.sha256(text.encode()).hexdigest()
    append(directory, PLAN, digests)
    write_whole(last, text, inside=directory)
    return document


def refuse_taken(directory: Path) -> None:
    """Raise UserError if the directory already has a campaign or a part of one."""
    held = [name for name in ("campaign.json", "plan.json", "runs") if (directory / name).exists()]
    if held or (directory.exists() and not directory.is_dir()):
        raise UserError(
            "cannot create a campaign here",
            where=str(directory),
            expected="a new directory, or one without a campaign",
            found=", ".join(held) or "a file",
            hint="resume the campaign with --resume" if "campaign.json" in held else None,
        )


def require_existing(path: Path) -> None:
    """Raise UserError if there is nothing at the path of a campaign or of logs."""
    if path.exists():
        return
    if path.is_symlink():
        raise UserError("the link leads nowhere", where=str(path), found=str(path.readlink()))
    if path == RESULTS / LATEST:
        raise UserError(
            f"no campaign has been run below ./{RESULTS}",
            hint="name a directory of logs: dlperf summarize DIR. To run a campaign: dlperf run",
        )
    raise UserError("there is no such file or directory", where=str(path))


def read_campaign(directory: Path) -> dict[str, Any]:
    """Read campaign.json. Raises UserError if the directory is not a campaign."""
    require_existing(directory)
    if not (directory / "campaign.json").is_file():
        raise UserError(
            "not a campaign directory",
            where=str(directory),
            expected="a directory with a campaign.json and a plan.json",
        )
    return read_json(directory / "campaign.json")


def name_of(directory: Path) -> str:
    """The name of a campaign, which a copy keeps; of a tree of logs, that of its directory."""
    is_made = (directory / "campaign.json").is_file()
    recorded = read_campaign(directory).get("id") if is_made else None
    return str(recorded or directory.resolve().name)


def read_plan(directory: Path, *, with_removed: bool = False) -> dict[str, Any]:
    """The plan of the campaign, with the runs of its revisions and without those that a revision
    removes. Raises UserError if a file is invalid, if a revision is missing, or if a run is planned
    twice."""
    read_campaign(directory)
    plan = _read_part(directory / "plan.json")
    runs, removed = list(plan["runs"]), set[str]()
    for path in revisions(directory):
        part = _read_part(path)
        runs += part["runs"]
        removed |= set(part.get("removed") or ())
    counts = Counter(run["id"] for run in runs)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise UserError("a run is planned twice", where=str(directory), found=twice[0])
    return {**plan, "runs": [run for run in runs if with_removed or run["id"] not in removed]}


def revisions(directory: Path) -> list[Path]:
    """The files of the plan's revisions, in order. Raises UserError if one is missing."""
    names = (match for path in directory.iterdir() if (match := _REVISION.fullmatch(path.name)))
    numbers = sorted(int(match[1]) for match in names)
    for expected, number in enumerate(numbers, start=2):
        if number != expected:
            raise UserError(
                "a revision of the plan is missing",
                where=str(directory),
                expected=f"plan.{expected}.json",
                found=f"plan.{number}.json",
            )
    return [directory / f"plan.{number}.json" for number in numbers]


def add_revision(
    directory: Path,
    runs: Sequence[Mapping[str, Any]],
    reasons: Mapping[str, Any],
    removed: Sequence[str] = (),
) -> Path:
    """Add runs to the plan of a campaign, or remove some, in a new file. `reasons` says why, by
    case."""
    number = len(revisions(directory)) + 2
    path = directory / f"plan.{number}.json"
    document = {
        "schema": read_campaign(directory)["schema"],
        "revision": number,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "reasons": reasons,
        "runs": runs,
        **({"removed": list(removed)} if removed else {}),
    }
    # Before the records of the runs: a run without a record is a planned run.
    written = [write_json(path, document), *_write_planned(directory, runs)]
    seal(directory, path.name, written)
    return path


def _write_planned(directory: Path, runs: Sequence[Mapping[str, Any]]) -> list[Path]:
    return [
        write_json(
            run_directory(directory, run) / "run.json",
            {**run, "outcome": PLANNED_OUTCOME},
            inside=directory,
        )
        for run in runs
    ]


def _read_part(path: Path) -> dict[str, Any]:
    part = read_json(path)
    runs = part.get("runs")
    if not isinstance(runs, list) or not all(_is_run(run) for run in runs):
        raise UserError(
            "invalid plan file",
            where=str(path),
            expected=f"a list `runs` whose entries have {', '.join(_RUN_KEYS)}: texts, case and"
            " log_name without a slash, and a number",
        )
    return part


def run_directory(directory: Path, run: Mapping[str, Any]) -> Path:
    """The directory of a run's files. `run` is an entry of the plan. Raises UserError if that names
    a place outside of the campaign."""
    names = (str(run["case"]), f"r{run['repeat']}")
    for name in names:
        if not is_name(name):
            raise UserError(
                "invalid plan: a run's case and repeat name its directory",
                where=str(directory),
                expected="names without slashes",
                found="/".join(names),
            )
    return directory.joinpath("runs", *names)


def read_record(directory: Path, run: Mapping[str, Any]) -> dict[str, Any]:
    """Read a run's run.json. If it does not exist yet, return the run as planned. Raises UserError
    if it is of another run, or if its outcome is invalid."""
    path = run_directory(directory, run) / "run.json"
    if not path.exists():
        return {**run, "outcome": PLANNED_OUTCOME}
    record = read_json(path)
    if other := [key for key in _RUN_KEYS if record.get(key) != run[key]]:
        raise UserError(
            f"the record has another `{other[0]}` than the plan",
            where=str(path),
            expected=run[other[0]],
            found=record.get(other[0]),
        )
    outcome = record.get("outcome")
    if not isinstance(outcome, dict) or not all(
        isinstance(outcome.get(key) or "", str) for key in _OUTCOME_TEXTS
    ):
        raise UserError(
            "invalid outcome of a run",
            where=str(path),
            expected=f"an object `outcome`, in which {', '.join(_OUTCOME_TEXTS)} are texts",
        )
    return record


def read_records(directory: Path) -> list[dict[str, Any]]:
    """All runs of the plan with their outcomes, in plan order."""
    return [read_record(directory, run) for run in read_plan(directory)["runs"]]


def is_done(directory: Path, run: Mapping[str, Any]) -> bool:
    """Return whether the run succeeded and its log exists."""
    status = read_record(directory, run)["outcome"].get("status")
    return status == "done" and stored(run_directory(directory, run) / run["log_name"]).is_file()


def is_failed(record: Mapping[str, Any]) -> bool:
    """Return whether the run failed by itself. It is run again only on request."""
    outcome = record["outcome"]
    return outcome.get("status") == "failed" and outcome.get("reason") not in CUT_OFF


def retry(directory: Path, record: Mapping[str, Any]) -> None:
    """Plan a failed run again. Its earlier outcomes stay in its record, as `earlier`."""
    planned = {**PLANNED_OUTCOME, "earlier": earlier_attempts(record["outcome"])}
    path = run_directory(directory, record) / "run.json"
    seal(directory, f"runs/{record['id']}", [write_json(path, {**record, "outcome": planned})])


def earlier_attempts(outcome: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parts of an outcome and of those before it that remain when the run is started again."""
    names = ("status", "started", "ended", "message", "reason", "category")
    before = {name: outcome[name] for name in names if name in outcome}
    return [*outcome.get("earlier", ()), before]


def point_latest_at(campaign: Path) -> None:
    """Make `results/latest` a link to a campaign with a finished run, as bench.yml does."""
    link = campaign.parent / LATEST
    if campaign.parent.name != RESULTS.name or (link.exists() and link.samefile(campaign)):
        return
    write_link(link, campaign.name)


def is_cut_off(outcome: Mapping[str, Any]) -> bool:
    """Return whether a run is recorded as running, but its controller process no longer exists,
    which only the controller's host can detect."""
    controller = outcome.get("controller")
    if outcome.get("status") != "running" or not isinstance(controller, dict):
        return False
    if controller.get("host") != socket.gethostname() or not isinstance(controller.get("pid"), int):
        return False
    return not exists(controller["pid"])


def remaining_plan(directory: Path) -> dict[str, Any]:
    """The campaign's plan with only the runs that have not ended by themselves."""
    plan = read_plan(directory)
    runs = (run for run in plan["runs"] if not is_done(directory, run))
    return {**plan, "runs": [r for r in runs if not is_failed(read_record(directory, r))]}


def missing_runs(directory: Path) -> list[dict[str, Any]]:
    """The runs of the plan that are not done."""
    return [run for run in read_plan(directory)["runs"] if not is_done(directory, run)]


def unrecorded_runs(directory: Path) -> list[str]:
    """The IDs of the done runs that the manifest lacks: their controller was killed or its disk was
    full. Empty if the campaign has no manifest."""
    if (manifest := read(directory)) is None:
        return []
    recorded = {sealed.subject for sealed in manifest.files.values()}
    done = (run["id"] for run in read_plan(directory)["runs"] if is_done(directory, run))
    return [name for name in done if f"runs/{name}" not in recorded]


def record_rest(directory: Path) -> None:
    """Add to the manifest the done runs that it lacks."""
    for name in unrecorded_runs(directory):
        seal_run(directory, name)


def _is_run(value: object) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("repeat"), int)
        and all(isinstance(value.get(key), str) for key in ("id", "case", "log_name"))
        and all(is_name(value[key]) for key in ("case", "log_name"))
    )


def is_name(text: str) -> bool:
    """True if a text is the name of a file or directory, and not a path."""
    return text not in ("", ".", "..") and "/" not in text and "\0" not in text
