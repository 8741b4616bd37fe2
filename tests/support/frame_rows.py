"""Rows of the frame: one run of a case that tests change as they need."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from dlperf_runner.core.frame import COLUMNS, TYPES, records
from dlperf_runner.core.identity import CASE
from dlperf_runner.stats.summary import summarize

Row = dict[str, Any]


def row(value: float | None, topology: str = "1n1g", repeat: int = 1, **changes: Any) -> Row:
    nodes, devices = (int(number) for number in topology.rstrip("g").split("n"))
    entry = {
        **dict.fromkeys(COLUMNS),
        "framework": "mxnet",
        "workload": "mxnet-resnet50v1b",
        "model": "resnet50v1b",
        "precision": "fp32",
        "nodes": nodes,
        "gpus_per_node": devices,
        "world_size": nodes * devices,
        "batch_size_per_device": 128,
        "global_batch_size": 128 * nodes * devices,
        "total_steps": 120,
        "warmup_steps": 20,
        "repeat": repeat,
        "metric": "samples_per_second",
        "value": value,
        "unit": "samples/s",
        "estimator": "mean_of_rates",
        "valid": True,
    }
    return {**entry, **changes}


def runs(topology: str, *values: float) -> list[Row]:
    """The repeats of a case."""
    return [row(value, topology, repeat) for repeat, value in enumerate(values, start=1)]


def frame(rows: Iterable[Row]) -> pd.DataFrame:
    """The frame of these rows, in which those of a case and repeat are one run."""
    table = pd.DataFrame([*rows], columns=[*COLUMNS], dtype=object).astype(TYPES)
    groups = table.groupby([*CASE, "repeat"], dropna=False, sort=False)
    return table.set_axis(groups.ngroup(), axis=0)


def cases(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The statistics of these rows."""
    return records(summarize(frame(rows)))
