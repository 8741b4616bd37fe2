"""Check whether a run was steady in the measured window: sequences in, flags out.

The configured window gives the result; this check never changes it. The steps are compressed to 20
batch means (Schmeiser, Operations Research 30, 1982), which reduces the correlation between
neighbouring values.

- The window began too early if its first tenth differs from its second half, by more than 1 % of
  the rate and significantly: t-test at 1 % with the variance of the second half, because a
  transient distorts the variance of the first tenth.
- The window drifts if the rest of it has a trend: Mann-Kendall test at 1 % (Mann, Econometrica 13,
  1945; Kendall, Rank Correlation Methods), and more than 1 % from end to end by Sen's slope
  (Journal of the American Statistical Association 63, 1968).
- MSER-5 gives the first steady step (White, Simulation 69, 1997).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, median

from .estimators import Measurement

BATCHES = 20
SIGNIFICANCE = 0.01
RELEVANT = 0.01
MSER_BATCH = 5
_HEAD, _MIDDLE = BATCHES // 10, BATCHES // 2
_T = 3.2498  # Student's t, 9 degrees of freedom (10 means), upper 0.5 %
# A linear drift d over the whole window gives 0.7 d between the first tenth and the second half,
# and 0.9 d after the first tenth. The end of a warm-up is curved: the former exceeds the latter.
_BEND = 1.2


@dataclass(frozen=True)
class Steadiness:
    """`head_shift`: how far the first tenth of the window is above its second half. `drift`: how
    much the rest of the window rises from end to end. Both are fractions of the median rate.
    `steady_from_step`: the first step that MSER-5 keeps; None if it keeps less than half of them.
    At most one of `began_early` and `drifts` is true, the one that explains more."""

    head_shift: float
    drift: float
    began_early: bool
    drifts: bool
    steady_from_step: int | None


def steadiness(
    steps: Sequence[int], rates: Sequence[float], warmup_steps: int, total_steps: int
) -> Steadiness | None:
    """Judge the rates of a run, including those of the warm-up if the log has them. None if the
    window has fewer than 20 rates, or if a rate is not a positive finite number."""
    window = [
        rate for step, rate in zip(steps, rates, strict=True) if warmup_steps < step <= total_steps
    ]
    if len(window) < BATCHES or not (math.isfinite(sum(rates)) and min(rates) > 0):
        return None
    means = batch_means(window, BATCHES)
    middle = median(means)
    tail = means[_MIDDLE:]
    shift = fmean(means[:_HEAD]) - fmean(tail)
    chance = _T * _deviation(tail) * math.sqrt(1 / _HEAD + 1 / len(tail))
    early = abs(shift) > max(chance, RELEVANT * middle)
    rest = means[_HEAD:]
    drift = sen_slope(rest) * (len(rest) - 1) / middle
    drifts = abs(drift) > RELEVANT and mann_kendall(rest) < SIGNIFICANCE
    bends = abs(shift / middle) > _BEND * abs(drift)
    kept = mser(rates)
    return Steadiness(
        head_shift=shift / middle,
        drift=drift,
        began_early=early and (bends or not drifts),
        drifts=drifts and not (early and bends),
        steady_from_step=None if kept is None else steps[kept],
    )


def measurements(found: Steadiness) -> Iterator[Measurement]:
    """The same as rows of the frame: fractions of the rate in %, flags as 1 and 0."""
    if found.steady_from_step is not None:
        yield Measurement("steady_from_step", found.steady_from_step, "step", "mser5")
    yield Measurement("window_head_shift", round(100 * found.head_shift, 3), "%", "batch_means")
    yield Measurement("window_began_early", float(found.began_early), "1", "t_test")
    yield Measurement("window_drift", round(100 * found.drift, 3), "%", "sen_slope")
    yield Measurement("window_drifts", float(found.drifts), "1", "mann_kendall")


def batch_means(values: Sequence[float], number: int) -> list[float]:
    """Means of `number` groups of consecutive values, of equal length as far as possible."""
    size = len(values)
    ends = [size * n // number for n in range(number + 1)]
    return [_mean(values[ends[n] : ends[n + 1]]) for n in range(number)]


def _mean(values: Sequence[float]) -> float:
    """The mean of a few positive values, which need no exact summation; fmean is several times
    slower."""
    return sum(values) / len(values)


def _deviation(values: Sequence[float]) -> float:
    """The standard deviation of a sample; statistics.stdev is exact, but 20 times slower."""
    mean = fmean(values)
    return math.sqrt(math.fsum([(value - mean) ** 2 for value in values]) / (len(values) - 1))


def mann_kendall(values: Sequence[float]) -> float:
    """Two-sided p-value of the null hypothesis that there is no trend. Uses the normal
    approximation with continuity correction and tie-corrected variance; valid from 10 values on."""
    size = len(values)
    score = sum(
        [
            (later > value) - (later < value)
            for place, value in enumerate(values, start=1)
            for later in values[place:]
        ]
    )
    ties = [values.count(value) for value in set(values)]
    variance = _variance(size) - sum(map(_variance, ties))
    if score == 0 or variance <= 0:
        return 1.0
    return 2 * NormalDist().cdf(-(abs(score) - 1) / math.sqrt(variance))


def _variance(size: int) -> float:
    return size * (size - 1) * (2 * size + 5) / 18


def sen_slope(values: Sequence[float]) -> float:
    """The median of the slopes between all pairs, per index step."""
    size = len(values)
    return median(
        [(values[j] - values[i]) / (j - i) for i in range(size) for j in range(i + 1, size)]
    )


def mser(values: Sequence[float], batch: int = MSER_BATCH) -> int | None:
    """How many values to drop at the beginning to minimise the standard error of the mean of the
    rest. Works on means of `batch` values. None if it would drop half of the values or more, or if
    there are fewer than 10 means."""
    number = len(values) // batch
    if number < 10:
        return None
    means = [_mean(values[n * batch : (n + 1) * batch]) for n in range(number)]
    best, least = 0, math.inf
    # From the end: sums of the kept values, relative to one of them to avoid cancellation.
    around, total, squares = means[-1], 0.0, 0.0
    for start in range(number - 1, -1, -1):
        distance = means[start] - around
        total, squares = total + distance, squares + distance * distance
        kept = number - start
        if kept < 5:  # the last few values may be equal by chance
            continue
        error = max(squares - total * total / kept, 0.0) / kept**2
        if error <= least:
            best, least = start, error
    return best * batch if best < number // 2 else None
