"""Starts, follows and stops the controller of a campaign, and says how far it is."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..campaign import directory as campaigns
from ..campaign import job_files, lock
from ..campaign.manifest import CONTROLLER_LOG
from ..core.errors import UserError
from ..core.files import open_append, read_text

INVALID = "invalid"
START_S = 20


def detach(directory: Path, options: Sequence[str]) -> int:
    """Start a controller of a campaign that no terminal controls. Returns its process ID.

    Its output goes to a file in the campaign. Raises UserError with the end of it if the controller
    does not start.
    """
    with lock.held(directory):
        pass  # another controller is refused here, and not in a file
    argv = [sys.executable, "-m", "dlperf_runner", "run", "--resume", str(directory), *options]
    printed = directory / CONTROLLER_LOG
    with open_append(printed, inside=directory) as log:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and not lock.owner_alive(directory):
        if process.poll() is not None and process.returncode:
            end = read_text(printed, errors="replace").strip().splitlines()[-3:]
            raise UserError("the controller ended", where=str(printed), found=" ".join(end))
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


class Verdicts:
    """Why done runs are invalid. The logs are read again only when more runs are done."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.judged: frozenset[str] = frozenset()
        self.reasons: dict[str, str] = {}  # by run

    def of(self, done: frozenset[str]) -> Mapping[str, str]:
        if done != self.judged:
            self.judged, self.reasons = done, self._read() if done else {}
        return self.reasons

    def _read(self) -> dict[str, str]:
        from ..results.load import load_results

        with suppress(UserError):  # summarize reports it
            invalid = load_results(self.directory).invalid
            return {"/".join(path.parent.parts[-2:]): why for path, why in invalid.items()}
        return {}


def status_of(directory: Path, verdicts: Verdicts | None = None) -> dict[str, Any]:
    """The runs of a campaign with their status, how many of them are done, how many of these are
    invalid, which of them the manifest lacks, and its controller."""
    runs = []
    owner = lock.owner_alive(directory)
    if job_files.read_settings(directory) and (owner or {}).get("host") != socket.gethostname():
        with suppress(OSError):  # others may read the campaign, and not write to it
            job_files.refresh(directory)
    records = campaigns.read_records(directory)
    done = frozenset(record["id"] for record in records if campaigns.is_done(directory, record))
    invalid = (verdicts or Verdicts(directory)).of(done)
    for record in records:
        outcome = record["outcome"]
        if campaigns.is_cut_off(outcome):
            outcome = {"status": "cut off", "message": "its controller ended"}
        elif record["id"] in invalid:
            outcome = {
                **outcome,
                "status": INVALID,
                "message": invalid[record["id"]].splitlines()[0],
            }
        names = ("status", "message", "category", "advice", "elapsed_s")
        told = {name: outcome.get(name) for name in names}
        runs.append({"id": record["id"], "done": record["id"] in done, **told})
    return {
        "runs": runs,
        "done": len(done),
        "invalid": len(invalid),
        "total": len(runs),
        "unrecorded": campaigns.unrecorded_runs(directory),
        "controller": lock.owner_alive(directory),
    }
