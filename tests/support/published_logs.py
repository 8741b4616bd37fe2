"""Logs as the published reports name them, whose runs have the published speeds."""

from __future__ import annotations

import functools
from pathlib import Path

from make_logs import MAKE, dllogger, published, write

from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.catalog.workload import Workload

NGC = "tensorflow-ngc-resnet50v1.5.md"
TAG = "Tue Jun 14 15:40:21 2022[1,0]<stdout>:"
TABLES = published("published")
SOURCES = list(dict.fromkeys(entry["source"] for entry in TABLES))


def table_of(entry: dict[str, str]) -> tuple[str, str, str, str]:
    return (
        *(entry["source"], entry["model"]),
        *(entry["precision"], entry["batch_size_per_device"]),
    )


@functools.cache
def workload_of(source: str) -> Workload:
    (found,) = [w for w in load_catalog().workloads.values() if w.published == source]
    return found


def topology(entry: dict[str, str]) -> str:
    return f"{entry['nodes']}n{int(entry['gpus']) // int(entry['nodes'])}g"


RUNS: dict[tuple[tuple[str, str, str, str], str], list[float]] = {}
for run in published("published_runs"):
    RUNS.setdefault((table_of(run), run["topology"]), []).append(float(run["samples_per_second"]))


def runs_of(entry: dict[str, str], repeats: int) -> list[float]:
    """What the runs behind a line of a table measured: as published, or around its number."""
    middle = float(entry["samples_per_second"])
    # ArcFace's mean of five rates of one digit has steps of 0.02.
    made = [middle + 0.2 * (n - repeats // 2) for n in range(repeats)]
    return RUNS.get((table_of(entry), topology(entry)), made)


def write_log(directory: Path, entry: dict[str, str], repeat: int, value: float) -> None:
    """A log as the report names it, whose rule gives that value."""
    source, batch = entry["source"], entry["batch_size_per_device"]
    if source == NGC:
        devices, amp = int(entry["gpus"]), entry["precision"] == "amp"
        # On 32 devices the table has what the program itself says at its end.
        large = devices == 32
        lines = dllogger(
            *(value + 1 if large else value, devices),
            amp=amp,
            final=value if large else value + 1,
            tag=TAG if large else "",
        )
        write(directory / f"tf_gpu{devices}_{entry['precision']}_bs{batch}.txt", lines)
        return
    workload = workload_of(source)
    variant = next((key for key in workload.variants if entry["model"].endswith(key)), None)
    short = workload.variants[variant].short_name if variant else workload.short_name
    name = f"bz{batch}/{topology(entry)}/{short}_b{batch}_{entry['precision']}_{repeat}.log"
    statements = {"batch": int(batch), "dtype": workload.dtypes[entry["precision"]]}
    options = statements if source == "mxnet-resnet50v1b.md" else {}
    write(directory / name, MAKE[source](value, **options))


def write_logs(directory: Path, source: str, factor: float = 1.0) -> Path:
    """The logs of a report whose runs have its speeds, or so many times as much."""
    repeats = workload_of(source).matrices["published"].repeats
    for entry in TABLES:
        if entry["source"] == source:
            for repeat, value in enumerate(runs_of(entry, repeats), start=1):
                write_log(directory, entry, repeat, value * factor)
    return directory
