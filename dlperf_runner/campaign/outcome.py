"""The outcome of a run, from the results of its launches, by SSH or in a scheduler's job; and the
category and the advice that the record of a failed run has."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..core.files import is_regular, open_read, read_json, remove, write_json
from .directory import PLANNED_OUTCOME, point_latest_at, read_record, run_directory
from .manifest import run_directory as existing_run
from .manifest import seal_run

HEAD, TAIL = 1 << 20, 3 << 20  # bytes of each file; the first and the last errors tell the cause
SHOWN = 200  # characters of a line
# By the supervisor's reason.
STOPPED = {
    "timeout": "stopped after its time limit of {timeout_s} s",
    "lease": "stopped because the controller no longer polled it",
    "stopped": "stopped together with its campaign",
    "lock": "stopped because its campaign no longer holds one of its nodes",
    "busy": "not started because of others. {busy}",
    "hung": "stopped because it hung: no new line for {silent_s:.0f} s, {sign}; hang-*.txt has the"
    " state of its processes",
    "hung_at_start": "stopped because it hung before its first steps: no new line for"
    " {silent_s:.0f} s, {sign}; hang-*.txt has the state of its processes",
    "peer": "stopped because another node's part of the run had failed",
}


UNCHECKED = ": cannot be checked"  # module_utils/run_agent/states.py


def why_failed(host: str, job: Mapping[str, Any], timeout_s: int) -> str | None:
    """The reason why this host's launch did not succeed; None if it did."""
    if job.get("unreachable") or "exit_status" not in job:
        stderr = str(job.get("module_stderr") or "").strip()
        message = job.get("msg") or "the launch returned no exit status"
        return f"{host}: {message}" + (f" ({stderr.splitlines()[-1]})" if stderr else "")
    if job.get("reason"):
        values = {"timeout_s": timeout_s, **job, "busy": "; ".join(job.get("busy") or ())}
        return f"{host}: " + STOPPED[job["reason"]].format(**values)
    if job["exit_status"] != 0:
        lines = re.findall(r".*\w.*", job.get("tail", ""))  # mpirun's last one is a row of dashes
        last = lines[-1].strip()[:200] if lines else "nothing"
        return f"{host}: exit status {job['exit_status']}; the log ends with: {last}"
    return None


def _reasons(host: str, job: Mapping[str, Any], timeout_s: int) -> Iterator[str]:
    """Reasons of a failed launch on a host, its files that were not fetched, and what it left."""
    if why := why_failed(host, job, timeout_s):
        yield why
    if refused := job.get("refused"):
        yield f"{host}: {'; '.join(refused)}"
    if left := job.get("left"):
        yield f"left behind: {'; '.join(left)}"


def outcome_of(
    jobs: Mapping[str, Mapping[str, Any]], hosts: Sequence[str], timeout_s: int
) -> dict[str, Any]:
    """The run is done if every launch succeeded and its files were fetched. Times come from the
    first host's clock."""
    first = jobs[hosts[0]]
    reasons = [reason for host in hosts for reason in _reasons(host, jobs[host], timeout_s)]
    # A launch that was stopped because of another one does not say why the run failed.
    stopped = [
        job["reason"] for job in jobs.values() if job.get("reason", "peer") not in ("", "peer")
    ]
    # mpirun's other nodes answer to no launch of their own, but to the supervisor of the first.
    silent = [
        line.partition(":")[0]
        for job in jobs.values()
        for line in job.get("left", ())
        if UNCHECKED in line
    ]
    # A node that was restarted meanwhile does answer.
    gone = [host for host in hosts if jobs[host].get("unreachable") or jobs[host].get("lost")]
    lost = gone + silent
    ended = [job for job in jobs.values() if "exit_status" in job]
    outcome: dict[str, Any] = {
        "status": "failed" if reasons else "done",
        "exit_status": next((j["exit_status"] for j in ended if j["exit_status"]), 0)
        if len(ended) == len(hosts)
        else None,
        "message": "; ".join(reasons) or None,
    }
    if lost:
        outcome |= {"reason": "unreachable", "lost": lost}
    elif stopped:
        outcome["reason"] = stopped[0]
    if "ended" in first:
        outcome["started"] = datetime.fromtimestamp(first["started"], UTC).isoformat()
        outcome["ended"] = datetime.fromtimestamp(first["ended"], UTC).isoformat()
        outcome["elapsed_s"] = round(first["ended"] - first["started"], 3)
    # Each launch samples different hosts.
    for key in ("gpu_memory_mib", "unsampled_from_s"):
        of_hosts = {h: v for job in jobs.values() for h, v in (job.get(key) or {}).items()}
        if of_hosts:
            outcome[key] = of_hosts
    others = [process for job in jobs.values() for process in job.get("beside") or ()]
    if others:
        outcome["beside"] = others
    if "log_sha256" in first:
        outcome["log_sha256"] = first["log_sha256"]
    return outcome


