"""Measure a run of MLPerf Training from its log, and a result from its runs. No disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from ..catalog.mlperf import benchmarks
from ..core.errors import UserError
from ..logs.mllog import MlperfLog, block_samples
from ..logs.text import FASTEST
from .step_time import PERCENTILES, percentile

_FIRST_STEPS = 2  # printed step times that include compilation
SUCCESS = "success"


@dataclass(frozen=True)
class MlperfRun:
    """A run, which reached its target if its status is SUCCESS. `samples_per_second` by estimator,
    the best first: `blocks` counts training without evaluation, `epochs` and `whole_run` may
    include it. `step_times` (s) by percentile; empty if none is printed. `quality` is the last
    evaluation."""

    benchmark: str
    status: str
    global_batch_size: int
    time_to_train_s: float
    samples_per_second: dict[str, float]
    step_times: dict[str, float]
    evaluations: int
    quality: float | None
    sequence_length: int | None


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
    rates = {e: rate for e, rate in _rates(log, (stop - start) / 1000) if 0 < rate < FASTEST}
    return MlperfRun(
        benchmark=log.benchmark,
        status=log.status or "unknown",
        global_batch_size=log.global_batch_size,
        time_to_train_s=(stop - start) / 1000,
        samples_per_second=rates,
        step_times=_step_times(log.step_seconds[_FIRST_STEPS:]),
        evaluations=len(log.evaluations),
        quality=log.evaluations[-1] if log.evaluations else None,
        sequence_length=log.sequence_length,
    )


def _rates(log: MlperfLog, run_s: float) -> Iterator[tuple[str, float]]:
    """The samples per second by each estimator for which the log has data, the best first."""
    seconds = sum(block.stop_ms - block.start_ms for block in log.blocks) / 1000
    if seconds > 0 and (samples := block_samples(log)):
        yield "blocks", sum(samples) / seconds
    known = benchmarks().get(str(log.benchmark))
    of_epoch = known.epoch_samples if known and known.epoch_samples else log.train_samples
    if of_epoch is None:
        return
    seconds = sum(epoch.stop_ms - epoch.start_ms for epoch in log.epochs) / 1000
    if seconds > 0:
        yield "epochs", len(log.epochs) * of_epoch / seconds
    if log.epochs_trained is not None and log.epochs_trained > 0:
        yield "whole_run", log.epochs_trained * of_epoch / run_s


def _step_times(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
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
