"""What must hold of statistics whatever is measured: order and units do not matter, and no number
comes of nothing."""

import math
from typing import Any

import pandas as pd
import pytest
from frame_rows import Row, cases, frame, row
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from dlperf_runner.core.identity import topology_text
from dlperf_runner.measure.steady_state import BATCHES, steadiness
from dlperf_runner.report import case_tables, markdown, result_files
from dlperf_runner.report.terminal import PIPE, Screen
from dlperf_runner.stats.intervals import (
    ConfidenceInterval,
    compare_samples,
    cv,
    mad,
    median_interval,
    outliers,
    ratio_interval,
)
from dlperf_runner.stats.notes import case_notes
from dlperf_runner.stats.ratios import relative_difference
from dlperf_runner.stats.summary import summarize

RATES = st.floats(0.01, 1e9, allow_nan=False, allow_infinity=False)
SAMPLES = st.lists(RATES, min_size=1, max_size=12)
# Powers of two, so that scaling rounds nothing.
SCALES = st.integers(-20, 20).map(lambda power: 2.0**power)
TOPOLOGIES = st.sampled_from(["1n1g", "1n2g", "2n8g", "10n8g"])
RESAMPLES = 200

EXAMPLES = settings(max_examples=30, deadline=None)


@st.composite
def runs(draw: st.DrawFn) -> list[Row]:
    """Repeats of some cases; some are invalid, some without a value."""
    found = []
    for topology in draw(st.lists(TOPOLOGIES, unique=True, max_size=3)):
        for repeat, value in enumerate(draw(SAMPLES), start=1):
            changes: dict[str, Any] = {}
            if draw(st.integers(0, 5)) == 0:
                changes = {"valid": False, "why_invalid": "throttled"}
            found.append(row(value, topology, repeat, **changes))
    return found


def scaled(interval: ConfidenceInterval, scale: float) -> ConfidenceInterval:
    return ConfidenceInterval(interval.low * scale, interval.high * scale, interval.coverage)


def same(one: ConfidenceInterval, other: ConfidenceInterval) -> bool:
    numbers = zip(vars(one).values(), vars(other).values(), strict=True)
    return all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in numbers)


@EXAMPLES
@given(SAMPLES, SAMPLES, st.randoms(use_true_random=False))
def test_order_of_values_does_not_matter(a: list[float], b: list[float], random: Any) -> None:
    shuffled = random.sample(a, len(a))
    assert same(median_interval(a), median_interval(shuffled))
    assert same(ratio_interval(a, b, 0.95, RESAMPLES), ratio_interval(shuffled, b, 0.95, RESAMPLES))
    assert mad(a) == mad(shuffled) or len(a) < 2
    assert cv(a) == pytest.approx(cv(shuffled), nan_ok=True)
    flags = dict(zip(a, outliers(a), strict=True))
    assert outliers(shuffled) == [flags[value] for value in shuffled]
    assert str(compare_samples(a, b)) == str(compare_samples(shuffled, b))


@EXAMPLES
@given(SAMPLES, SAMPLES, SCALES)
def test_unit_does_not_matter(a: list[float], b: list[float], scale: float) -> None:
    larger = [value * scale for value in a]
    assert same(median_interval(larger), scaled(median_interval(a), scale))
    assert same(
        ratio_interval(larger, b, 0.95, RESAMPLES),
        scaled(ratio_interval(a, b, 0.95, RESAMPLES), scale),
    )
    assert mad(larger) == mad(a) * scale or len(a) < 2
    assert cv(larger) == pytest.approx(cv(a), nan_ok=True)
    assert outliers(larger) == outliers(a)
    one = compare_samples(a, b)
    other = compare_samples(larger, [value * scale for value in b])
    assert other.p_value == one.p_value
    assert other.effect_size == one.effect_size
    assert other.difference == one.difference * scale
    relative = relative_difference(larger, [value * scale for value in b]).interval
    expected = relative_difference(a, b).interval
    assert relative.low == pytest.approx(expected.low, rel=1e-9, abs=1e-9, nan_ok=True)
    assert relative.high == pytest.approx(expected.high, nan_ok=True)


