"""Statistics for small samples of runs: intervals, spread, outliers, and two-sample comparison.

Sequences of numbers in, numbers out. The order of the values does not matter. A value that is not
finite raises ValueError. A result that cannot be computed is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEVEL = 0.95
RESAMPLES = 10_000
# Below this size, a bootstrap covers clearly less than its nominal level, and outliers are not
# recognisable.
FEW = 5
OUTLIER_SCORE = 3.5
# Two samples with up to this many values in total are compared exactly, larger ones by normal
# approximation.
EXACT_VALUES = 100


@dataclass(frozen=True)
class ConfidenceInterval:
    """From `low` to `high`. `coverage` is the probability that such an interval contains the true
    value: the actual probability if known, else the nominal one, else NaN."""

    low: float
    high: float
    coverage: float

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """`low` and `high`; None if they are unknown."""
        return (None, None) if math.isnan(self.low) else (self.low, self.high)


UNKNOWN = ConfidenceInterval(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class SampleComparison:
    """The amount by which sample b is above sample a, the baseline. `difference` is the
    Hodges-Lehmann estimate: the median of all b - a. `p_value` is two-sided, for the null
    hypothesis of no shift; `least_p_value` is the smallest possible one for these sample sizes.
    `effect_size` is Cliff's delta, from -1 (every b is below every a) to 1."""

    difference: float
    p_value: float
    least_p_value: float
    test: str
    effect_size: float


def median_interval(values: Sequence[float], level: float = LEVEL) -> ConfidenceInterval:
    """The distribution-free interval of the median, between two order statistics: the narrowest
    symmetric one that covers at least `level` or, if even the range covers less, the range (for 5
    values, 1 - 2 / 2**5 = 93.75 %). `coverage` is exact for any continuous distribution. NaN for
    fewer than 2 values."""
    ordered = _checked(values)
    if len(ordered) < 2:
        return UNKNOWN
    rank, coverage = median_rank(len(ordered), level)
    return ConfidenceInterval(ordered[rank - 1], ordered[-rank], coverage)


