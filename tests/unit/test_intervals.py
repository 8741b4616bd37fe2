"""Intervals and tests against scipy, worked examples, and simulation of what they promise."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from scipy import stats

from dlperf_runner.compare.verdicts import NO_DIFFERENCE, case_verdict
from dlperf_runner.stats.intervals import (
    compare_samples,
    cv,
    mad,
    median_interval,
    outliers,
    ratio_interval,
)
from dlperf_runner.stats.ratios import relative_difference

FIVE = [384.19, 384.98, 385.37, 383.8, 384.61]

# Hollander and Wolfe, Nonparametric Statistical Methods (1973), p. 69: permeability of the
# chorioamnion at term and between the 12th and 26th week. One-sided P = 0.1272 with W = 35;
# the Hodges-Lehmann estimate is 0.305.
AT_TERM = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46]
EARLY = [1.15, 0.88, 0.90, 0.74, 1.21]


# ---- the median


@pytest.mark.parametrize("size", [2, 5, 6, 7, 10, 11, 15, 20, 101, 1000])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_ranks_as_the_binomial_distribution_of_scipy_has_them(size: int, level: float) -> None:
    found = median_interval(range(1, size + 1), level)
    rank = found.low
    assert found.high == size + 1 - rank
    assert found.coverage == pytest.approx(1 - 2 * stats.binom.cdf(rank - 1, size, 0.5))
    assert found.coverage >= level or rank == 1
    # The next narrower one would cover too little.
    assert 1 - 2 * stats.binom.cdf(rank, size, 0.5) < level


@pytest.mark.parametrize("values", [[], [5.0]])
def test_no_interval_of_less_than_two(values: list[float]) -> None:
    for found in (median_interval(values), ratio_interval(values, FIVE)):
        assert all(map(math.isnan, (found.low, found.high, found.coverage)))
    assert math.isnan(mad(values))
    assert math.isnan(cv(values))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_no_number_gives_no_statistic(bad: float) -> None:
    for statistic in (
        *(median_interval, mad, cv, outliers),
        *(partial(ratio_interval, FIVE), partial(compare_samples, FIVE)),
    ):
        with pytest.raises(ValueError, match="not finite"):
            statistic([1.0, 2.0, bad])


# ---- what the intervals promise, by simulation

Draw = Callable[[np.random.Generator, int], list[float]]


def normal(random: np.random.Generator, size: int) -> list[float]:
    return random.normal(1000, 10, size).tolist()


def skewed(random: np.random.Generator, size: int) -> list[float]:
    """Median 1000; now and then a run is much slower, as runs are."""
    return (1000 * np.exp(-random.exponential(0.02, size) + 0.02 * math.log(2))).tolist()


SIMULATED = 3000
# Four standard errors of a share of 95 % in so many simulations.
LEEWAY = 4 * math.sqrt(0.95 * 0.05 / SIMULATED)


@pytest.mark.parametrize("draw", [normal, skewed])
@pytest.mark.parametrize("size", [5, 7, 20])
def test_ratio_interval_covers_at_least_what_it_says(size: int, draw: Draw) -> None:
    random = np.random.default_rng(size)
    found = [
        ratio_interval([7.5 * value for value in draw(random, size)], draw(random, size), 0.95, 500)
        for _ in range(SIMULATED)
    ]
    held = np.mean([interval.low <= 7.5 <= interval.high for interval in found])
    assert held >= 0.95 - LEEWAY
    assert held <= 0.99  # nor is it so wide that it says nothing


def test_ratio_of_few_runs_claims_no_coverage() -> None:
    """It would be wrong: by the same simulation, two runs each cover about 69 %."""
    found = ratio_interval(FIVE[:2], FIVE[:2])
    assert found.low < 1 < found.high
    assert math.isnan(found.coverage)


@pytest.mark.parametrize("cases", [1, 6, 12])
@pytest.mark.parametrize(("sizes", "spreads"), [((20, 5), (0.1, 1)), ((6, 12), (2, 0.2))])
def test_interval_is_nowhere_inside_welchs_as_scipy_has_it(
    cases: int, sizes: tuple[int, int], spreads: tuple[float, float]
) -> None:
    random = np.random.default_rng([cases, *sizes])
    for _ in range(20):
        a, b = (random.normal(100, s, n) for s, n in zip(spreads, sizes, strict=True))
        found = relative_difference(a.tolist(), b.tolist(), cases)
        test = stats.ttest_ind(np.log(b), np.log(a), equal_var=False)
        low, high = np.expm1(test.confidence_interval(1 - 0.05 / cases))
        assert found.interval.low <= low + 1e-12
        assert found.interval.high >= high - 1e-12
        assert found.at_worst <= np.expm1(test.confidence_interval(0.9)[0]) + 1e-12
        assert found.interval.coverage >= 1 - 0.05 / cases


def test_a_noisy_few_beside_a_quiet_many_are_no_difference() -> None:
    """Ranks alone take it for one: 5 values of which 4 are above all 20 others."""
    quiet = [100 + n / 100 for n in range(-10, 10)]
    noisy = [98.9, 100.3, 101.2, 100.8, 100.5]
    result, found = compare_samples(quiet, noisy), relative_difference(quiet, noisy)
    assert result.p_value < 0.05
    assert case_verdict(result, found) == NO_DIFFERENCE
    # And it may be up to 1 % slower.
    assert -0.01 < found.at_worst < -0.002


# ---- ratios


@pytest.mark.parametrize("size", [4, 5, 8])
def test_medians_of_resamples_are_distributed_as_those_of_a_plain_bootstrap(size: int) -> None:
    """The ratio to a base without spread is the bootstrap distribution of the median itself, as
    scipy.stats.bootstrap makes it by resampling (Efron and Tibshirani 1993, chapter 13)."""
    values = np.random.default_rng(size).normal(100, 3, size).tolist()
    for level in (0.5, 0.8, 0.95):
        options = {"method": "percentile", "rng": np.random.default_rng(1)}
        bootstrap = stats.bootstrap(
            (values,), np.median, n_resamples=20_000, confidence_level=level, **options
        )
        reference = bootstrap.confidence_interval
        found = ratio_interval(values, [1.0] * 5, level, 20_000)
        assert found.low == pytest.approx(reference.low, rel=0.003)
        assert found.high == pytest.approx(reference.high, rel=0.003)


def test_ratio_interval_of_five_runs() -> None:
    """A bootstrap median of 5 is their least with P(Bin(5, 1/5) >= 3) = 0.058: with a base that
    does not vary, 2.5 % lie in the extreme."""
    found = ratio_interval([5.0, 3.0, 1.0, 2.0, 4.0], [2.0] * 5)
    assert (found.low, found.high, found.coverage) == (0.5, 2.5, 0.95)


def test_no_ratio_to_what_may_be_nothing() -> None:
    assert math.isnan(ratio_interval(FIVE, [0.0, 1.0, 1.0]).low)


# ---- spread and outliers


def test_spread() -> None:
    values = [1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]
    # Distances from the median 2: 1 1 0 0 2 4 7, whose median is 1.
    assert mad(values) == 1 == stats.median_abs_deviation(values)
    assert cv(values) == pytest.approx(stats.variation(values, ddof=1))
    assert math.isnan(cv([-1.0, 1.0]))


@pytest.mark.parametrize(
    ("values", "places"),
    [
        # Iglewicz and Hoaglin (1993), How to Detect and Handle Outliers: 0.6745 |x - median| / MAD
        # above 3.5. The MAD of 0 1 2 3 4 x is 1.5 around 2.5: the limit is 2.5 + 7.784.
        ([0.0, 1.0, 2.0, 3.0, 4.0, 10.28], []),
        ([10.29, 0.0, 1.0, 2.0, 3.0, 4.0], [0]),
        ([8.0, 8.0, 9.0, 8.0, 8.0], [2]),  # the mean distance is 1 / 5: 3.99, above 3.5
        ([8.0] * 5, []),
        ([1.0, 1.1, 0.9, 99.0], []),  # four are too few
    ],
)
def test_outliers_by_the_modified_z_score(values: list[float], places: list[int]) -> None:
    assert [n for n, flag in enumerate(outliers(values)) if flag] == places


# ---- two samples


def test_worked_example_of_hollander_and_wolfe() -> None:
    found = compare_samples(EARLY, AT_TERM)
    assert found.p_value == pytest.approx(2 * 0.1272, abs=1e-4)
    assert found.difference == pytest.approx(0.305)
    # U = 35 of 50 pairs, none tied: 35 above, 15 below.
    assert found.effect_size == pytest.approx(20 / 50)
    assert found.test == "Mann-Whitney, exact"
    assert found.least_p_value == pytest.approx(2 / math.comb(15, 5))


@pytest.mark.parametrize("sizes", [(2, 2), (3, 5), (5, 5), (7, 20), (40, 40), (80, 60)])
def test_p_value_as_scipy_has_it(sizes: tuple[int, int]) -> None:
    random = np.random.default_rng(sizes)
    a, b = random.normal(0, 1, sizes[0]).tolist(), random.normal(0.5, 1, sizes[1]).tolist()
    method = "exact" if sum(sizes) <= 100 else "asymptotic"
    reference = stats.mannwhitneyu(a, b, method=method).pvalue
    assert compare_samples(a, b).p_value == pytest.approx(reference)


@pytest.mark.parametrize("b", [[2.0, 2.0, 3.0, 4.0, 4.0], [1.0, 1.0, 2.0, 5.0, 6.0], [2.0] * 5])
def test_p_value_with_ties_as_all_permutations_have_it(b: list[float]) -> None:
    """scipy's exact method does not allow for ties; its permutation test of the rank sum does."""
    a = [1.0, 2.0, 2.0, 3.0, 3.0]

    def rank_sum(x: list[float], y: list[float]) -> float:
        return float(stats.rankdata([*x, *y])[: len(x)].sum())

    reference = stats.permutation_test((a, b), rank_sum, n_resamples=math.inf).pvalue
    found = compare_samples(a, b)
    assert found.p_value == pytest.approx(min(1, reference))
    assert found.test == "Mann-Whitney, exact with ties"


