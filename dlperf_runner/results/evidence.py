"""Reads the evidence for the validity of a run: the samplers' files in its directory, and the lines
of its log in which NCCL logs its network choice."""

from __future__ import annotations

import csv
import math
import mmap
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..measure.validity import Evidence, GpuProcess, XidError
from .run_record import FoundRun

_NET = b"NCCL INFO NET/"


def evidence_of(run: FoundRun) -> Evidence:
    """Of a run on CPU, nothing is read."""
    if not run.on_gpu:
        return Evidence(beside=run.beside)
    return Evidence(
        on_gpu=True,
        nodes=run.topology.nodes,
        beside=run.beside,
        samples=_samples(run),
        xids=_xids(run),
        gpu_processes=list(_gpu_processes(run)) or None,
        network=tuple(_net_lines(run.path)) if run.topology.nodes > 1 else (),
        nccl=dict(run.nccl),
    )


def _samples(run: FoundRun) -> dict[tuple[str, int], list[dict[str, float | None]]]:
    found: dict[tuple[str, int], list[dict[str, float | None]]] = {}
    for host, devices in run.devices:
        for row in _rows(run, "telemetry", host):
            numbers = {name: _number(text) for name, text in row.items()}
            device = numbers.get("device")
            if device is not None and int(device) in devices:
                found.setdefault((host, int(device)), []).append(numbers)
    return found


def _xids(run: FoundRun) -> list[XidError] | None:
    """A kernel log without Xid errors gives a file without rows; an unreadable one gives no
    file."""
    if not any(_path(run, "xid", host).is_file() for host, _ in run.devices):
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


def _gpu_processes(run: FoundRun) -> Iterator[GpuProcess]:
    for host, devices in run.devices:
        for row in _rows(run, "processes", host):
            names = ("device", "pid", "uid", "run_uid", "age_s", "run_age_s")
            device, *numbers = (_number(row.get(name)) for name in names)
            known = [number for number in numbers if number is not None]
            if device in devices and len(known) == len(numbers):
                yield GpuProcess(host, int(device), *known)


def _path(run: FoundRun, kind: str, host: str) -> Path:
    # The name that module_utils/gpu_memory.py gives it.
    return run.path.with_name(f"{kind}-{re.sub(r'[^A-Za-z0-9._-]', '_', host)}.csv")


def _rows(run: FoundRun, kind: str, host: str) -> Iterator[dict[str, str]]:
    """The readable rows of a sampler's file."""
    try:
        with _path(run, kind, host).open(encoding="utf-8", errors="replace", newline="") as file:
            for row in csv.DictReader(file):
                yield {k: v for k, v in row.items() if isinstance(k, str) and isinstance(v, str)}
    except (OSError, csv.Error):
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
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as log:
            place = log.find(_NET)
            while place >= 0:
                end = log.find(b"\n", place)
                end = len(log) if end < 0 else end
                yield log[place : min(end, place + 1000)].decode("utf-8", "replace")
                place = log.find(_NET, end)
    except (OSError, ValueError):  # the log is empty, or disappeared since it was read
        return