def ratio_interval(
    values: Sequence[float],
    base_values: Sequence[float],
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> ConfidenceInterval:
    """Percentile bootstrap of the median of `values` over the median of `base_values`, which are
    resampled independently.

    The random seed depends only on the two sizes: the same values give the same interval, in any
    order and unit. With 5 values each, it nearly reaches the extremes and covers somewhat more than
    `level`; with fewer it covers less (about 70 % for 2), and `coverage` is NaN. The interval is
    NaN if either sample has fewer than 2 values, or if a base value is 0 or less.
    """
    import numpy as np

    ordered, base = _checked(values), _checked(base_values)
    if min(len(ordered), len(base)) < 2 or base[0] <= 0:
        return UNKNOWN
    above, below, times = _drawn(len(ordered), len(base), resamples)
    ratios = np.asarray(ordered)[above].mean(axis=0) / np.asarray(base)[below].mean(axis=0)
    order = ratios.argsort()
    cut = int((1 - level) / 2 * resamples)
    ends = times[order].cumsum().searchsorted([cut, resamples - 1 - cut], side="right")
    low, high = ratios[order[ends]]
    coverage = level if min(len(ordered), len(base)) >= FEW else math.nan
    return ConfidenceInterval(float(low), float(high), coverage)


def mad(values: Sequence[float]) -> float:
    """Median absolute deviation from the median, unscaled (not converted to the standard deviation
    of a normal distribution); NaN for fewer than 2 values."""
    if len(_checked(values)) < 2:
        return math.nan
    middle = median(values)
    return median(abs(value - middle) for value in values)


def cv(values: Sequence[float]) -> float:
    """Standard deviation (n - 1) divided by the mean; NaN for fewer than 2 values or a mean of
    0."""
    if len(_checked(values)) < 2 or not (mean := fmean(values)):
        return math.nan
    return stdev(values) / abs(mean)


def outliers(values: Sequence[float]) -> list[bool]:
    """Flag outliers by the modified z-score of Iglewicz and Hoaglin: 0.6745 times the distance from
    the median, divided by the MAD, above 3.5. If more than half of the values are equal, the MAD is
    0; then the mean absolute deviation replaces it, with the factor 1 / 1.2533. Fewer than 5 values
    have no outliers. A flag is a reason to look at a run, not to exclude it."""
    if len(_checked(values)) < FEW:
        return [False] * len(values)
    middle = median(values)
    distances = [abs(value - middle) for value in values]
    scale = median(distances) / 0.6745 or fmean(distances) * math.sqrt(math.pi / 2)
    return [distance > OUTLIER_SCORE * scale for distance in distances]


def compare_samples(a: Sequence[float], b: Sequence[float]) -> SampleComparison:
    """The rank-sum test of Wilcoxon, Mann and Whitney, and the Hodges-Lehmann difference. Up to 100
    values in total, the p-value is exact: from the permutation distribution of the observed
    (mid)ranks, which accounts for ties. Raises ValueError for an empty sample."""
    first, second = _checked(a), _checked(b)
    if not first or not second:
        raise ValueError("cannot compare an empty sample")
    differences = [y - x for x in first for y in second]
    above, below = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    test, p_value = _rank_sum_test(first, second)
    return SampleComparison(
        difference=median(differences),
        p_value=p_value,
        least_p_value=min(1.0, 2 / math.comb(len(a) + len(b), len(a))),
        test=test,
        effect_size=(above - below) / len(differences),
    )


def _checked(values: Sequence[float]) -> list[float]:
    if not all(math.isfinite(value) for value in values):
        raise ValueError("cannot compute a statistic of a value that is not finite")
    return sorted(values)


@cache
def median_rank(size: int, level: float = LEVEL) -> tuple[int, float]:
    """The rank k such that the k-th smallest and the k-th largest value enclose the median, and the
    coverage. The median lies outside if fewer than k of n fair coins fall on one side."""
    rank, below, coverage = 1, 1, 1 - 2 / 2**size
    while rank < size // 2:
        below += math.comb(size, rank)
        wider = 1 - 2 * below / 2**size
        if wider < level:
            break
        rank, coverage = rank + 1, wider
    return rank, coverage


@lru_cache(maxsize=64)
def _drawn(
    size: int, base_size: int, resamples: int
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """The indices of the ordered values that form the medians of the resamples of both samples, and
    how often each combination occurs: few values have few distinct medians."""
    import numpy as np

    random = np.random.default_rng([size, base_size])
    drawn = (*_middles(size, resamples, random), *_middles(base_size, resamples, random))
    shape = (size, size, base_size, base_size)
    # Encode each row as one number: np.unique on rows is ten times slower.
    codes, times = np.unique(np.ravel_multi_index(drawn, shape), return_counts=True)
    places = np.array(np.unravel_index(codes, shape))
    return places[:2], places[2:], times


def _middles(size: int, resamples: int, random: np.random.Generator) -> NDArray[np.intp]:
    """The two middle indices of resamples with replacement, drawn directly: each index comes from a
    uniform number, and the middle one of n uniform numbers has a beta distribution."""
    import numpy as np

    middle = (size + 1) // 2
    first = second = random.beta(middle, size + 1 - middle, resamples)
    if size % 2 == 0:
        # The second is the smallest of the rest, which are uniform above the first.
        second = first + (1 - first) * (1 - random.random(resamples) ** (1 / (size - middle)))
    places = np.array([first, second]) * size
    return np.minimum(places.astype(np.intp), size - 1)


def _rank_sum_test(a: Sequence[float], b: Sequence[float]) -> tuple[str, float]:
    together = sorted([*a, *b])
    if len(together) > EXACT_VALUES:
        from scipy.stats import mannwhitneyu

        equal = together[0] == together[-1]
        p_value = 1.0 if equal else float(mannwhitneyu(a, b, method="asymptotic").pvalue)
        return "Mann-Whitney, normal approximation", p_value
    # Twice the midrank of equal values, which is an integer.
    doubled = {
        value: 2 * together.index(value) + together.count(value) + 1 for value in set(together)
    }
    counts = _subset_sums(tuple(doubled[value] for value in together), len(a))
    rank_sum = sum(doubled[value] for value in a)
    tail = min(float(counts[: rank_sum + 1].sum()), float(counts[rank_sum:].sum()))
    name = "Mann-Whitney, exact" + ("" if len(doubled) == len(together) else " with ties")
    return name, min(1.0, 2 * tail / float(counts.sum()))


@cache
def _subset_sums(numbers: tuple[int, ...], size: int) -> NDArray[np.float64]:
    """The number of subsets of that size, by sum."""
    import numpy as np

    counts = np.zeros((size + 1, sum(numbers) + 1))
    counts[0, 0] = 1
    for number in numbers:
        counts[1:, number:] += counts[:-1, :-number].copy()
    by_sum: NDArray[np.float64] = counts[size]
    return by_sum


@cache
def difference_rank(n_a: int, n_b: int, level: float) -> tuple[int, float]:
    """The rank k such that the k-th smallest and the k-th largest of all differences enclose the
    shift, and the coverage. The shift lies outside if Mann and Whitney's U is below k."""
    pairs = n_a * n_b
    if n_a + n_b > EXACT_VALUES:
        from statistics import NormalDist

        spread = math.sqrt(pairs * (n_a + n_b + 1) / 12)
        z = NormalDist().inv_cdf((1 + level) / 2)
        return max(1, math.floor(pairs / 2 - z * spread)), level
    sums = _subset_sums(tuple(range(1, n_a + n_b + 1)), n_a)
    below = sums[n_a * (n_a + 1) // 2 :].cumsum() / math.comb(n_a + n_b, n_a)  # P(U <= index)
    rank = 1
    while rank < pairs // 2 and 1 - 2 * float(below[rank]) >= level:
        rank += 1
    return rank, 1 - 2 * float(below[rank - 1])
