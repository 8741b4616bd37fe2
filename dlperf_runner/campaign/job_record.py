"""A job of a campaign, and the outcomes of its runs in the form of bench.yml."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ..core.errors import UserError
from ..core.files import is_regular, open_read, read_json, write_json
from .directory import (
    PLANNED_OUTCOME,
    earlier_attempts,
    read_record,
    run_directory,
)
from .outcome import end_run, outcome_of, write_outcome

TAIL_BYTES = 4096
OUT_OF_MEMORY = "out_of_memory"
# Runs that the end of their job cut off, by its category; they remain to be run (CUT_OFF).
CUT_OFF_BY = {
    **dict.fromkeys(("cancelled", "preempted", "revoked", "time_limit"), "stopped"),
    **dict.fromkeys(("node_lost", "unknown"), "unreachable"),
}


@dataclass
class Job:
    """A job of the campaign. `id` is empty until the scheduler has it."""

    directory: Path
    name: str
    runs: list[str]
    id: str = ""
    submitted: float = 0.0
    ended: str | None = None
    # Whether its script is a process of the runner's machine, in an allocation of the user.
    in_given_allocation: bool = False
    host: str = ""  # that machine
    lag: int = field(default=0, compare=False)
    told: str = field(default="", compare=False)
    why: str = field(default="", compare=False)  # why this runner cancelled it
    waits_since: float = field(default=0.0, compare=False)

    @property
    def stop(self) -> Path:
        """If this file exists, no further run of the job starts."""
        return self.directory / "stop"

    def write(self) -> None:
        keys = ("name", "runs", "id", "submitted", "ended", "in_given_allocation", "host")
        write_json(self.directory / "job.json", {key: getattr(self, key) for key in keys})


def written_by_job(job: Job, number: int) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """What the job wrote when its run began and ended."""
    started, ended = (job.directory / f"{what}.{number}.json" for what in ("started", "ended"))
    return (
        read_json(started) if started.is_file() else None,
        read_json(ended) if ended.is_file() else None,
    )


def record_outcome(
    directory: Path,
    run: Mapping[str, Any],
    job: Job,
    started: Mapping[str, Any],
    ended: Mapping[str, Any] | None,
    lost: str | None = None,
    category: str = "",
) -> None:
    """Write the outcome of a run into its run.json, in the form of bench.yml, unless it is there.

    `lost`: why the job ended it, with the category.
    """
    document = read_record(directory, run)
    before = document["outcome"]
    is_known = before.get("job") == started["job"] and before["started"] == started["started"]
    is_new = ended or lost if before["status"] == "running" else lost and before["message"] != lost
    if is_known and not is_new:
        return
    nodes = started["nodes"]
    hosts, versions = _facts(job, nodes, str(run["environment"]))
    outcome = {**PLANNED_OUTCOME, "status": "running", "job": started["job"]}
    outcome |= {"started": started["started"], "hosts": hosts, "versions": versions}
    outcome |= {"mpi": started["mpi"]} if "mpi" in started else {}
    if earlier := _earlier(job, str(run["id"]), before, started):
        outcome["earlier"] = earlier
    log = run_directory(directory, run) / str(run["log_name"])
    if ended:
        times = {key: _seconds(told[key]) for key, told in (("started", started), ("ended", ended))}
        result = {"reason": "", **ended, **times, "tail": _end_of(log)}
        outcome |= outcome_of({nodes[0]: result}, nodes[:1], int(run["timeout_s"]))
        outcome |= {"started": started["started"], "ended": ended["ended"]}
        if starts := ended.get("requeued"):
            message = f"job {started['job']} was requeued {starts} times"
            outcome |= {"message": message, "reason": "stopped"}
    if lost:
        outcome |= {"status": "failed", "message": lost, "category": category}
        outcome["reason"] = CUT_OFF_BY.get(category, "")
        outcome |= {"lost": nodes} if category == "node_lost" else {}
    if outcome["status"] != "running" and is_regular(log):
        with open_read(log) as file:
            outcome["log_sha256"] = hashlib.file_digest(file, "sha256").hexdigest()
    if outcome["status"] == "running":
        write_outcome(directory, run, outcome)
    else:
        explains = not lost or category == OUT_OF_MEMORY
        end_run(directory, run, outcome, explains=explains)


def _earlier(
    job: Job, run: str, before: Mapping[str, Any], started: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The attempts before this start: of earlier jobs, and of this one before it was requeued."""
    is_other = before["status"] in ("done", "failed") and before["started"] != started["started"]
    told = earlier_attempts(before) if is_other else list(before.get("earlier", ()))
    number = job.runs.index(run) + 1
    cuts = [read_json(path)["started"] for path in job.directory.glob(f"cut_off.{number}.*.json")]
    told = [attempt for attempt in told if attempt["started"] not in cuts]
    for cut in cuts:
        message = f"job {started['job']} was requeued"
        told.append({"status": "failed", "started": cut, "ended": None, "message": message})
        told[-1] |= {"reason": "stopped", "category": "requeued"}
    return sorted(told, key=lambda attempt: str(attempt["started"]))


def _facts(
    job: Job, nodes: Sequence[str], environment: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The facts of the run's nodes by name, and the versions of its software on the first one."""
    found: dict[str, dict[str, Any]] = {}
    for node in nodes:
        path = job.directory / f"facts.{node}.json"
        found[node] = read_json(path) if path.is_file() else {}
    versions = found[nodes[0]].get("versions", {}).get(environment, {})
    return {node: own.get("host", {}) for node, own in found.items()}, versions


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _end_of(log: Path) -> str:
    with suppress(OSError, UserError), open_read(log) as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        return file.read().decode(errors="replace")
    return ""
