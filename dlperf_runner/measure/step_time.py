"""The time of a step: median, 95th and 99th percentile of the measured window, and the memory and
the FLOPs that a log prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

from ..core.frame import LOG_MEMORY, LOG_MFU, LOG_TFLOPS, STEP_TIME
from .estimators import Measurement

PERCENTILES = {"median": 50, "p95": 95, "p99": 99}


def step_times(rates: Sequence[float], per_step: float | None, span: int) -> Iterator[Measurement]:
    """The step times in seconds from the rates of all devices, of which each covers `span` steps
    of `per_step` samples or tokens; none if that number is unknown. With a span above 1, these are
    percentiles of means, which hide single slow steps; the estimator says so."""
    if per_step is None or not rates:
        return
    fastest_first = sorted(rates, reverse=True)
    estimator = "single_steps" if span == 1 else f"means_of_{span}_steps"
    for name, percent in PERCENTILES.items():
        time = percentile(fastest_first, percent, lambda rate: per_step / rate)
        yield Measurement(f"{STEP_TIME}_{name}", time, "s", estimator)


def percentile(
    ordered: Sequence[float], percent: float, value: Callable[[float], float] = float
) -> float:
    """A percentile of the values of an ordered sequence, in ascending order, interpolated between
    the two nearest ones, as NumPy's default does."""
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    lower, upper = value(ordered[low]), value(ordered[high])
    return lower + (upper - lower) * (place - low)


def log_memory(gib: float | None) -> Iterator[Measurement]:
    """The highest memory use that the log prints."""
    if gib is not None:
        yield Measurement(LOG_MEMORY, 1024 * gib, "MiB", "as_printed")


def log_flops(tflops: Sequence[float | None], mfu: Sequence[float | None]) -> Iterator[Measurement]:
    """The means of the TFLOP/s and of the MFU (in percent) that the lines of the measured window
    print."""
    for metric, unit, scale, printed in (
        (LOG_TFLOPS, "TFLOP/s", 1, tflops),
        (LOG_MFU, "1", 100, mfu),
    ):
        numbers = [number for number in printed if number is not None]
        if numbers:
            yield Measurement(metric, fmean(numbers) / scale, unit, "as_printed")
