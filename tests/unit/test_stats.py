"""Statistics over the frame."""

import math
from typing import Any

import pytest
from frame_rows import Row, frame, row, runs

from dlperf_runner.stats.summary import summarize


def cases(*rows: Row) -> list[dict[str, Any]]:
    return summarize(frame(rows)).to_dict(orient="records")


def test_statistics_of_four_runs() -> None:
    (case,) = cases(*runs("1n1g", 1.0, 2.0, 4.125, 9.0), row(None, repeat=5))
    assert case["repeats"] == 4
    assert (case["samples_per_second_median"], case["samples_per_second_mean"]) == (3.0625, 4.03125)
    deviations = (3.03125**2, 2.03125**2, 0.09375**2, 4.96875**2)
    assert case["samples_per_second_std"] == pytest.approx(math.sqrt(sum(deviations) / (4 - 1)))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *((name, "other") for name in ("workload", "model", "precision", "accelerator", "driver")),
        *((name, "other") for name in ("source", "stack", "container", "framework_version")),
        ("batch_size_per_device", 96),
    ],
)
def test_baseline_of_another_kind_is_none(column: str, value: object) -> None:
    other = {**row(5.0), column: value}
    (two,) = [case for case in cases(other, row(8.0, "1n2g")) if case["world_size"] == 2]
    assert math.isnan(two["speedup"])
    assert len(cases(other, row(8.0))) == 2  # never pooled


def test_runs_that_do_not_count() -> None:
    bad = row(None, repeat=2, valid=False, why_invalid="failed")
    other = row(99.0, repeat=1, metric="samples_per_second_time_stamps", estimator="time_stamps")
    (case,) = cases(row(5.0), bad, other)
    assert (case["repeats"], case["samples_per_second_median"]) == (1, 5.0)


def test_a_median_of_nothing_is_no_baseline() -> None:
    found = cases(row(0.0), row(1.0, "1n2g"))
    assert [math.isnan(case["speedup"]) for case in found] == [True, True]


def test_interval_and_spread_of_five_published_runs() -> None:
    """mxnet-resnet50v1b, 1n1g: 384.04 384.19 384.19 385.23 385.31."""
    values = [385.23, 384.19, 384.04, 385.31, 384.19]
    (case,) = cases(*runs("1n1g", *values))
    assert case["samples_per_second_ci_low"] == 384.04
    assert case["samples_per_second_ci_high"] == 385.31
    assert case["samples_per_second_ci_coverage"] == 0.9375
    # Distances from 384.19: 0 0 0.15 1.04 1.12. 0.6745 * 1.04 / 0.15 = 4.68 is above 3.5.
    assert case["samples_per_second_mad"] == pytest.approx(0.15)
    assert case["samples_per_second_outliers"] == 2
    cv = case["samples_per_second_std"] / 384.592
    assert case["samples_per_second_cv"] == pytest.approx(cv, rel=1e-6)


def test_speedup_has_an_interval() -> None:
    eights = runs("1n8g", 700.0, 710.0, 720.0, 730.0, 740.0)
    one, eight = cases(*runs("1n1g", 100.0, 101.0, 102.0, 103.0, 104.0), *eights)
    assert (one["speedup_ci_low"], one["speedup"], one["speedup_ci_high"]) == (1.0, 1.0, 1.0)
    assert eight["speedup"] == 720 / 102
    # Between the extremes' ratios, 700 / 104 = 6.73 and 740 / 100 = 7.4, and near them.
    assert 6.73 <= eight["speedup_ci_low"] < 6.9 < 7.2 < eight["speedup_ci_high"] <= 7.4
    for end in ("", "_ci_low", "_ci_high"):
        assert eight[f"scaling_efficiency{end}"] == eight[f"speedup{end}"] / 8
    assert (eight["base_case"], eight["base_world_size"]) == ("1n1g", 1)


def test_the_smallest_case_is_the_base_where_none_has_one_device() -> None:
    four, sixteen = cases(row(400.0, "1n4g"), row(1500.0, "2n8g"))
    assert [case["base_case"] for case in (four, sixteen)] == ["1n4g", "1n4g"]
    assert (sixteen["base_world_size"], sixteen["speedup"]) == (4, 3.75)
    assert sixteen["scaling_efficiency"] == 3.75 * 4 / 16
    # Of several with as many devices it is the one on fewer nodes.
    assert {case["base_case"] for case in cases(row(1.0, "4n1g"), row(1.0, "1n4g"))} == {"1n4g"}
