"""Reads the evidence for the validity of a run: the samplers' files in its directory, and the lines
of its log in which NCCL logs its network choice."""

from __future__ import annotations

import csv
import math
import mmap
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from ..core.files import open_gzip, open_read, open_stored, stored
from ..measure.validity import Evidence, GpuProcess, HealthReport, Sample, XidError
from .run_record import FoundRun

_NET = b"NCCL INFO NET/"
LONGEST = 2**20  # bytes of a line that are read at once
# The columns of the telemetry that are used.
_COLUMNS = (
    *("unix_time", "utilization_percent", "sm_clock_mhz", "max_sm_clock_mhz", "throttle_reasons"),
    *("ecc_uncorrected", "power_w", "energy_j", "cpu_throttled_s"),
)


def evidence_of(run: FoundRun) -> Evidence:
    devices, nodes = _telemetry(run)
    if not run.on_gpu:
        return Evidence(
            nodes=run.topology.nodes, beside=run.beside, unsampled=run.unsampled, of_nodes=nodes
        )
    return Evidence(
        on_gpu=True,
        nodes=run.topology.nodes,
        beside=run.beside,
        unsampled=run.unsampled,
        samples=devices,
        of_nodes=nodes,
        xids=_xids(run),
        health=list(_health(run)),
        gpu_processes=list(_gpu_processes(run)) or None,
        network=tuple(_net_lines(run.path)) if run.topology.nodes > 1 else (),
        nccl=dict(run.nccl),
    )


def _telemetry(
    run: FoundRun,
) -> tuple[dict[tuple[str, int], list[Sample]], dict[str, list[Sample]]]:
    """The samples of the run's devices, and of its nodes."""
    devices: dict[tuple[str, int], list[Sample]] = {}
    nodes: dict[str, list[Sample]] = {}
    used = dict(run.devices)
    for host in dict.fromkeys((*used, *run.hosts)):
        for row in _rows(run, "telemetry", host):
            numbers = {name: n for name in _COLUMNS if (n := _number(row.get(name))) is not None}
            device = _number(row.get("device"))
            if row.get("device") == "":
                nodes.setdefault(host, []).append(numbers)
            elif device is not None and int(device) in used.get(host, ()):
                devices.setdefault((host, int(device)), []).append(numbers)
    return devices, nodes


def _xids(run: FoundRun) -> list[XidError] | None:
    """A kernel log without Xid errors gives a file without rows; an unreadable one gives no
    file."""
    paths = (_path(run, "xid", host) for host, _ in run.devices)
    if not any(run.has(path.name) and stored(path).is_file() for path in paths):
        return None
    return [
        XidError(
            host,
            _number(row.get("xid")),
            f"Xid {row.get('xid')} on {row.get('bus_id')}: {row.get('message')}",
        )
        for host, _ in run.devices
        for row in _rows(run, "xid", host)
    ]


def _health(run: FoundRun) -> Iterator[HealthReport]:
    """What DCGM reported of the run's devices, and of all else on its nodes. DCGM numbers devices
    as the driver does."""
    for host, devices in run.devices:
        for row in _rows(run, "health", host):
            names = ("entity", "system", "health", "message")
            report = HealthReport(host, *(row.get(name, "") for name in names))
            kind, _, number = report.entity.partition(" ")
            if report.entity and (kind != "GPU" or _number(number) in devices):
                yield report


def _gpu_processes(run: FoundRun) -> Iterator[GpuProcess]:
    for host, devices in run.devices:
        for row in _rows(run, "processes", host):
            names = ("device", "pid", "uid", "run_uid", "age_s", "run_age_s")
            device, *numbers = (_number(row.get(name)) for name in names)
            known = [number for number in numbers if number is not None]
            if device in devices and len(known) == len(numbers):
                yield GpuProcess(host, int(device), *known)


def _path(run: FoundRun, kind: str, host: str) -> Path:
    # The name that module_utils/run_agent/telemetry.py gives it.
    return run.path.with_name(f"{kind}-{re.sub(r'[^A-Za-z0-9._-]', '_', host)}.csv")


def _rows(run: FoundRun, kind: str, host: str) -> Iterator[dict[str, str]]:
    """The readable rows of a sampler's file."""
    path = _path(run, kind, host)
    if not run.has(path.name):
        return
    try:
        with open_stored(path) as file:
            lines = iter(partial(file.readline, LONGEST), b"")
            for row in csv.DictReader(line.decode(errors="replace") for line in lines):
                yield {k: v for k, v in row.items() if isinstance(k, str) and isinstance(v, str)}
    except (OSError, EOFError, zlib.error, csv.Error):
        return


def _number(text: str | None) -> float | None:
    """The number in a text such as 97, 287.51 or 0x0000000000000004; None for any other text."""
    if not text:
        return None
    try:
        value = float(int(text, 16)) if text.startswith("0x") else float(text)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def _net_lines(path: Path) -> Iterable[str]:
    """The lines in which NCCL logs its network choice, found without decoding the other lines."""
    if path.suffix == ".gz":
        with suppress(OSError, EOFError, zlib.error), open_gzip(path) as packed:
            for line in iter(partial(packed.readline, LONGEST), b""):
                if (place := line.find(_NET)) >= 0:
                    yield line[place : place + 1000].decode("utf-8", "replace").rstrip("\n")
        return
    try:
        with open_read(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as log:
            place = log.find(_NET)
            while place >= 0:
                end = log.find(b"\n", place)
                end = len(log) if end < 0 else end
                yield log[place : min(end, place + 1000)].decode("utf-8", "replace")
                place = log.find(_NET, end)
    except (OSError, ValueError):  # the log is empty, or disappeared since it was read
        return
