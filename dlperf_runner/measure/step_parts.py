"""Parts of a step, from the time that each rank needs for a step without communication and from
that of NCCL's kernels, and the network that it uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean

from ..core.frame import (
    ALL_REDUCE_BUS,
    ALONE_LONGEST,
    ALONE_MEAN,
    INPUT_SHARE,
    LOG_MEMORY,
    LOG_MFU,
    LOG_TFLOPS,
    NCCL_INTERFACES,
    NCCL_KERNELS,
    SLOWEST_RANK,
    STEP_TIME,
)
from ..logs import Header
from .estimators import Measurement
from .validity import used_network

_LONGEST_S = 1e6


def of_ranks(headers: Iterable[Header], world_size: int) -> Iterator[Measurement]:
    """Mean and maximum over the ranks of steps without communication, and the mean time of NCCL's
    kernels; each only if the log has all ranks."""
    stated: dict[str, str] = {}
    for header in headers:
        stated = dict(header.parameters) | stated  # the first one counts
    if seconds := _seconds(stated.get("alone", ""), world_size):
        estimator, longest = "steps_without_communication", max(seconds)
        yield Measurement(ALONE_MEAN, fmean(seconds), "s", estimator)
        yield Measurement(ALONE_LONGEST, longest, "s", estimator)
        yield Measurement(SLOWEST_RANK, seconds.index(longest), "1", estimator)
    if seconds := _seconds(stated.get("nccl", ""), world_size):
        yield Measurement(NCCL_KERNELS, fmean(seconds), "s", "profiled_steps")


def _seconds(printed: str, world_size: int) -> list[float]:
    """The times of all ranks; none if a rank is missing or a time is not possible."""
    seconds = [float(text) for text in printed.split()]
    is_whole = len(seconds) == world_size and all(0 < value < _LONGEST_S for value in seconds)
    return seconds if is_whole else []


def of_all_reduce(headers: Iterable[Header], world_size: int) -> Iterator[Measurement]:
    """The bus bandwidth of the all-reduce that the program timed alone, as nccl-tests count it: of
    n devices, each sends and receives 2 (n - 1) / n of the bytes."""
    for header in headers:
        stated = dict(header.parameters)
        if "reduced_bytes" not in stated or world_size == 1 or not float(stated["reduced_s"]):
            continue
        rate = int(stated["reduced_bytes"]) / float(stated["reduced_s"])
        what = f"{stated['reduced_bytes']} bytes through {stated.get('interface', 'unknown')}"
        bus = rate * 2 * (world_size - 1) / world_size / 1e9
        yield Measurement(ALL_REDUCE_BUS, bus, "GB/s", what)
        return


def of_input(
    rates: Sequence[float], compute_rates: Sequence[float | None]
) -> Iterator[Measurement]:
    """The share of the time in which the program waited for data, from the rates of its lines with
    and without that time; nothing unless each line has both."""
    computing = [rate for rate in compute_rates if rate]
    if not rates or len(computing) != len(rates) or len(compute_rates) != len(rates):
        return
    working = sum(1 / rate for rate in computing) / sum(1 / rate for rate in rates)
    yield Measurement(INPUT_SHARE, max(0.0, 1 - working), "1", "compute_and_total_rates")


def network(lines: Iterable[str]) -> Iterator[Measurement]:
    """The interfaces that NCCL logs."""
    if names := used_network(lines):
        yield Measurement(NCCL_INTERFACES, names.count(",") + 1, "1", names)


PERCENTILES = {"median": 50, "p95": 95, "p99": 99}


def step_times(rates: Sequence[float], per_step: float | None, span: int) -> Iterator[Measurement]:
    """The step times in seconds from the rates of all devices, of which each covers `span` steps
    of `per_step` samples or tokens; none if that number is unknown or a rate was rounded to 0. With
    a span above 1, these are percentiles of means, which hide single slow steps; the estimator says
    so."""
    if per_step is None or not rates or min(rates) <= 0:
        return
    times = sorted(per_step / rate for rate in rates)
    estimator = "single_steps" if span == 1 else f"means_of_{span}_steps"
    for name, percent in PERCENTILES.items():
        yield Measurement(f"{STEP_TIME}_{name}", percentile(times, percent), "s", estimator)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """A percentile of ordered values, interpolated between the two nearest ones, as NumPy's default
    does."""
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


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
