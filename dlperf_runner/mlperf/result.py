"""Measure a run of MLPerf Training from its log, and a result from its runs. No disk."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

from ..catalog.entry import CATALOG, load_entry
from ..catalog.types import Count, Entry, Name
from ..core.errors import UserError
from ..logs.mllog import Interval, MlperfLog, block_samples
from ..logs.text import FASTEST
from ..measure.step_time import PERCENTILES, percentile


class Benchmark(Entry):
    """The requirements of a result. `dropped`: as many of the slowest runs, and of the fastest, do
    not count. `sequence_length`: the tokens of a sample, None if it is not prescribed.
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


_FIRST_STEPS = 2  # printed step times that include compilation
# The first time after an evaluation can be that of a few calls: no step is so much faster.
_NO_STEP = 0.1
# By how much train_samples may differ from the data set: the rest of a batch, or long samples that
# were filtered out.
_NEAR = 0.02
SUCCESS = "success"


@dataclass(frozen=True)
class MlperfRun:
    """A run, which reached its target if its status is SUCCESS. `samples_per_second` by estimator,
    the best first: `blocks` counts training without evaluation, `epochs` and `whole_run` may
    include it. `step_times` (s) by percentile; empty if none is printed. `quality` is the last
    evaluation. `throughput_note`: how the samples of an epoch are known, if not as the log states
    them, or why they are not."""

    benchmark: str
    status: str
    global_batch_size: int
    started_ms: int
    time_to_train_s: float
    samples_per_second: dict[str, float]
    step_times: dict[str, float]
    evaluations: int
    quality: float | None
    sequence_length: int | None
    throughput_note: str | None


def measure_run(log: MlperfLog, name: str) -> MlperfRun:
    """The measurements of a log. Raises UserError if the log is not whole; `name` is that
    of the log."""
    start, stop = log.run_start_ms, log.run_stop_ms
    if start is None or stop is None:
        missing = "run_start" if start is None else "run_stop"
        raise UserError(
            f"the log has no {missing}",
            where=name,
            expected="run_start and run_stop",
            hint="truncated, or the run was stopped",
        )
    if log.benchmark is None or not log.global_batch_size or stop <= start:
        raise UserError(
            "the log does not say what ran",
            where=name,
            expected="submission_benchmark, global_batch_size, and run_stop after run_start",
            found=f"{log.benchmark}, {log.global_batch_size}, {stop - start} ms",
        )
    run_s = (stop - start) / 1000
    for kind, parts in (("blocks", log.blocks), ("epochs", log.epochs)):
        # Where the evaluation is done afterwards, training goes on beyond the stop.
        if (seconds := _seconds([part for part in parts if part.start_ms < stop])) > run_s:
            raise UserError(
                f"the {kind} last longer than the run",
                where=name,
                expected=f"at most {run_s:g} s, from run_start to run_stop",
                found=f"{seconds:g} s",
                hint="one of its clocks is wrong, or its lines are those of several runs",
            )
    rates, note = _rates(log, run_s)
    return MlperfRun(
        benchmark=log.benchmark,
        status=log.status or "unknown",
        global_batch_size=log.global_batch_size,
        started_ms=start,
        time_to_train_s=run_s,
        samples_per_second={e: rate for e, rate in rates.items() if 0 < rate < FASTEST},
        step_times=_step_times(log.step_seconds[_FIRST_STEPS:]),
        evaluations=len(log.evaluations),
        quality=log.evaluations[-1] if log.evaluations else None,
        sequence_length=log.sequence_length,
        throughput_note="; ".join(filter(None, (log.gap, note))) or None,
    )


def _rates(log: MlperfLog, run_s: float) -> tuple[dict[str, float], str | None]:
    """The samples per second by each estimator for which the log has data, the best first, and the
    note on those that are not by blocks."""
    rates: dict[str, float] = {}
    seconds = _seconds(log.blocks)
    if seconds > 0 and (samples := block_samples(log)):
        rates["blocks"] = sum(samples) / seconds
    of_epochs, whole, note = _trained(log, benchmarks().get(str(log.benchmark), Benchmark(runs=1)))
    seconds = _seconds(log.epochs)
    if seconds > 0 and of_epochs is not None:
        rates["epochs"] = of_epochs / seconds
    if whole is not None:
        rates["whole_run"] = whole / run_s
    return rates, note


def _seconds(intervals: Sequence[Interval]) -> float:
    return sum(interval.stop_ms - interval.start_ms for interval in intervals) / 1000


def _trained(log: MlperfLog, benchmark: Benchmark) -> tuple[float | None, float | None, str | None]:
    """The samples trained in all epochs and in the whole run, None if unknown; and a note."""
    if benchmark.epoch_num == "epochs":
        size, note = _epoch(log, benchmark.epoch_samples)
        if size is None:
            return None, None, note
        whole = None if log.epochs_trained is None else log.epochs_trained * size
        return len(log.epochs) * size, whole, note
    per_sample, note = 1, None
    if benchmark.epoch_num == "tokens":
        per_sample = log.sequence_length or benchmark.sequence_length or 1
        note = f"epoch_num and train_samples count tokens, {per_sample} of a sample"
    stopped = log.epochs_evaluated if log.epochs_trained is None else log.epochs_trained
    counts = [log.epochs[-1].epoch_num if log.epochs else None, stopped]
    trained = [None if count is None else count / per_sample for count in counts]
    least = log.global_batch_size or 1
    # Some old logs count by it as its name says: 1 at the end of the only epoch.
    of_epochs, whole = (None if count is None or count < least else count for count in trained)
    if of_epochs is None and whole is None:
        note = f"the log does not state as epoch_num how many {benchmark.epoch_num} were trained"
    return of_epochs, whole, note


def _epoch(log: MlperfLog, sizes: Sequence[int]) -> tuple[int | None, str | None]:
    """The samples of an epoch. The log's train_samples, if they are near one of the sizes of the
    data set; that size, if so many batches are; else None with the reason."""
    if not sizes:
        return None, "the samples of an epoch of this benchmark are not known"
    stated, batch = log.train_samples or 0, log.global_batch_size or 1
    for size in sizes:
        if abs(stated - size) <= _NEAR * size:
            return stated, None
        if abs(stated * batch - size) <= _NEAR * size:
            return size, f"train_samples counts batches; an epoch is {size} samples"
    samples = " or ".join(map(str, sizes))
    return None, (
        f"train_samples is {stated}, which is neither the samples of an epoch ({samples})"
        f" nor its batches of {batch}"
    )


def _step_times(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    ordered = [second for second in ordered if second > _NO_STEP * median(ordered)]
    return {n: percentile(ordered, p) for n, p in PERCENTILES.items()} if ordered else {}


def olympic_mean(values: Sequence[float], failed: int, dropped: int) -> float | None:
    """The mean without the `dropped` lowest and highest values. Runs that failed count as the
    highest. None if more of them failed, or if no value remains.

    Source: mlcommons/logging 7bbf792, result_summarizer.py, _compute_olympic_average.
    """
    if failed > dropped:
        return None
    kept = sorted(values)[dropped : len(values) - (dropped - failed)]
    return fmean(kept) if kept else None
