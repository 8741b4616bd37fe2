"""Starts, follows and stops the controller of a campaign, and says how far it is."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

from ..campaign import directory as campaigns
from ..campaign import job_files, lock
from ..campaign.execute import current_rate, handling_signals, since_start, time_left
from ..campaign.manifest import CONTROLLER_LOG
from ..catalog.reader import format_named, printed_unit
from ..core.errors import Stopped, UserError
from ..core.files import open_append, open_stored, read_text
from ..logs import parse_tail

INVALID = "invalid"
START_S = 120


def detach(directory: Path, options: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a controller of a campaign that no terminal controls. Returns its process, whose output
    goes to a file in the campaign. Raises UserError with the end of it if the controller does not
    start."""
    with lock.held(directory):
        pass  # another controller is refused here, and not in a file
    resume = ["run", "--resume", str(directory), *options]
    argv = ["nohup", sys.executable, "-m", "dlperf_runner", *resume]  # a HUP before it handles it
    printed = directory / CONTROLLER_LOG
    with open_append(printed, inside=directory) as log:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and not lock.owner_alive(directory):
        if process.poll() is not None and process.returncode:
            raise UserError("the controller ended", where=str(printed), found=_end(printed))
        if process.returncode == 0:
            break
        time.sleep(0.1)
    return process


def run_at_once(directories: Iterable[Path], options: Sequence[str]) -> list[str]:
    """Run campaigns that share no node at the same time, each by a controller of its own. Returns
    what went wrong. INT and TERM stop all of them, as `stop` does, and then raise Stopped."""
    problems: list[str] = []
    running: dict[Path, subprocess.Popen[bytes]] = {}
    received: list[int] = []

    def stop_these(started: Iterable[Path]) -> None:
        for directory in started:
            stop(directory, now=signal.SIGTERM in received or len(received) > 1)

    def on_signal(number: int, _: object) -> None:
        received.append(number)
        stop_these(running)

    with handling_signals(on_signal, (signal.SIGINT, signal.SIGTERM)):
        for directory in directories:
            if received:
                break
            try:
                process = detach(directory, options)
                stop_these([directory] if received else [])  # by a signal in the meantime
                running[directory] = process
            except UserError as error:
                problems.append(str(error))
        for directory, process in running.items():
            if process.wait():
                problems.append(f"{directory}: {_end(directory / CONTROLLER_LOG)}")
    if received:
        raise Stopped(received[-1], "the same command goes on")
    return problems