def record_start(
    campaign: Path, run: Mapping[str, Any], hosts: Mapping[str, Any], versions: Mapping[str, Any]
) -> None:
    """Record that a playbook, which started this process, launches a run."""
    earlier = read_record(campaign, run)["outcome"].get("earlier")
    outcome = {
        **PLANNED_OUTCOME,
        **({"earlier": earlier} if earlier else {}),
        "status": "running",
        "hosts": dict(hosts),
        "versions": dict(versions),
        "started": datetime.now(UTC).isoformat(),
        # From this, `status` recognises an interrupted run.
        "controller": {"host": socket.gethostname(), "pid": os.getppid()},
    }
    remove(run_directory(campaign, run) / ".failed")  # see benchmark_launch
    write_outcome(campaign, run, outcome)


def record_end(
    campaign: Path, run: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]]
) -> None:
    """Record the outcome of a run from the results of its launches, by host."""
    before = dict(read_record(campaign, run)["outcome"])
    before.pop("controller", None)
    launchers = [command["host"] for command in run["commands"]]
    end_run(campaign, run, before | outcome_of(results, launchers, run["timeout_s"]))


def write_outcome(campaign: Path, run: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
    path = run_directory(campaign, run) / "run.json"
    write_json(path, {**run, "outcome": outcome}, inside=campaign)


def end_run(
    campaign: Path, run: Mapping[str, Any], outcome: Mapping[str, Any], *, explains: bool = True
) -> None:
    """Write the outcome of a run that has ended, and why it failed; record its files in the
    campaign's manifest."""
    write_outcome(campaign, run, outcome)
    if outcome["status"] == "done":
        point_latest_at(campaign)
    if (campaign / "campaign.json").is_file():
        if explains:
            explain(campaign, str(run["id"]))
        seal_run(campaign, str(run["id"]))


def explain(campaign: Path, run: str) -> None:
    """Add the category and the advice to the record of a run, if it failed. Raises UserError if the
    campaign has no such run."""
    path = existing_run(campaign, run) / "run.json"
    record = read_json(path)
    outcome = record.get("outcome")
    if not isinstance(outcome, dict) or outcome.get("status") != "failed":
        return
    from ..catalog.validity import cause_of

    message = str(outcome.get("message") or "")
    texts = list(_texts(path.parent, record))
    cause, line = cause_of(str(outcome.get("reason") or ""), message, texts)
    # A scheduler has chosen the nodes after the plan was made.
    hosts = list(outcome.get("hosts") or record.get("hosts") or ())
    advice = cause.advice_for({**record, "hosts": hosts})
    if (line := line[:SHOWN]) and line not in message:
        advice += f". In the log: {line}"
    outcome |= {"category": cause.category, "advice": advice}
    write_json(path, record)


def _texts(directory: Path, record: Mapping[str, Any]) -> Iterator[str]:
    """The logs of all nodes, and the kernel's messages about their GPUs."""
    log = str(record.get("log_name"))
    for path in sorted(directory.iterdir()):
        if path.name.startswith((log, "xid-")) and is_regular(path):
            with open_read(path) as file:
                size = os.fstat(file.fileno()).st_size
                content = file.read(HEAD)
                file.seek(max(HEAD, size - TAIL))
                yield (content + file.read()).decode(errors="replace")