@EXAMPLES
@given(SAMPLES, SAMPLES)
def test_intervals_hold_what_they_are_of(a: list[float], b: list[float]) -> None:
    ordered = sorted(a)
    found = median_interval(a)
    if len(a) < 2:
        assert math.isnan(found.low)
    else:
        middle = len(ordered) // 2
        assert ordered[0] <= found.low <= ordered[middle] <= found.high <= ordered[-1]
        assert 0 < found.coverage <= 1
    ratio = ratio_interval(a, b, 0.95, RESAMPLES)
    if min(len(a), len(b)) > 1:
        limits = (min(a) / max(b), max(a) / min(b))
        assert limits[0] * 0.999999 <= ratio.low <= ratio.high <= limits[1] * 1.000001
    compared = compare_samples(a, b)
    assert compared.least_p_value * 0.999999 <= compared.p_value <= 1
    assert -1 <= compared.effect_size <= 1
    found = relative_difference(a, b)
    if min(len(a), len(b)) > 3:
        assert found.interval.low <= found.relative <= found.interval.high
        assert found.interval.low <= found.at_worst <= found.relative


@EXAMPLES
@given(SAMPLES, SAMPLES)
def test_exchanged_samples_differ_by_the_sign(a: list[float], b: list[float]) -> None:
    one, other = compare_samples(a, b), compare_samples(b, a)
    assert other.difference == -one.difference
    assert other.effect_size == -one.effect_size
    assert other.p_value == pytest.approx(one.p_value)


@EXAMPLES
@given(st.lists(RATES, min_size=BATCHES, max_size=80), SCALES)
def test_steadiness_does_not_depend_on_the_unit(rates: list[float], scale: float) -> None:
    steps = range(1, len(rates) + 1)
    scaled_rates = [rate * scale for rate in rates]
    one, other = steadiness(steps, [rates, scaled_rates], 0, len(rates))
    assert one == other


@EXAMPLES
@given(runs(), st.randoms(use_true_random=False))
def test_order_of_runs_does_not_matter(rows: list[Row], random: Any) -> None:
    table = summarize(frame(rows))
    shuffled = summarize(frame(random.sample(rows, len(rows))))
    assert_frame_equal(table, shuffled, rtol=1e-12)


@EXAMPLES
@given(runs())
def test_no_silent_number(rows: list[Row]) -> None:
    """Every case is one of valid runs, with as many as there are, and what cannot be told is
    absent."""
    counted: dict[str, list[float]] = {}
    for entry in rows:
        if entry["valid"] and entry["value"] is not None:
            counted.setdefault(topology_text(entry), []).append(entry["value"])
    table = summarize(frame(rows))
    found = {topology_text(case): case for case in table.to_dict(orient="records")}
    assert found.keys() == counted.keys()
    for name, values in counted.items():
        case = found[name]
        assert case["repeats"] == len(values)
        # One run has no spread, two or more have.
        for column in ("std", "cv", "mad", "ci_low", "ci_high", "ci_coverage"):
            spread = case[f"samples_per_second_{column}"]
            assert math.isnan(spread) == (len(values) == 1), column
        assert pd.isna(case["samples_per_second_outliers"]) == (len(values) < 5)
        # No speed-up without a base case, none without an interval unless runs are missing.
        assert math.isnan(case["scaling_efficiency"]) == math.isnan(case["speedup"])
        if pd.isna(case["base_case"]):
            assert len(counted) == 1
            assert name != "1n1g"
            assert math.isnan(case["speedup"])
        else:
            several = min(len(values), len(counted[case["base_case"]])) > 1
            usable = found[case["base_case"]]["samples_per_second_median"] > 0
            assert math.isnan(case["speedup_ci_low"]) == (not several or not usable)


@EXAMPLES
@given(runs())
def test_reports_show_the_table_whatever_is_in_it(rows: list[Row]) -> None:
    table = cases(rows)
    notes = list(case_notes(frame(rows), table))
    for screen in (Screen(40), Screen(80), PIPE):
        printed = case_tables.render(table, notes, screen)
        assert "nan" not in printed.lower().replace("mxnet", "")
    assert "| nan" not in markdown.render(table, notes, [])
    assert "NaN" not in result_files.summary_json(table, notes, [])
