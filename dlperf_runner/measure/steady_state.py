"""Check whether runs were steady in the measured window: arrays in, flags out.

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
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from .estimators import Measurement

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Rates = NDArray[np.float64]  # a row per run, a column per printed rate

BATCHES = 20
SIGNIFICANCE = 0.01
RELEVANT = 0.01
MSER_BATCH = 5
_HEAD, _MIDDLE = BATCHES // 10, BATCHES // 2
_Z = NormalDist().inv_cdf(1 - SIGNIFICANCE / 2)
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
    steps: Sequence[int], runs: Sequence[Sequence[float]], warmup_steps: int, total_steps: int
) -> list[Steadiness | None]:
    """Judge runs that printed the same steps, by their rates, including those of the warm-up if the
    logs have them. None for each run if the window has fewer than 20 rates, or for a run with a
    rate that is not a positive finite number."""
    from ..core.arrays import np

    at = np.asarray(steps)
    rates = np.asarray(runs, dtype=float)
    window = rates[:, (warmup_steps < at) & (at <= total_steps)]
    if window.shape[1] < BATCHES:
        return [None] * len(rates)
    usable = np.isfinite(rates).all(axis=1) & (rates > 0).all(axis=1)
    rates[~usable] = window[~usable] = 1.0
    means = batch_means(window, BATCHES)
    middle = _medians(means)
    tail, rest = means[:, _MIDDLE:], means[:, _HEAD:]
    shift = means[:, :_HEAD].mean(axis=1) - tail.mean(axis=1)
    chance = _T * tail.std(axis=1, ddof=1) * math.sqrt(1 / _HEAD + 1 / tail.shape[1])
    early = np.abs(shift) > np.maximum(chance, RELEVANT * middle)
    drift = sen_slope(rest) * (rest.shape[1] - 1) / middle
    drifts = (np.abs(drift) > RELEVANT) & (mann_kendall(rest) > _Z)
    bends = np.abs(shift / middle) > _BEND * np.abs(drift)
    columns = (
        usable,
        shift / middle,
        drift,
        early & (bends | ~drifts),
        drifts & ~(early & bends),
        mser(rates),
    )
    return [
        Steadiness(head, slope, began_early, drifted, None if kept < 0 else steps[kept])
        if valid
        else None
        for valid, head, slope, began_early, drifted, kept in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]


def measurements(result: Steadiness) -> Iterator[Measurement]:
    """The same as rows of the frame: fractions of the rate in %, flags as 1 and 0."""
    if result.steady_from_step is not None:
        yield Measurement("steady_from_step", result.steady_from_step, "step", "mser5")
    yield Measurement("window_head_shift", round(100 * result.head_shift, 3), "%", "batch_means")
    yield Measurement("window_began_early", float(result.began_early), "1", "t_test")
    yield Measurement("window_drift", round(100 * result.drift, 3), "%", "sen_slope")
    yield Measurement("window_drifts", float(result.drifts), "1", "mann_kendall")


def batch_means(values: Rates, number: int) -> Rates:
    """Means of `number` groups of consecutive values of each run, of equal length as far as
    possible."""
    from ..core.arrays import np

    ends = np.arange(number + 1) * values.shape[1] // number
    means: Rates = np.add.reduceat(values, ends[:-1], axis=1) / np.diff(ends)
    return means


def mann_kendall(values: Rates) -> Rates:
    """The statistic of each run, without its sign; normally distributed if there is no trend. With
    continuity correction and tie-corrected variance; valid from 10 values on."""
    from ..core.arrays import np

    size = values.shape[1]
    one, later = np.triu_indices(size, 1)
    score = np.abs(np.sign(values[:, later] - values[:, one]).sum(axis=1))
    equal = (values[:, :, None] == values[:, None, :]).sum(axis=2)
    variance = _variance(size) - (_variance(equal) / equal).sum(axis=1)
    usable = (score > 0) & (variance > 0)
    return np.where(usable, (score - 1) / np.sqrt(np.where(usable, variance, 1)), 0)


def _variance(size: Any) -> Any:
    return size * (size - 1) * (2 * size + 5) / 18


def sen_slope(values: Rates) -> Rates:
    """The median of the slopes between all pairs of each run, per index step."""
    from ..core.arrays import np

    one, later = np.triu_indices(values.shape[1], 1)
    return _medians((values[:, later] - values[:, one]) / (later - one))


def _medians(values: Rates) -> Rates:
    """The median of each row. np.median would import numpy.ma."""
    from ..core.arrays import np

    size = values.shape[1]
    ordered = np.sort(values, axis=1)
    medians: Rates = (ordered[:, (size - 1) // 2] + ordered[:, size // 2]) / 2
    return medians


def mser(values: Rates) -> NDArray[np.int64]:
    """The number of values to drop at the beginning of each run to minimise the standard error of
    the mean of the rest. Works on means of MSER_BATCH values. -1 if it would drop half of the
    values or more, or if there are fewer than 10 means."""
    from ..core.arrays import np

    number = values.shape[1] // MSER_BATCH
    if number < 10:
        return np.full(len(values), -1)
    means = values[:, : number * MSER_BATCH].reshape(len(values), number, MSER_BATCH).mean(axis=2)
    # Sums of the kept values, relative to one of them to avoid cancellation.
    distance = (means - means[:, -1:])[:, ::-1]
    total = distance.cumsum(axis=1)[:, ::-1]
    squares = (distance * distance).cumsum(axis=1)[:, ::-1]
    kept = np.arange(number, 0, -1)
    errors = np.maximum(squares - total * total / kept, 0) / kept**2
    best = errors[:, kept >= 5].argmin(axis=1)  # the last few values may be equal by chance
    return np.where(best < number // 2, best * MSER_BATCH, -1)
