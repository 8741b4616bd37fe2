"""A local page of a campaign: the state of its runs, rates over time, telemetry and time left.

All of it is read from the files of the campaign. The server listens on the loopback interface only,
and answers only requests with the token in its address.
"""

from __future__ import annotations

import csv
import hmac
import json
import math
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import fmean, median
from typing import Any

from ..campaign import directory as campaigns
from ..campaign.execute import current_rate
from ..catalog.reader import printed_unit
from ..core.errors import UserError
from ..logs import parse_tail
from .controllers import status_of

HOST = "127.0.0.1"
EVERY_S = 2.0
_POINTS = 2000  # of a run's rates; then every second one is kept
_TAIL = 4096
_ENDED = ("done", "failed")
_PAGE = Path(__file__).parents[1] / "report" / "templates" / "live.html"
# Of the samples of a device: how they become one number.
_TELEMETRY: Mapping[str, Callable[[Sequence[float]], float]] = {
    "utilization_percent": fmean,
    "power_w": fmean,
    "temperature_c": max,
    "memory_used_mib": max,
}


class Watch:
    """What the page shows. Rates of running runs are read at each poll, because their files have
    only the last lines of a log."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.record = campaigns.read_campaign(directory)
        self.rates: dict[str, list[tuple[float, float]]] = {}
        self.last: dict[str, float | None] = {}  # of ended runs
        self.devices: dict[tuple[str, str], list[dict[str, Any]]] = {}  # by run and its end
        self.state = b""

    def poll(self, now: float) -> None:
        """Read the files, at this time in seconds."""
        records = campaigns.read_records(self.directory)
        states = {run["id"]: run for run in status_of(self.directory)["runs"]}
        for record in records:
            if states[record["id"]]["status"] == "running":
                self._add_rate(record, now)
        runs = [self._run(record, states[record["id"]], now) for record in records]
        elapsed = {run["id"]: run["elapsed_s"] or 0 for run in runs}
        latest = next(reversed(self.rates), None)
        unit = next((run["unit"] for run in runs if run["id"] == latest), "")
        document = {
            "campaign": campaigns.name_of(self.directory),
            "notes": self.record.get("notes"),
            "done": sum(states[record["id"]]["done"] for record in records),
            "ended": sum(run["status"] in _ENDED for run in runs),
            "total": len(runs),
            "left_s": time_left(records, elapsed),
            "runs": runs,
            "series": {"run": latest, "unit": unit, "points": self.rates.get(latest or "", [])},
            "telemetry": self._telemetry(records),
        }
        self.state = json.dumps(document).encode()

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
            elapsed = _since_start(self.directory, record, now)
        return {
            "id": run,
            "status": state["status"],
            "message": state["message"],
            "rate": rate,
            "unit": printed_unit(record["workload"]) if rate is not None else "",
            "elapsed_s": elapsed,
        }

    def _last_rate(self, record: Mapping[str, Any]) -> float | None:
        """The last rate in the log of an ended run. It is read once."""
        run = record["id"]
        if run not in self.last:
            path = campaigns.run_directory(self.directory, record) / record["log_name"]
            self.last[run] = None
            with suppress(OSError), path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _TAIL))
                tail = file.read().decode(errors="replace")
                self.last[run] = parse_tail(record["log_format"], tail)
        return self.last[run]

    def _telemetry(self, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The devices of the run that ended last."""
        ended = [record for record in records if record["outcome"].get("ended")]
        for record in sorted(ended, key=lambda r: str(r["outcome"]["ended"]), reverse=True):
            place = campaigns.run_directory(self.directory, record)
            key = (record["id"], str(record["outcome"]["ended"]))
            if key not in self.devices:
                self.devices[key] = _devices(place)
            if self.devices[key]:
                return {"run": record["id"], "devices": self.devices[key]}
        return {"run": None, "devices": []}


def time_left(records: Sequence[Mapping[str, Any]], elapsed: Mapping[str, float]) -> float | None:
    """The expected seconds until all runs have ended: for each the median of its case, or of all,
    less what has `elapsed` of it. None if no run is done yet."""
    lengths: dict[str, list[float]] = {}
    for record in records:
        length = record["outcome"].get("elapsed_s")
        if record["outcome"]["status"] == "done" and isinstance(length, int | float):
            lengths.setdefault(record["case"], []).append(length)
    if not lengths:
        return None
    usual = median(length for of_case in lengths.values() for length in of_case)
    left = [record for record in records if record["outcome"]["status"] not in _ENDED]
    return sum(
        max(0.0, median(lengths.get(record["case"], [usual])) - elapsed.get(record["id"], 0))
        for record in left
    )


