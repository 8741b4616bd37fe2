"""Find the points where a sequence of measurements changes its level: numbers in, indices out.

The sequence is looked at after every value, as history is after every campaign. A look compares the
values before and after each possible split by Student's t (the change-point model of Hawkins, Qiu
and Kang, Journal of Quality Technology 35, 2003). What the later looks find is never taken back.

Many looks find something by chance, and so do slow fluctuations. Therefore look number n needs
p < 0.1 / n², and the standard error is multiplied by √3, the right factor for neighbours that
correlate by 0.5. A change by less than SMALLEST is none: printed values are rounded, and a number
that is 338.28 for a month and then 338.29 has no scatter at all. docs/statistics.md says how often
this errs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

LEVEL = 0.05  # of a false alarm, in all looks together
LEAST = 3  # values on either side
FIRST = 7  # values for the first look
SMALLEST = 0.005  # of a change, as a share of the level before it
_SPENT = 0.1  # look number n spends this over n²
CORRELATION = 0.5  # of neighbouring values, up to which a false alarm is that rare
_WIDER = math.sqrt((1 + CORRELATION) / (1 - CORRELATION))


@dataclass(frozen=True)
class ChangePoint:
    """`index` is the index of the first value of the new level. `before` and `after` are the
    medians of the values between this change point and its neighbours. `p_value` is at most LEVEL:
    the level of all looks together at which the change would still have been found."""

    index: int
    before: float
    after: float
    p_value: float


def change_points(values: Sequence[float]) -> list[ChangePoint]:
    """The change points of values in time order."""
    p_values: dict[int, float] = {}
    start = 0
    while (change := first_change(values[start:])) is not None:
        place, _, p_value = change
        start += place
        p_values[start] = p_value
    ends = [0, *p_values, len(values)]
    levels = [median(values[a:b]) for a, b in pairwise(ends)] if p_values else []
    return [
        ChangePoint(index, levels[n], levels[n + 1], p_values[index])
        for n, index in enumerate(ends[1:-1])
    ]


def first_change(values: Sequence[float]) -> tuple[int, int, float] | None:
    """The first change that a look finds: the number of values before it, the number of values at
    that look, and its p-value. None if no look finds any."""
    import numpy as np
    from scipy.special import stdtr

    size = len(values)
    if size < FIRST:
        return None
    looks, before, limits = _splits(size)
    statistics = _student(np.asarray(values, dtype="float64"), looks, before)
    above = np.flatnonzero(statistics > limits)
    if not len(above):
        return None
    look = int(looks[above[0]])
    (splits,) = np.nonzero(looks == look)
    best = splits[np.nanargmax(statistics[splits])]
    p_value = 2 * float(stdtr(look - 2, -statistics[best] / _WIDER))
    return int(before[best]), look, LEVEL * p_value * look**2 / _SPENT


@lru_cache(maxsize=64)
def _splits(size: int) -> tuple[np.ndarray[Any, Any], ...]:
    """For each look and split: the number of values, how many are before the split, and the limit
    of Student's t."""
    import numpy as np
    from scipy.special import stdtrit

    looks, before = np.tril_indices(size + 1)
    allowed = (looks >= FIRST) & (before >= LEAST) & (looks - before >= LEAST)
    looks, before = looks[allowed], before[allowed]
    numbers = np.arange(size + 1)
    limits = np.full(size + 1, np.inf)
    limits[FIRST:] = _WIDER * stdtrit(numbers[FIRST:] - 2, 1 - _SPENT / numbers[FIRST:] ** 2 / 2)
    return looks, before, limits[looks]


def _student(
    values: np.ndarray[Any, Any], looks: np.ndarray[Any, Any], before: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Student's |t| between the values on both sides; NaN if all are equal, 0 if the sides differ
    by less than SMALLEST."""
    import numpy as np

    centred = np.concatenate([[0.0], values - values[0]])
    sums, squares = centred.cumsum(), (centred**2).cumsum()
    after = looks - before
    left, right = sums[before] / before, (sums[looks] - sums[before]) / after
    rest = np.maximum(squares[looks] - before * left**2 - after * right**2, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(rest / (looks - 2) * (1 / before + 1 / after))
        statistics: np.ndarray[Any, Any] = np.abs(left - right) / error
    statistics[np.abs(left - right) < SMALLEST * np.abs(left + values[0])] = 0.0
    return statistics
