"""The benchmarks of MLPerf Training, as catalog/mlperf.yml lists them."""

from __future__ import annotations

import functools
from typing import Literal

from .entry import CATALOG, load_entry
from .types import Count, Entry, Name


class Benchmark(Entry):
    """What a result needs. `dropped`: as many of the slowest runs, and of the fastest, do not
    count. `sequence_length`: the tokens of a sample, None if it is not prescribed.
    `epoch_samples`: the samples of an epoch, of each data set that the benchmark has had.
    `epoch_num`: what the logs count by their epoch_num."""

    runs: Count
    dropped: Count = 1
    sequence_length: Count | None = None
    epoch_samples: tuple[Count, ...] = ()
    epoch_num: Literal["epochs", "samples", "tokens"] = "epochs"


class Mlperf(Entry):
    """All benchmarks by name."""

    name: Name
    benchmarks: dict[Name, Benchmark]


@functools.cache
def benchmarks() -> dict[str, Benchmark]:
    """The benchmarks by name."""
    return load_entry(CATALOG / "mlperf.yml", Mlperf).benchmarks
