"""The number of runs that a case needs: numbers in, numbers out."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from statistics import fmean, median, variance

from .intervals import FEW, median_interval
from .ratios import student

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
    """The number of repeats that a case should have next; None if it needs no more runs.

    `values` are its valid runs, `planned` the number of its repeats so far. A case gets one more
    run while the relative half-width of its interval is above `half_width`, up to `most` repeats;
    at first as many as an interval needs. A case without a valid run gets none: more would fail,
    too.
    """
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
    """True if, after so many more runs of each, the interval of b / a would not contain `ratio`.

    It assumes that the difference and the spread of the runs stay as they are. The interval is
    Student's of the logarithms, and reaches at least as far as `least_reach`.
    """
    first, second = ([math.log(value) for value in values] for values in (a, b))
    n_a, n_b = len(first) + more, len(second) + more
    error = math.sqrt(variance(first) / n_a + variance(second) / n_b)
    reach = student(n_a + n_b - 2, level) * error
    return max(reach, least_reach) < abs(fmean(second) - fmean(first) - math.log(ratio))
