"""The detector of steady windows, by simulation of what it must find and must leave alone."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from make_logs import NGC, dllogger, write
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from dlperf_runner.measure import steady_state as steady
from dlperf_runner.measure.steady_state import Steadiness, measurements, steadiness
from dlperf_runner.results.load import load_results

WARMUP, TOTAL = 20, 120
STEPS = np.arange(TOTAL)
RUNS = 400
Series = Callable[[np.random.Generator], NDArray[np.float64]]


def noise(random: np.random.Generator, carried: float = 0.0) -> NDArray[np.float64]:
    """Rates around 100 with a standard deviation of 3, each with a share of the one before."""
    found = np.empty(TOTAL)
    level = random.normal(0, 3)
    for step in range(TOTAL):
        found[step] = level = carried * level + random.normal(0, 3 * math.sqrt(1 - carried**2))
    return 100 + found


def judged(runs: Sequence[ArrayLike], warmup: int = WARMUP) -> list[Steadiness | None]:
    return steadiness(range(1, TOTAL + 1), np.array(runs).tolist(), warmup, TOTAL)


def shares(make: Series) -> tuple[float, float]:
    """How many runs are said to have been measured too early, and how many to drift."""
    random = np.random.default_rng(11)
    found = judged([make(random) for _ in range(RUNS)])
    return (
        float(np.mean([run is not None and run.began_early for run in found])),
        float(np.mean([run is not None and run.drifts for run in found])),
    )


@pytest.mark.parametrize(("carried", "most"), [(0.0, 0.02), (0.5, 0.05)])
def test_false_alarms_are_rare(carried: float, most: float) -> None:
    """Two tests at 1 % each; neighbours that resemble each other cost a little."""
    early, drifts = shares(lambda random: noise(random, carried))
    assert early + drifts <= most + 3 * math.sqrt(most / RUNS)


def test_a_difference_that_does_not_matter_is_no_alarm() -> None:
    rise = 100 + np.linspace(0, 0.5, TOTAL)
    assert shares(lambda random: rise + random.normal(0, 0.01, TOTAL)) == (0, 0)


@pytest.mark.parametrize(
    ("shape", "early", "drifts"),
    [
        (np.where(STEPS < 35, 0.85, 1), (0.95, 1), (0, 0.02)),  # began in the warm-up
        (1 - 0.4 * np.exp(-STEPS / 12), (0.9, 1), (0, 0.05)),  # a transient that fades: no drift
        (np.linspace(1, 0.9, TOTAL), (0, 0.1), (0.9, 1)),
        (np.where(STEPS < WARMUP, 0.5, 1), (0, 0.02), (0, 0.05)),  # ended in time
    ],
    ids=["slow start", "fading", "drift", "in time"],
)
def test_windows_that_are_not_steady_are_found(
    shape: NDArray[np.float64], early: tuple[float, float], drifts: tuple[float, float]
) -> None:
    found = shares(lambda random: noise(random) * shape)
    for share, (least, most) in zip(found, (early, drifts), strict=True):
        assert least <= share <= most


def test_step_from_which_a_run_is_steady() -> None:
    random = np.random.default_rng(3)
    rates = noise(random) * np.where(np.arange(TOTAL) < 40, 0.7, 1)
    (found,) = judged([rates])
    assert found is not None
    assert found.steady_from_step == 41
    # 70 for the whole first tenth of the window, 100 for its second half.
    assert found.head_shift == pytest.approx(-0.3, abs=0.02)
    rows = {item.metric: (item.value, item.unit, item.estimator) for item in measurements(found)}
    assert rows["steady_from_step"] == (41, "step", "mser5")
    assert rows["window_head_shift"] == (round(100 * found.head_shift, 3), "%", "batch_means")
    assert rows["window_began_early"] == (1.0, "1", "t_test")
    assert rows["window_drifts"] == (0.0, "1", "mann_kendall")


def test_run_that_never_settles_has_no_steady_step() -> None:
    rates = np.linspace(1, 100, TOTAL).tolist()
    (found,) = judged([rates])
    assert found is not None
    assert found.drifts
    assert found.steady_from_step is None
    assert "steady_from_step" not in {item.metric for item in measurements(found)}


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_what_cannot_be_judged_is_not(bad: float) -> None:
    good = [100.0] * TOTAL
    assert judged([good, good], 101) == [None, None]  # 19 values
    first, second = judged([[*good[1:], bad], good])
    assert first is None
    assert second is not None


def test_runs_that_are_judged_together_are_judged_as_alone() -> None:
    random = np.random.default_rng(5)
    runs = [noise(random, 0.5) * np.linspace(1, end, TOTAL) for end in (1, 0.9, 0.97) * 5]
    assert judged(runs) == [one for run in runs for one in judged([run])]


def test_constant_rates_are_steady() -> None:
    (found,) = judged([[100.0] * TOTAL])
    assert found is not None
    assert (found.began_early, found.drifts, found.drift) == (False, False, 0.0)
    assert found.steady_from_step == 1


def test_mann_kendall_by_its_formula() -> None:
    """Values 1 2 3 5 4: S = 9 - 1 = 8, variance 5 * 4 * 15 / 18 = 16.67, z = 7 / 4.082 = 1.715."""
    assert steady.mann_kendall(np.array([[1.0, 2.0, 3.0, 5.0, 4.0]]))[0] == pytest.approx(
        1.7146, 1e-4
    )
    (statistic,) = steady.mann_kendall(np.ones((1, 16)))
    assert 2 * stats.norm.sf(statistic) == 1.0  # two-sided


def test_quantile_of_the_t_distribution() -> None:
    quantile = steady._T
    assert quantile == pytest.approx(stats.t.ppf(0.995, df=9), abs=1e-4)


def test_sen_slope_as_scipy_has_it() -> None:
    values = np.random.default_rng(5).normal(0, 1, 16).tolist()
    assert steady.sen_slope(np.array([values]))[0] == pytest.approx(stats.theilslopes(values).slope)


def test_mser_by_its_definition() -> None:
    """White: the d that makes the variance of the rest over their number least."""
    values = np.random.default_rng(9).normal(100, 3, 200)
    values[:32] -= 20
    means = values.reshape(-1, 5).mean(axis=1)
    errors = [means[d:].var() / (40 - d) for d in range(36)]
    assert steady.mser(values[None]).tolist() == [5 * int(np.argmin(errors))] == [35]
    assert steady.mser(values[None, :49]).tolist() == [-1]


def test_rates_that_the_rule_drops_are_no_part_of_the_window(tmp_path: Path) -> None:
    """NGC's script leaves out five rates behind the warm-up: they say nothing against a window
    that begins behind them."""
    for repeat in (1, 2):
        log = dllogger(414.73 + repeat, 1, amp=False, final=400.0)
        write(tmp_path / "bz256" / "1n1g" / f"rn50_b256_fp32_{repeat}.log", log)
    results = load_results(tmp_path, [NGC], with_series=True)
    metrics = results.frame.set_index("metric")["value"]
    assert set(metrics["window_began_early"]) == {0.0}
    assert set(metrics["window_head_shift"]) == {0.0}
    # A line every ten steps from the 201st on, which the program counts as 200.
    assert {series.warmup_steps for series in results.series} == {241}
