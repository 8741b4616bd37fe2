"""Intervals of ratios: of two samples of runs, of many cases at once, and to a published number.

Sequences of positive numbers in, numbers out. What cannot be computed is NaN. docs/statistics.md
says how often these intervals are wrong, by simulation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, variance

from .intervals import LEVEL, UNKNOWN, ConfidenceInterval, difference_rank

# With two runs the spread is hardly known, and two that agree by chance look certain.
LEAST_RUNS = 3
# The ratio of their sizes from which on samples get Cochran and Cox's quantile.
UNLIKE_SIZES = 1.4


@dataclass(frozen=True)
class LogRatio:
    """The difference of the means of the logarithms of two samples, with its standard error and
    the degrees of freedom of that (Welch 1947)."""

    value: float
    error: float
    freedom: float

    def interval(self, level: float) -> ConfidenceInterval:
        """Student's interval, as a relative difference."""
        if math.isnan(self.error):
            return UNKNOWN
        reach = student(self.freedom, level) * self.error if self.error else 0.0
        low, high = finite_exp(self.value - reach) - 1, finite_exp(self.value + reach) - 1
        return ConfidenceInterval(low, high, level)


@dataclass(frozen=True)
class RelativeDifference:
    """The amount by which sample b is above sample a, as a fraction of a.

    `relative` is the median of all quotients b / a (Hodges and Lehmann), minus 1. `interval`
    contains the true value, together with the intervals of all other cases. `at_worst` is the lower
    bound of this case alone, with a confidence of 95 %.
    """

    relative: float
    interval: ConfidenceInterval
    at_worst: float
    log_ratio: LogRatio


def relative_difference(
    a: Sequence[float], b: Sequence[float], cases: float = 1
) -> RelativeDifference:
    """The relative difference of one of `cases` cases, each of which gets the share (1 - LEVEL) /
    cases of the probability of error (Bonferroni).

    The interval is between two of the ordered quotients (Moses), whose coverage is exact if both
    samples have the same distribution, and too narrow if they scatter differently. So each bound is
    that of a t-interval of the logarithms (`_t_interval`) where it is farther out, or where small
    samples have no interval of quotients. `at_worst` likewise, with the whole 5 % on one side,
    where Welch's interval is good enough.
    """
    if not a or not b or min(*a, *b) <= 0:
        nothing = LogRatio(math.nan, math.nan, math.nan)
        return RelativeDifference(math.nan, UNKNOWN, math.nan, nothing)
    quotients = sorted(y / x - 1 for x in a for y in b)
    logs = log_ratio(a, b)
    together = 1 - (1 - LEVEL) / cases
    one_sided = 1 - 2 * (1 - LEVEL)
    between = [_between(quotients, len(a), len(b), level) for level in (together, one_sided)]
    whole = _wider(between[0], _t_interval(a, b, logs, together))
    alone = _wider(between[1], logs.interval(one_sided))
    return RelativeDifference(median(quotients), whole, alone.low, logs)


def log_ratio(a: Sequence[float], b: Sequence[float]) -> LogRatio:
    """The logarithm of b / a; its error is NaN if either sample has fewer than 2 values."""
    value = fmean(map(math.log, b)) - fmean(map(math.log, a))
    if min(len(a), len(b)) < 2:
        return LogRatio(value, math.nan, math.nan)
    return LogRatio(value, *_welch(_of_mean(a), _of_mean(b)))


def _of_mean(values: Sequence[float]) -> tuple[float, int]:
    """The variance of the mean of the logarithms, and its degrees of freedom."""
    return variance(map(math.log, values)) / len(values), len(values) - 1


def _t_interval(
    a: Sequence[float], b: Sequence[float], ratio: LogRatio, level: float
) -> ConfidenceInterval:
    """The interval of the ratio b / a of two samples that may scatter differently: Welch's, whose
    degrees of freedom are an estimate. They come out too large just where the noisier sample
    happens to lie close together, which matters far out in the tails, so they are reduced by one.
    That is not enough if the sizes differ: then the quantile is the mean of those of both samples,
    weighted by the variances of their means (Cochran and Cox, Experimental Designs, 1950)."""
    if not ratio.error > 0:
        return ratio.interval(level)
    sizes = sorted((len(a), len(b)))
    quantile = student(max(sizes[0] - 1, ratio.freedom - 1), level)
    if sizes[1] >= UNLIKE_SIZES * sizes[0]:
        parts = (_of_mean(a), _of_mean(b))
        weighted = sum(squared * student(freedom, level) for squared, freedom in parts)
        quantile = max(student(ratio.freedom, level), weighted / ratio.error**2)
    reach = quantile * ratio.error
    low, high = finite_exp(ratio.value - reach) - 1, finite_exp(ratio.value + reach) - 1
    return ConfidenceInterval(low, high, level)