def test_equal_samples() -> None:
    for size in (5, 60):
        found = compare_samples([3.0] * size, [3.0] * size)
        assert (found.p_value, found.difference, found.effect_size) == (1.0, 0.0, 0.0)


def test_large_samples_have_an_interval_of_about_the_normal_one() -> None:
    random = np.random.default_rng(1)
    a, b = random.normal(100, 1, 60).tolist(), random.normal(103, 1, 60).tolist()
    interval = relative_difference(a, b).interval
    # Of the means' difference; this one is hardly wider.
    width = 2 * 1.96 * math.sqrt(2 / 60) / 100
    assert interval.low < 0.03 < interval.high
    assert interval.high - interval.low == pytest.approx(width, rel=0.25)
    assert interval.coverage == 0.95


def test_one_run_each_is_compared_without_pretending() -> None:
    found = compare_samples([10.0], [11.0])
    assert (found.difference, found.p_value) == (1.0, 1.0)
    relative = relative_difference([10.0], [11.0])
    assert relative.relative == pytest.approx(0.1)
    assert math.isnan(relative.interval.low) and math.isnan(relative.at_worst)


def test_two_runs_each_that_are_far_apart_say_nothing() -> None:
    found = relative_difference([0.01, 1e9], [1.0, 1.0], cases=12)
    assert found.interval.low == -1
    assert 1e300 < found.interval.high < math.inf
    with pytest.raises(ValueError, match="empty sample"):
        compare_samples([], [1.0])