def _end(log: Path) -> str:
    return " ".join(read_text(log, errors="replace").strip().splitlines()[-3:])


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
    """The reasons why done runs are invalid. The logs are read again only when more runs are
    done."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.judged: frozenset[str] = frozenset()
        self.reasons: dict[str, str] = {}  # by run

    def reasons_for(self, done: frozenset[str]) -> Mapping[str, str]:
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
    invalid = (verdicts or Verdicts(directory)).reasons_for(done)
    for record in records:
        outcome = record["outcome"]
        if campaigns.is_cut_off(outcome):
            outcome = {"status": "cut off", "message": "its controller ended"}
        elif why := invalid.get(record["id"]):
            outcome = {**outcome, "status": INVALID, "message": why.splitlines()[0]}
        names = ("status", "message", "category", "advice", "elapsed_s")
        details = {name: outcome.get(name) for name in names}
        runs.append({"id": record["id"], "done": record["id"] in done, **details})
    return {
        "runs": runs,
        "done": len(done),
        "invalid": len(invalid),
        "total": len(runs),
        "unrecorded": campaigns.unrecorded_runs(directory),
        "controller": lock.owner_alive(directory),
    }


# ---- what becomes of a campaign while it runs


EVERY_S = 2.0
_TAIL, _PIECE = 4096, 1 << 20
_UNREADABLE = (OSError, EOFError, zlib.error)
_POINTS = 2000  # of a run's rates; then every second one is kept
_ENDED = ("done", "failed", INVALID)
# Of the samples of a device: how they become one number.
_TELEMETRY: Mapping[str, Callable[[Sequence[float]], float]] = {
    "utilization_percent": fmean,
    "power_w": fmean,
    "temperature_c": max,
    "memory_used_mib": max,
}


class CampaignWatch:
    """The page of a campaign. Rates of running runs are read at each poll, because their files
    have only the last lines of a log."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.record = campaigns.read_campaign(directory)
        self.rates: dict[str, list[tuple[float, float]]] = {}
        self.last: dict[str, float | None] = {}  # of ended runs
        self.devices: dict[tuple[str, str], list[dict[str, Any]]] = {}  # by run and its end
        self.verdicts = Verdicts(directory)

    def poll(self, now: float) -> dict[str, Any]:
        """The state by the files at this time in seconds."""
        records = campaigns.read_records(self.directory)
        status = status_of(self.directory, self.verdicts)
        states = {run["id"]: run for run in status["runs"]}
        for record in records:
            if states[record["id"]]["status"] == "running":
                self._add_rate(record, now)
        runs = [self._run(record, states[record["id"]], now) for record in records]
        elapsed = {run["id"]: run["elapsed_s"] or 0 for run in runs}
        latest = next(reversed(self.rates), None)
        unit = next((run["unit"] for run in runs if run["id"] == latest), "")
        return {
            "campaign": campaigns.name_of(self.directory),
            "notes": self.record.get("notes"),
            "done": status["done"],
            "invalid": status["invalid"],
            "unrecorded": status["unrecorded"],
            "controller": status["controller"],
            "ended": sum(run["status"] in _ENDED for run in runs),
            "total": len(runs),
            "left_s": time_left(records, elapsed),
            "runs": runs,
            "series": {"run": latest, "unit": unit, "points": self.rates.get(latest or "", [])},
            "telemetry": self._telemetry(records, states),
        }

    def _add_rate(self, record: Mapping[str, Any], now: float) -> None:
        place = campaigns.run_directory(self.directory, record)
        rate = current_rate(place, record["log_format"])
        points = self.rates.setdefault(record["id"], [])
        if rate is not None and math.isfinite(rate):
            points.append((now, rate))
        if len(points) > _POINTS:
            del points[1::2]

    def _run(
        self, record: Mapping[str, Any], state: Mapping[str, Any], now: float
    ) -> dict[str, Any]:
        run, outcome = record["id"], record["outcome"]
        points = self.rates.get(run)
        if state["status"] in _ENDED:
            rate = self._last_rate(record)
        else:
            rate = points[-1][1] if points else None
        elapsed = outcome.get("elapsed_s")
        if state["status"] == "running":
            elapsed = since_start(campaigns.run_directory(self.directory, record), now)
        unit = printed_unit(record["workload"]) if rate is not None else ""
        return {**state, "rate": rate, "unit": unit, "elapsed_s": elapsed}

    def _last_rate(self, record: Mapping[str, Any]) -> float | None:
        """The last rate in the log of an ended run. It is read once."""
        run = record["id"]
        if run not in self.last:
            path = campaigns.run_directory(self.directory, record) / record["log_name"]
            self.last[run] = None
            with suppress(*_UNREADABLE), open_stored(path) as file:
                tail = b""
                while piece := file.read(_PIECE):
                    tail = (tail + piece)[-_TAIL:]
                form = format_named(record["log_format"])
                self.last[run] = parse_tail(form, tail.decode(errors="replace"))
        return self.last[run]

    def _telemetry(
        self, records: Sequence[Mapping[str, Any]], states: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        """The devices of the running run, or else of the run that ended last."""
        for record in records:
            if states[record["id"]]["status"] == "running":
                devices = _present(campaigns.run_directory(self.directory, record))
                if devices:
                    return {"run": record["id"], "is_running": True, "devices": devices}
        ended = [record for record in records if record["outcome"].get("ended")]
        for record in sorted(ended, key=lambda r: str(r["outcome"]["ended"]), reverse=True):
            place = campaigns.run_directory(self.directory, record)
            key = (record["id"], str(record["outcome"]["ended"]))
            if key not in self.devices:
                self.devices[key] = _devices(place)
            if self.devices[key]:
                return {"run": record["id"], "is_running": False, "devices": self.devices[key]}
        return {"run": None, "is_running": False, "devices": []}


def _present(place: Path) -> list[dict[str, Any]]:
    with suppress(OSError, ValueError):
        devices = json.loads(read_text(place / "progress.json")).get("devices")
        return [dict(device) for device in devices or ()]
    return []


def _devices(place: Path) -> list[dict[str, Any]]:
    from ..results.run_log import finite_number, sampler_rows

    devices: list[dict[str, Any]] = []
    names = {path.name.removesuffix(".gz") for path in place.glob("telemetry-*.csv*")}
    for name in sorted(names):
        node = name.removeprefix("telemetry-").removesuffix(".csv")
        samples: dict[int, dict[str, list[float]]] = {}
        for row in sampler_rows(place / name):
            device = finite_number(row.get("device"))
            if device is None:
                continue
            columns = samples.setdefault(int(device), {name: [] for name in _TELEMETRY})
            for column, values in columns.items():
                if (value := finite_number(row.get(column))) is not None:
                    values.append(value)
        devices += [
            {"node": node, "device": device}
            | {name: _TELEMETRY[name](v) if v else None for name, v in columns.items()}
            for device, columns in sorted(samples.items())
        ]
    return devices


def poll_campaign(directory: Path) -> Iterator[dict[str, Any]]:
    """The shown state of a campaign, again and again until its controller has ended."""
    watch = CampaignWatch(directory)
    while True:
        document = watch.poll(time.time())
        yield document
        if document["controller"] is None:
            return
        time.sleep(EVERY_S)
