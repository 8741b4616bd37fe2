"""The tidy frame: one row per run and metric. All later steps use it and need no logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from .identity import CASE, CaseKey, plain

if TYPE_CHECKING:
    import pandas as pd

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


class Row(NamedTuple):
    """A metric of a run. A run without metrics has one row with no value and a reason.

    None means unknown or not applicable (the driver of a CPU). An empty text means that there is
    none: no parameter, or no container.
    """

    framework: str
    framework_version: str | None
    workload: str
    model: str
    source: str | None
    parameters: str | None
    precision: str
    nodes: int
    gpus_per_node: int
    world_size: int
    batch_size_per_device: float
    global_batch_size: int
    total_steps: int | None
    warmup_steps: int | None
    directory: str | None
    repeat: int
    metric: str
    value: float | None
    unit: str
    estimator: str | None
    accelerator: str | None
    node_gpus: str | None
    driver: str | None
    stack: str | None
    container: str | None
    log_sha256: str | None
    valid: bool
    why_invalid: str | None
    stated: str | None = None  # settings that only the user or the log's path states, and where


COLUMNS = Row._fields
_WHOLE = (
    *("nodes", "gpus_per_node", "world_size", "repeat"),
    "global_batch_size",
)
# The type of each column in a DataFrame. Numbers of the type Int64 may be missing.
TYPES = {
    **dict.fromkeys(COLUMNS, "object"),
    **dict.fromkeys(_WHOLE, "int64"),
    **dict.fromkeys(("total_steps", "warmup_steps"), "Int64"),
    "value": "float64",
    "valid": "bool",
}
case_of: Callable[[Row], CaseKey] = itemgetter(*map(COLUMNS.index, CASE))


def make_frame(rows: Iterable[Row]) -> pd.DataFrame:
    """The rows as a DataFrame with the columns of Row. Missing texts are None, numbers are NaN."""
    return make_table(rows, TYPES)


def make_table(rows: Iterable[Iterable[Any]], types: Mapping[str, str]) -> pd.DataFrame:
    """Rows as a DataFrame with columns of these types."""
    import pandas as pd

    columns = list(zip(*rows, strict=True)) or [()] * len(types)
    values = {name: pd.Series(v, dtype=object) for name, v in zip(types, columns, strict=True)}
    return pd.DataFrame(values).astype(dict(types))


def rows_of(frame: pd.DataFrame) -> Iterator[Row]:
    """The rows of a DataFrame that `make_frame` made."""
    columns = (map(plain, frame[name].tolist()) for name in COLUMNS)
    return map(Row._make, zip(*columns, strict=True))
