"""A job of a campaign, and the outcomes of its runs in the form of bench.yml."""

from __future__ import annotations

import hashlib
import re
import signal
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
    point_latest_at,
    read_record,
    run_directory,
)
from .failures import explain
from .manifest import seal_run

TAIL_BYTES = 4096
OUT_OF_MEMORY = "out_of_memory"
# As in a campaign by SSH, by the reason.
HUNG = {
    "hung": "stopped because it hung: no new line for {silent_s:.0f} s, {sign}; hang-*.txt has the"
    " state of its processes",
    "hung_at_start": "stopped because it hung before its first steps: no new line for"
    " {silent_s:.0f} s, {sign}; hang-*.txt has the state of its processes",
}
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
        elapsed = _seconds(started["started"], ended["ended"])
        status = int(ended["exit_status"])
        message = _message(nodes[0], status, elapsed, int(run["timeout_s"]), log)
        if busy := ended.get("busy"):
            message = f"{nodes[0]}: not started because of others. {'; '.join(busy)}"
            outcome["reason"] = "busy"
        elif starts := ended.get("requeued"):
            message = f"job {started['job']} was requeued {starts} times"
            outcome["reason"] = "stopped"
        elif hung := ended.get("hung"):
            # Jobs of earlier versions had only this reason, and told the rhythm as a number.
            reason = outcome["reason"] = hung.get("reason", "hung")
            sign = hung.get("sign") or f"before that one every {hung['median_s']:.1f} s"
            message = f"{nodes[0]}: {HUNG[reason].format(silent_s=hung['silent_s'], sign=sign)}"
        outcome |= {"exit_status": status, "ended": ended["ended"], "elapsed_s": round(elapsed, 3)}
        outcome |= {"status": "failed" if message else "done", "message": message}
        outcome |= _watched(ended)
    if lost:
        outcome |= {"status": "failed", "message": lost, "category": category}
        outcome["reason"] = CUT_OFF_BY.get(category, "")
        outcome |= {"lost": nodes} if category == "node_lost" else {}
    if outcome["status"] != "running" and is_regular(log):
        with open_read(log) as file:
            outcome["log_sha256"] = hashlib.file_digest(file, "sha256").hexdigest()
    write_json(run_directory(directory, run) / "run.json", {**run, "outcome": outcome})
    if outcome["status"] == "running":
        return
    if outcome["status"] == "done":
        point_latest_at(directory)
    if not lost or category == OUT_OF_MEMORY:
        explain(directory, str(run["id"]))
    seal_run(directory, str(run["id"]))


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


def _watched(ended: Mapping[str, Any]) -> dict[str, Any]:
    """What was seen on the run's nodes, in the form of bench.yml."""
    found = ended.get("nodes") or []
    beside = [process for node in found for process in node.get("beside", ())]
    seen: dict[str, Any] = {"beside": beside}
    for key in ("gpu_memory_mib", "unsampled_from_s"):
        seen[key] = {host: value for node in found for host, value in node.get(key, {}).items()}
    return {key: value for key, value in seen.items() if value}


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


def _seconds(started: str, ended: str) -> float:
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(started)).total_seconds()


def _message(node: str, status: int, elapsed: float, timeout_s: int, log: Path) -> str | None:
    """Why a run failed; None if it did not."""
    if status == 0:
        return None
    if elapsed >= timeout_s and status in (124, 128 + signal.SIGKILL):
        return f"{node}: stopped after its time limit of {timeout_s} s"
    lines: list[str] = []
    with suppress(OSError, UserError), open_read(log) as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        lines = re.findall(r".*\w.*", file.read().decode(errors="replace"))  # no row of dashes
    last = lines[-1].strip()[:200] if lines else "nothing"
    return f"{node}: exit status {status}; the log ends with: {last}"
