"""Find the points where a sequence of measurements changes its level: numbers in, indices out.

E-divisive (Matteson and James, Journal of the American Statistical Association 109, 2014) with
Euclidean distances (alpha = 1), as Daly et al. use it for benchmarks of a database (ICPE 2020).
The candidate is the split with the largest energy statistic, of any segment or of the beginning of
one. It is a change point if at most 1 in 20 shuffles within the segments has a larger statistic.
The search then continues in the new segments. The method assumes no distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

LEVEL = 0.05
RESAMPLES = 199
LEAST = 3  # values on either side; with fewer than 7 in total, no split can be significant
_NUMBERS_AT_ONCE = 2_000_000
_SEED = 20140


@dataclass(frozen=True)
class ChangePoint:
    """`index` is the index of the first value of the new level. `before` and `after` are the
    medians of the values between this change point and its neighbours."""

    index: int
    before: float
    after: float
    p_value: float


def change_points(
    values: Sequence[float], level: float = LEVEL, resamples: int = RESAMPLES
) -> list[ChangePoint]:
    """The change points of values in time order. The result is deterministic."""
    import numpy as np

    if len(values) < 2 * LEAST:
        return []
    generator = np.random.default_rng(_SEED)
    series = np.asarray(values, dtype="float64")
    ends = [0, len(values)]
    found: dict[int, float] = {}
    while True:
        segments = [series[a:b] for a, b in pairwise(ends)]
        splits = [best_split(segment) for segment in segments]
        best = max(range(len(splits)), key=lambda n: splits[n][0])
        statistic, place = splits[best]
        if place is None or statistic <= 0:
            break
        # Take the largest statistic of all shuffled segments, because any segment could be split.
        shuffled = np.max([_shuffled(s, resamples, generator) for s in segments], axis=0)
        # The factor allows for rounding: sums in another order differ in the last digits.
        p_value = float((1 + (shuffled >= statistic * (1 - 1e-9)).sum()) / (resamples + 1))
        if p_value > level:
            break
        found[ends[best] + place] = p_value
        ends = sorted([*ends, ends[best] + place])
    levels = [median(values[a:b]) for a, b in pairwise(ends)]
    return [
        ChangePoint(index, levels[n], levels[n + 1], found[index])
        for n, index in enumerate(ends[1:-1])
    ]


def best_split(values: np.ndarray[Any, Any]) -> tuple[float, int | None]:
    """The largest energy statistic of the splits of a segment and of its beginnings, and the number
    of values before that split; 0 and None if the segment is too short."""
    import numpy as np

    size = len(values)
    if size < 2 * LEAST:
        return 0.0, None
    statistics = _statistics(np.abs(values[:, None] - values[None, :])[None])[0]
    place = int(statistics.argmax())
    return float(statistics[place]), int(_splits(size)[0][place])


def _splits(size: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Every split: the number of values before it, and the end of the values after it."""
    import numpy as np

    before, end = np.tril_indices(size + 1)[::-1]
    allowed = (before >= LEAST) & (end - before >= LEAST)
    return before[allowed], end[allowed]


def _statistics(distances: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The statistic of each split, for each distance matrix.

        Q = mn / (m + n) * (2 / mn * sum |x - y| - sum |x - x'| / C(m, 2) - sum |y - y'| / C(n, 2))

    over pairs of the m values before it and the n values after it.
    """
    before, end = _splits(distances.shape[-1])
    after = end - before
    sums = distances.cumsum(axis=1).cumsum(axis=2)
    inner, across = sums[:, before - 1, before - 1], sums[:, before - 1, end - 1]
    left, between = inner / 2, across - inner
    right = sums[:, end - 1, end - 1] / 2 - across + left
    energy = (
        2 * between / (before * after)
        - left / (before * (before - 1) / 2)
        - right / (after * (after - 1) / 2)
    )
    found: np.ndarray[Any, Any] = energy * before * after / (before + after)
    return found


def _shuffled(
    values: np.ndarray[Any, Any], resamples: int, generator: np.random.Generator
) -> np.ndarray[Any, Any]:
    """The largest statistic of each of `resamples` shuffles of a segment."""
    import numpy as np

    size = len(values)
    if size < 2 * LEAST:
        return np.zeros(resamples)
    largest: list[np.ndarray[Any, Any]] = []
    left = resamples
    while left:
        number = min(left, max(1, _NUMBERS_AT_ONCE // size**2))
        samples = generator.permuted(np.tile(values, (number, 1)), axis=1)
        distances = np.abs(samples[:, :, None] - samples[:, None, :])
        largest.append(_statistics(distances).max(axis=1))
        left -= number
    return np.concatenate(largest)
