"""How many runs a case needs: numbers in, numbers out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from .intervals import FEW, median_interval


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
