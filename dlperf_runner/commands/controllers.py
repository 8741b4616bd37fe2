"""Starts, follows and stops the controller of a campaign, and says how far it is."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ..campaign import directory as campaigns
from ..campaign import job_files, lock
from ..core.errors import UserError

LOG = ".controller.log"
START_S = 20


def detach(directory: Path, options: Sequence[str]) -> int:
    """Start a controller of a campaign that no terminal controls. Returns its process ID.

    Its output goes to a file in the campaign. Raises UserError with the end of it if the controller
    does not start.
    """
    with lock.held(directory):
        pass  # another controller is refused here, and not in a file
    argv = [sys.executable, "-m", "dlperf_runner", "run", "--resume", str(directory), *options]
    with (directory / LOG).open("ab") as log:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and not lock.owner_alive(directory):
        if process.poll() is not None and process.returncode:
            end = (directory / LOG).read_text(errors="replace").strip().splitlines()[-3:]
            raise UserError("the controller ended", where=str(directory / LOG), found=" ".join(end))
        if process.returncode == 0:
            break
        time.sleep(0.1)
    return process.pid


def stop(directory: Path, *, now: bool) -> str:
    """Ask the controller of a campaign to stop, as Ctrl-C does: after the current run, or now."""
    campaigns.read_campaign(directory)
    owner = lock.owner_alive(directory)
    if owner is None:
        return "no controller works on this campaign"
    if owner["host"] != socket.gethostname():
        raise UserError(
            "the controller runs on another machine",
            where=str(directory),
            expected=f"this command on {owner['host']}",
            found=socket.gethostname(),
        )
    os.kill(owner["process"]["pid"], signal.SIGTERM if now else signal.SIGINT)
    when = "stops the current run" if now else "stops after the current run"
    return f"process {owner['process']['pid']} {when}; dlperf status --watch follows it"


def status_of(directory: Path) -> dict[str, Any]:
    """The runs of a campaign with their status, how many of them are done, and its controller."""
    runs = []
    if job_files.recorded(directory):
        job_files.refresh(directory)
    for record in campaigns.read_records(directory):
        outcome = record["outcome"]
        if campaigns.is_cut_off(outcome):
            outcome = {"status": "cut off", "message": "its controller ended"}
        done = campaigns.is_done(directory, record)
        names = ("status", "message", "category", "advice", "elapsed_s")
        told = {name: outcome.get(name) for name in names}
        runs.append({"id": record["id"], "done": done, **told})
    return {
        "runs": runs,
        "done": sum(run["done"] for run in runs),
        "total": len(runs),
        "controller": lock.owner_alive(directory),
    }


def time_left(directory: Path) -> float | None:
    """The expected seconds until the remaining runs have ended. None if no run has ended yet.

    Runs of a case that has none are taken to be as long as the mean of all.
    """
    lengths: dict[str, list[float]] = {}
    for record in campaigns.read_records(directory):
        elapsed = record["outcome"].get("elapsed_s")
        if campaigns.is_done(directory, record) and isinstance(elapsed, int | float):
            lengths.setdefault(record["case"], []).append(elapsed)
    if not lengths:
        return None
    usual = fmean(length for of_case in lengths.values() for length in of_case)
    left = campaigns.remaining_plan(directory)["runs"]
    return sum(fmean(lengths.get(run["case"], [usual])) for run in left)


def watched(directory: Path, every_s: float = 2.0) -> Iterator[dict[str, Any]]:
    """The status of a campaign, again and again until its controller has ended: with the running
    run, the rates that it has printed meanwhile, and the seconds that are left."""
    from ..campaign.execute import current_rate, outcomes

    rates: list[float] = []
    before = None
    while True:
        document = status_of(directory)
        own = outcomes(directory)
        running = next((r["id"] for r in document["runs"] if r["status"] == "running"), None)
        rates = rates if running == before else []
        before = running
        rate = None
        if running:
            rate = current_rate(directory / "runs" / running, own[running]["log_format"])
        rates += [rate] if rate is not None and rate not in rates[-1:] else []
        left = time_left(directory)
        yield {**document, "running": running, "rates": list(rates), "left_s": left}
        if document["controller"] is None:
            return
        time.sleep(every_s)