def pooled_interval(ratios: Sequence[LogRatio]) -> ConfidenceInterval:
    """The interval of the mean relative difference of several cases, each with the same weight.
    NaN if no case has an error."""
    certain = [ratio for ratio in ratios if not math.isnan(ratio.error)]
    if not certain:
        return UNKNOWN
    error, freedom = _welch(*((ratio.error**2, ratio.freedom) for ratio in certain))
    mean = fmean(ratio.value for ratio in certain)
    return LogRatio(mean, error / len(certain), freedom).interval(LEVEL)


def published_interval(
    values: Sequence[float],
    published: float,
    runs: Sequence[float] = (),
    repeats: int | None = None,
) -> ConfidenceInterval:
    """The interval of the median of `values` divided by a published median, which varies, too: by
    its single `runs`, if they were published; else it is taken to be the median of `repeats` runs
    that scatter like `values` (of 1 run, if the publication does not state how many). Student's
    interval of the logarithms; NaN for fewer than 3 values."""
    if len(values) < LEAST_RUNS or min(*values, *runs, published) <= 0:
        return UNKNOWN
    logs = published_ratio(values, published, runs, repeats)
    reach = student(logs.freedom, LEVEL) * logs.error if logs.error else 0.0
    ratio = median(values) / published
    return ConfidenceInterval(ratio * finite_exp(-reach), ratio * finite_exp(reach), LEVEL)


def published_ratio(
    values: Sequence[float],
    published: float,
    runs: Sequence[float] = (),
    repeats: int | None = None,
) -> LogRatio:
    """The logarithm of the ratio of `published_interval`, all numbers being positive; its error is
    NaN for fewer than 3 values."""
    value = math.log(median(values) / published)
    if len(values) < LEAST_RUNS:
        return LogRatio(value, math.nan, math.nan)
    measured = variance([math.log(value) for value in values])
    size, freedom = len(values), float(len(values) - 1)
    if len(runs) > 1:
        other = variance([math.log(value) for value in runs])
        parts = (
            (measured * of_median(size), freedom),
            (other * of_median(len(runs)), len(runs) - 1),
        )
        return LogRatio(value, *_welch(*parts))
    return LogRatio(
        value, math.sqrt(measured * (of_median(size) + of_median(repeats or 1))), freedom
    )


def total(ratios: Sequence[LogRatio]) -> LogRatio:
    """The sum of independent ratios; 0 without error of none."""
    value = sum(ratio.value for ratio in ratios)
    return LogRatio(value, *_welch(*((ratio.error**2, ratio.freedom) for ratio in ratios)))


def without(ratio: LogRatio, part: LogRatio) -> LogRatio:
    """The rest of a ratio after an independent part of it."""
    return total([ratio, LogRatio(-part.value, part.error, part.freedom)])


def _between(
    ordered: Sequence[float], n_a: int, n_b: int, level: float
) -> ConfidenceInterval | None:
    """Between two of the ordered quotients; None if even all of them cover less."""
    rank, coverage = difference_rank(n_a, n_b, level)
    if coverage < level or min(n_a, n_b) < 2:
        return None
    return ConfidenceInterval(ordered[rank - 1], ordered[-rank], coverage)


def _wider(quotients: ConfidenceInterval | None, welch: ConfidenceInterval) -> ConfidenceInterval:
    """From the lower of the two lower bounds to the higher of the two higher ones."""
    if quotients is None:
        return welch
    if quotients.low <= welch.low and welch.high <= quotients.high:
        return quotients
    low, high = min(quotients.low, welch.low), max(quotients.high, welch.high)
    return ConfidenceInterval(low, high, welch.coverage)


def _welch(*parts: tuple[float, float]) -> tuple[float, float]:
    """The standard error of a sum, and its degrees of freedom, from the variances of its parts and
    the degrees of freedom of those (Satterthwaite 1946, Welch 1947)."""
    total = sum(squared for squared, _ in parts)
    spread = sum(squared**2 / freedom for squared, freedom in parts)
    return math.sqrt(total), total**2 / spread if spread else math.inf


def student(freedom: float, level: float) -> float:
    """The quantile of Student's distribution for a two-sided interval."""
    from scipy.special import stdtrit

    return float(stdtrit(min(freedom, 1e9), (1 + level) / 2))


def finite_exp(value: float) -> float:
    """Never infinite, which JSON cannot hold: two runs far apart have a very wide interval."""
    return math.exp(min(value, 700.0))


def of_median(size: int) -> float:
    """The variance of the median of a normal sample, over the variance of one value. Exact for 1
    and very many values, within 2 % for odd numbers between, too large for few even ones."""
    return math.pi / (2 * size + math.pi - 2)
