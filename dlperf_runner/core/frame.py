"""The long frame: one row per run and metric. All later steps use it and need no logs.

A run without metrics has one row with no value and a reason. None means unknown or not applicable
(the driver of a CPU), and missing numbers are NaN. An empty text means that there is none: no
parameter, or no container. The index numbers the runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import pandas as pd

Frame: TypeAlias = "pd.DataFrame"  # in annotations, without loading pandas
SAMPLES_PER_SECOND = "samples_per_second"
GPU_MEMORY = "gpu_memory_peak"  # the maximum over the devices of a run
LOG_MEMORY = "memory_peak"  # of the device that prints, as its program counts it
ENERGY = "energy_per_sample"  # in J; the estimator says of what, and how
POWER = "power_mean"  # in W, of the same
STEP_TIME = "step_time"  # the beginning of the names of its percentiles
# Of a step without communication, in seconds: the mean of the ranks, the longest, and its rank.
ALONE_MEAN, ALONE_LONGEST, SLOWEST_RANK = "alone_mean", "alone_longest", "slowest_rank"
NCCL_KERNELS = "nccl_kernels"  # in a step, in seconds: the mean of the ranks
INPUT_SHARE = "input_share"  # of the measured time, in which the program waited for data
# Of an all-reduce of the gradients alone, in GB/s; the estimator names bytes and interface.
ALL_REDUCE_BUS = "all_reduce_bus_bandwidth"
NCCL_INTERFACES = "nccl_interfaces"  # how many; the estimator names them
MODEL_TFLOPS = "model_tflops_per_device"
MFU = "mfu"
PEAK_TFLOPS = "peak_tflops_per_device"
# As the program computed them.
LOG_TFLOPS, LOG_MFU = "log_tflops_per_device", "log_mfu"
# The program's TFLOP/s over those of the model at the same rate.
LOG_TFLOPS_RATIO = "log_tflops_ratio"


# The columns and their types. Numbers of the type Int64 may be missing.
TYPES = {
    **dict.fromkeys(("framework", "framework_version", "workload", "model", "source"), "object"),
    **dict.fromkeys(("parameters", "precision"), "object"),
    **dict.fromkeys(("nodes", "gpus_per_node", "world_size"), "int64"),
    "batch_size_per_device": "object",  # an integer, or a fraction if devices share a sample
    "global_batch_size": "Int64",
    **dict.fromkeys(("nvlink_domains", "total_steps", "warmup_steps"), "Int64"),
    "directory": "object",
    "repeat": "int64",
    "metric": "object",
    "value": "float64",
    **dict.fromkeys(("unit", "estimator"), "object"),
    **dict.fromkeys(("accelerator", "node_gpus", "driver", "stack", "container"), "object"),
    "log_sha256": "object",
    "valid": "bool",
    "why_invalid": "object",
    "stated": "object",  # settings that only the user or the log's path states, and where
}
COLUMNS = tuple(TYPES)
METRIC = ("metric", "value", "unit", "estimator")


def make_frame(runs: Sequence[Mapping[str, Any]], metrics: Iterable[tuple[Any, ...]]) -> Frame:
    """The frame of runs, each with the columns that its rows have in common, and of metrics: the
    number of the run, then the columns of METRIC."""
    from . import arrays  # noqa: F401 - NumPy without threads, before pandas loads it

    # isort: split
    import pandas as pd

    identity = pd.DataFrame(runs, columns=[c for c in COLUMNS if c not in METRIC], dtype=object)
    rows = pd.DataFrame([*metrics], columns=["run", *METRIC], dtype=object)
    # By position, because every run is known: a merge would sort and compare all numbers.
    of_run = identity.iloc[rows.pop("run").astype("int64")]
    rows.index = of_run.index
    others = {name: kind for name, kind in TYPES.items() if kind != "object"}
    return pd.concat([of_run, rows], axis=1)[list(COLUMNS)].astype(others)


def records(table: Frame) -> list[dict[str, Any]]:
    """The rows as dictionaries of plain values; missing values are None."""
    names = [str(name) for name in table]
    return [dict(zip(names, row, strict=True)) for row in plain_rows(table)]


def plain_rows(table: Frame) -> Iterator[tuple[Any, ...]]:
    """The rows as tuples of plain values; missing values are None."""
    return zip(*(_plain_values(table[name]) for name in table), strict=True)


def _plain_values(column: pd.Series[Any]) -> list[Any]:
    values, missing = column.tolist(), column.isna()
    if not missing.any():
        return values
    return [None if gone else value for value, gone in zip(values, missing.tolist(), strict=True)]


def completed(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """The rows with all of these columns; what is missing or NaN is None."""
    whole = ({name: row.get(name) for name in names} for row in rows)
    return [
        {n: None if isinstance(v, float) and math.isnan(v) else v for n, v in row.items()}
        for row in whole
    ]


def throughput(frame: Frame) -> Frame:
    """The rows with the throughput of the valid runs."""
    is_rate = frame["valid"] & (frame["metric"] == SAMPLES_PER_SECOND)
    return frame[is_rate & frame["value"].notna()]