def _since_start(directory: Path, record: Mapping[str, Any], now: float) -> float | None:
    """Seconds since a run was recorded as running."""
    with suppress(OSError):
        path = campaigns.run_directory(directory, record) / "run.json"
        return max(0.0, now - path.stat().st_mtime)
    return None


def _devices(place: Path) -> list[dict[str, Any]]:
    """The telemetry of an ended run, by device."""
    found: list[dict[str, Any]] = []
    for path in sorted(place.glob("telemetry-*.csv")):
        node = path.stem.removeprefix("telemetry-")
        samples: dict[int, dict[str, list[float]]] = {}
        for row in _rows(path):
            device = _number(row.get("device"))
            if device is None:
                continue
            own = samples.setdefault(int(device), {name: [] for name in _TELEMETRY})
            for name, values in own.items():
                if (value := _number(row.get(name))) is not None:
                    values.append(value)
        found += [
            {"node": node, "device": device}
            | {name: _TELEMETRY[name](v) if v else None for name, v in own.items()}
            for device, own in sorted(samples.items())
        ]
    return found


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            return list(csv.DictReader(file))
    except (OSError, csv.Error):
        return []


def _number(text: object) -> float | None:
    with suppress(TypeError, ValueError):
        value = float(str(text))
        return value if math.isfinite(value) else None
    return None


# ---- the server


@contextmanager
def served(directory: Path, port: int = 0) -> Iterator[str]:
    """Serve the page of a campaign; the address, with its token. Raises UserError if the port is
    taken."""
    watch, stop = Watch(directory), threading.Event()
    watch.poll(time.time())
    token = secrets.token_urlsafe(24)
    try:
        server = ThreadingHTTPServer((HOST, port), _handler(watch, token))
    except OSError as error:
        raise UserError(
            "cannot serve the page", where=f"--port {port}", found=error.strerror or str(error)
        ) from None
    server.daemon_threads = True
    threads = [
        threading.Thread(target=server.serve_forever, args=(0.2,), daemon=True),
        threading.Thread(target=_keep_polling, args=(watch, stop), daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}/{token}/"
    finally:
        stop.set()
        server.shutdown()
        server.server_close()


@contextmanager
def announced(directory: Path) -> Iterator[None]:
    """Serve the page, and print its address on standard error."""
    with served(directory) as address:
        print(f"live page: {address}", file=sys.stderr, flush=True)
        yield


def _keep_polling(watch: Watch, stop: threading.Event) -> None:
    while not stop.wait(EVERY_S):
        # A file may be replaced while it is read; the next poll reads it again.
        with suppress(UserError, OSError, ValueError, KeyError):
            watch.poll(time.time())


def _handler(watch: Watch, token: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10
        server_version, sys_version = "dlperf", ""

        def do_GET(self) -> None:
            asked, _, name = self.path.removeprefix("/").partition("/")
            # Only this host: a page from elsewhere may have a name that leads here.
            own = re.fullmatch(r"(127\.0\.0\.1|localhost)(:\d+)?", self.headers.get("Host", ""))
            if not own or not hmac.compare_digest(asked.encode(), token.encode()):
                self.send_error(HTTPStatus.NOT_FOUND)
            elif name == "":
                nonce = secrets.token_urlsafe(16)
                page = _PAGE.read_text(encoding="utf-8").replace("{{ nonce }}", nonce)
                self._answer("text/html; charset=utf-8", page.encode(), nonce)
            elif name == "state.json":
                self._answer("application/json", watch.state)
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def _answer(self, kind: str, content: bytes, nonce: str = "") -> None:
            self.send_response(HTTPStatus.OK)
            policy = "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'"
            policy += f"; script-src 'nonce-{nonce}'; base-uri 'none'; frame-ancestors 'none'"
            for name, value in (
                ("Content-Type", kind),
                ("Content-Length", str(len(content))),
                ("Content-Security-Policy", policy),
                ("Cache-Control", "no-store"),
                ("Referrer-Policy", "no-referrer"),
                ("X-Content-Type-Options", "nosniff"),
            ):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the token would stand in each line."""

    return Handler
