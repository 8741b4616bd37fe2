"""The spread between campaigns of the same thing: numbers in, numbers out.

Runs of one campaign share its day: temperature, neighbours, placement, a fresh start. The model is
the one-way random-effects analysis of variance, for the logarithm of the throughput:

    log(run) = case + campaign + run's own noise

with the variance components *between* campaigns and *within* one. Campaigns of unequal size are
treated by the unweighted means of Thomas and Hultquist (Annals of Statistics 6, 1978): the variance
of the campaigns' means, and the harmonic mean of their sizes. The interval of the component between
campaigns is that of Williams (Biometrika 49, 1962). Logarithms make all numbers relative: 0.005 is
0.5 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, harmonic_mean, variance

from .intervals import LEVEL, ConfidenceInterval
from .ratios import student

# Two campaigns would need a factor of 12.7 in place of 1.96, and could show hardly anything.
LEAST_CAMPAIGNS = 3


@dataclass(frozen=True)
class Spread:
    """The results of several campaigns of one case.

    `campaigns` of `runs` runs in all. `variance_of_means` is the variance of the campaigns' means,
    which has both components in it; `variance_within` is pooled over the campaigns; both are of
    logarithms. `runs_per_campaign` is the harmonic mean of the campaigns' sizes.
    """

    campaigns: int
    runs: int
    runs_per_campaign: float
    variance_of_means: float
    variance_within: float

    @property
    def between(self) -> float:
        """The standard deviation between campaigns, 0.005 for 0.5 %. 0 if the campaigns differ by
        no more than their runs explain."""
        explained = self.variance_within / self.runs_per_campaign
        return math.sqrt(max(0.0, self.variance_of_means - explained))

    @property
    def within(self) -> float:
        """The standard deviation of the runs of one campaign."""
        return math.sqrt(self.variance_within)


def estimate(campaigns: Sequence[Sequence[float]]) -> Spread | None:
    """The spread of a case from the throughput of its runs in each campaign. None for fewer than 3
    campaigns, or if no campaign has two runs. Raises ValueError for a campaign without a run and
    for a throughput that is not above 0."""
    logs = [[math.log(value) for value in values] for values in campaigns]
    runs = sum(map(len, logs))
    if not all(logs):
        raise ValueError("a campaign has no run")
    if len(logs) < LEAST_CAMPAIGNS or runs == len(logs):
        return None
    squares = sum(variance(values) * (len(values) - 1) for values in logs if len(values) > 1)
    return Spread(
        campaigns=len(logs),
        runs=runs,
        runs_per_campaign=harmonic_mean([len(values) for values in logs]),
        variance_of_means=variance([fmean(values) for values in logs]),
        variance_within=squares / (runs - len(logs)),
    )


def between_interval(spread: Spread) -> ConfidenceInterval:
    """The interval of `between`. It covers at least LEVEL for normal noise. With three campaigns
    it is wide: its upper end is some six times the estimate."""
    from scipy.special import chdtri, fdtri

    free, free_within = spread.campaigns - 1, spread.runs - spread.campaigns
    of_runs = spread.variance_within / spread.runs_per_campaign
    tail = (1 - LEVEL) / 2

    def end(tail_above: float) -> float:
        """The variance whose upper tail has that probability; chdtri takes upper tails."""
        explained = of_runs * float(fdtri(free, free_within, 1 - tail_above))
        scale = free / float(chdtri(free, tail_above))
        return math.sqrt(max(0.0, (spread.variance_of_means - explained) * scale))

    return ConfidenceInterval(end(tail), end(1 - tail), LEVEL)


def difference_error(spread: Spread, n_a: int, n_b: int) -> float:
    """The standard error of the difference, in logarithms, of two campaigns with so many runs.
    Fewer runs than those of the estimate widen it by what they scatter more. More do not narrow it,
    because few campaigns do not tell the components well enough."""
    fewer = max(0.0, 1 / n_a + 1 / n_b - 2 / spread.runs_per_campaign)
    return math.sqrt(2 * spread.variance_of_means + fewer * spread.variance_within)


def difference_half_width(spread: Spread, n_a: int, n_b: int, level: float = LEVEL) -> float:
    """The largest expected difference, in logarithms, of two campaigns with equal speed: by
    Student's t-test, which is exact for campaigns with as many runs as those of the estimate."""
    return student(spread.campaigns - 1, level) * difference_error(spread, n_a, n_b)
