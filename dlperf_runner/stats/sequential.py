"""Verdicts at a few looks, whose errors together keep one rate: numbers in, numbers out.

Runs are judged when there are `sizes` of them, and no more are made once a look decides. Each look
of each unit gets the same share of the probability of error (Bonferroni), so that neither many
looks nor many units make wrong verdicts more frequent. docs/statistics.md says how often they are
wrong, by simulation.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, variance

from ..core.lists import counted
from .intervals import FEW, LEVEL, UNKNOWN, ConfidenceInterval, median_interval
from .ratios import LEAST_RUNS, LogRatio, relative_difference, student

# After the pilot, at half of the planned runs, and at all of them.
LOOKS = 3
MOST_RUNS = 200
# The standard deviation of few runs is often too small by chance: the plan takes its upper bound.
CAUTION = 0.8

Decide = Callable[[ConfidenceInterval], str]


@dataclass(frozen=True)
class Gate:
    """A limit on which runs are judged: `margin` below the target is still good (0.05 for 5 %).
    `error` is the probability of a wrong verdict of one look, of either kind."""

    margin: float
    error: float

    def interval(
        self, values: Sequence[float], target: float | Sequence[float], size: int
    ) -> ConfidenceInterval:
        """The interval of the relative difference of the first runs, so many, to a number, or to as
        many runs of a reference."""
        first, share = values[:size], 2 * self.error
        if isinstance(target, float):
            return mean_of_logs([math.log(value / target) for value in first]).interval(1 - share)
        return relative_difference(target[:size], first, (1 - LEVEL) / share).interval


@dataclass(frozen=True)
class Look:
    """The verdict of the last look, on the first `size` runs; 0 if there were too few for one.
    `why`: what is missing if it decides nothing."""

    verdict: str
    low: float | None
    high: float | None
    size: int
    why: str | None


def mean_of_logs(logs: Sequence[float], least: int = LEAST_RUNS) -> LogRatio:
    """Their mean, for Student's interval; of one sample, or of the differences of pairs."""
    if len(logs) < least:
        return LogRatio(fmean(logs), math.nan, math.nan)
    return LogRatio(fmean(logs), math.sqrt(variance(logs) / len(logs)), len(logs) - 1)


def judged(
    available: int,
    sizes: Sequence[int],
    interval_of: Callable[[int], ConfidenceInterval],
    decide: Decide,
    undecided: str,
    what: str = "run",
) -> Look:
    """The first look that decides, or the last one that `available` runs or pairs allow."""
    verdict, interval, made = undecided, UNKNOWN, 0
    why: str | None = (
        f"the interval crosses a limit after all {counted(max(sizes, default=0), what)}"
    )
    for size in sizes:
        if size > available:
            why = f"{counted(available, what)}; the next look is at {size}"
            break
        interval, made = interval_of(size), size
        verdict = undecided if interval.low == interval.high else decide(interval)
        if verdict != undecided:
            why = None
            break
    if interval.low == interval.high:
        why = f"{counted(made, what)} give the same to the last digit: no scatter is known"
    return Look(verdict, *interval.ends, made, why)


def look_sizes(pilot: int, planned: int) -> tuple[int, ...]:
    """The numbers of runs at which verdicts are made."""
    return tuple(sorted({pilot, max(pilot, math.ceil(planned / 2)), max(pilot, planned)}))


def pooled_deviation(samples: Sequence[Sequence[float]]) -> float:
    """The upper bound of the standard deviation of the logarithms within the samples."""
    from scipy.special import chdtri

    logs = [[math.log(value) for value in sample] for sample in samples if len(sample) > 1]
    freedom = sum(len(sample) - 1 for sample in logs)
    squares = sum(variance(sample) * (len(sample) - 1) for sample in logs)
    return math.sqrt(squares / float(chdtri(freedom, CAUTION))) if freedom else math.nan


def planned_runs(
    gate: Gate,
    deviation: float,
    *,
    good_passes: float,
    slow: float,
    slow_fails: float,
    by_reference: bool,
    least: int,
) -> int | None:
    """The runs of each unit with which a good one passes with `good_passes`, and one that is `slow`
    (0.07 for 7 %) fails with `slow_fails`; None if more than MOST_RUNS. The power is that of
    Student's interval, by the noncentral t distribution: exact for a number; for a reference, that
    of Welch's interval of samples that scatter alike, with a degree of freedom less, as
    `relative_difference` has it."""
    from scipy.special import nctdtr

    to_margin = -math.log(1 - gate.margin)
    far, near = to_margin, -math.log(1 - slow) - to_margin

    def power(distance: float, size: int) -> float:
        freedom = 2 * size - 3 if by_reference else size - 1
        error = deviation * math.sqrt((2 if by_reference else 1) / size)
        bound = student(freedom, 1 - 2 * gate.error)
        return float(nctdtr(freedom, -distance / error, -bound)) if error else 1.0

    sizes = range(max(least, LEAST_RUNS), MOST_RUNS + 1)
    keeping = (n for n in sizes if power(far, n) >= good_passes and power(near, n) >= slow_fails)
    return next(keeping, None)


# Nobody makes more than this to decide one case; the estimate would not hold so long either.
MOST_MORE = 100


def relative_half_width(values: Sequence[float]) -> float:
    """Half the width of the median's interval, divided by the median.

    NaN for fewer than 5 values, whose range covers too little (87.5 % for 4) to stop at.
    """
    if len(values) < FEW:
        return math.nan
    interval = median_interval(values)
    return (interval.high - interval.low) / 2 / median(values)


def wanted_repeats(
    values: Sequence[float], planned: int, half_width: float, most: int
) -> int | None:
    """The number of repeats that a case should have next; None if it needs no more runs. `values`
    are its valid runs, `planned` the number of its repeats so far. A case gets one more run while
    the relative half-width of its interval is above `half_width`, up to `most` repeats; at first as
    many as an interval needs. A case without a valid run gets none: more would fail, too."""
    if not values or planned >= most or relative_half_width(values) <= half_width:
        return None
    return min(most, max(planned + 1, FEW))


def more_runs(decides: Callable[[int], bool]) -> int | None:
    """The least number of further runs with which `decides` is true; None if it is more than 100.

    `decides` must stay true for all larger numbers.
    """
    numbers = range(1, MOST_MORE + 1)
    place = bisect_left(numbers, True, key=decides)
    return numbers[place] if place < len(numbers) else None


def separates(
    a: Sequence[float],
    b: Sequence[float],
    ratio: float,
    level: float,
    more: int,
    least_reach: float = 0.0,
) -> bool:
    """True if, after so many more runs of each, the interval of b / a would not contain `ratio`, if
    the difference and the spread of the runs stay as they are. The interval is Student's of the
    logarithms, and reaches at least as far as `least_reach`."""
    first, second = ([math.log(value) for value in values] for values in (a, b))
    n_a, n_b = len(first) + more, len(second) + more
    error = math.sqrt(variance(first) / n_a + variance(second) / n_b)
    reach = student(n_a + n_b - 2, level) * error
    return max(reach, least_reach) < abs(fmean(second) - fmean(first) - math.log(ratio))
