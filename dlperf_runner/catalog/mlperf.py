"""The benchmarks of MLPerf Training, as catalog/mlperf.yml lists them."""

from __future__ import annotations

import functools

from .entry import CATALOG, load_entry
from .types import Count, Entry, Name


class Benchmark(Entry):
    """What a result needs. `dropped`: as many of the slowest runs, and of the fastest, do not
    count. `sequence_length`: the tokens of a sample, None if its samples are no texts.
    `epoch_samples`: the samples of an epoch, if the logs do not state them."""

    runs: Count
    dropped: Count = 1
    sequence_length: Count | None = None
    epoch_samples: Count | None = None


class Mlperf(Entry):
    """All benchmarks by name."""

    name: Name
    benchmarks: dict[Name, Benchmark]


@functools.cache
def benchmarks() -> dict[str, Benchmark]:
    """The benchmarks by name."""
    return load_entry(CATALOG / "mlperf.yml", Mlperf).benchmarks
