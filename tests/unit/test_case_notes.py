"""What is said beside the table: sentences that name their case, and only where there is cause."""

from typing import Any

import pytest
from frame_rows import Row, cases, frame, row, runs

from dlperf_runner.stats.notes import case_notes

TITLE = "mxnet-resnet50v1b, fp32, batch size 128 per device: "
SHORT = "whether the rate was steady was not judged in "


def all_said(*rows: Row) -> list[str]:
    return list(case_notes(frame(rows), cases(rows)))


def said(*rows: Row) -> list[str]:
    """Without the note on short windows, which these rows have."""
    return [note for note in all_said(*rows) if not note.startswith(SHORT)]


def other(value: float, estimator: str, **changes: Any) -> Row:
    metric = f"samples_per_second_{estimator}"
    return row(value, metric=metric, estimator=estimator, **changes)


JOULES = {"metric": "energy_per_sample", "unit": "J/sample"}


def test_windows_too_short_to_be_judged_are_counted() -> None:
    drift = row(0.1, "1n2g", metric="window_drift", unit="%", estimator="sen_slope")
    assert all_said(row(5.0), row(9.0, "1n2g"), drift) == [
        SHORT + "1 of 2 runs: fewer than 20 rates are in the measured window"
    ]
    assert all_said(row(9.0, "1n2g"), drift)[1:] == []


def test_what_the_interval_of_so_many_runs_covers() -> None:
    range_of_all = "the interval of 5 runs is their range and covers 93.75 %"
    assert said(*runs("1n1g", 5.0, 5.01, 5.02, 5.03, 5.04)) == [range_of_all]
    assert said(*runs("1n1g", *(5 + n / 1000 for n in range(20)))) == [
        "the interval of 20 runs leaves out the 5 lowest and the 5 highest and covers 95.86 %"
    ]


def test_base_case() -> None:
    alone = TITLE + "only one topology, so there is no speed-up and no efficiency"
    assert said(row(5.0, "2n8g")) == [alone]
    base = TITLE + "no 1-device run: speed-up and efficiency are relative to 1n4g, 4 devices"
    assert said(row(5.0, "1n4g"), row(9.0, "1n8g")) == [base]


def test_intervals_of_speedup_of_few_runs() -> None:
    found = said(*runs("1n1g", 5.0, 5.1), *runs("1n2g", 9.0, 9.1), row(16.0, "1n4g"))
    text = "the speed-up intervals of 1n2g come from fewer than 5 runs and cover less than 95 %"
    assert TITLE + text in found
    many = [*runs("1n1g", 5, 5.1, 5.2, 5.3, 5.4), *runs("1n2g", 9, 9.1, 9.2, 9.3, 9.4)]
    assert not any("cover less" in text for text in said(*many))


def test_outliers_are_named_and_counted() -> None:
    found = said(*runs("1n1g", 100.0, 101.0, 100.5, 80.0, 100.2))
    assert found[0] == TITLE + (
        "outliers among the repeats, included in the statistics: 1n1g r4 (80)"
    )
    # As far by the others' standards, but by 0.4 % only.
    assert len(said(*runs("1n1g", 100.0, 100.1, 100.05, 99.6, 100.02))) == 1


def test_estimators_that_disagree() -> None:
    agreeing = [row(100.0), other(99.1, "harmonic_mean_of_rates")]
    slow = [row(100.0, repeat=2), other(99.5, "harmonic_mean_of_rates", repeat=2)]
    # 100 / 94 - 1 = 6.4 %
    assert said(*agreeing, *slow, other(94.0, "time_stamps", repeat=2))[0] == TITLE + (
        "the estimators disagree by more than 1 % in 1 of 2 runs;"
        " the largest difference is 6.4 %, in 1n1g r2:"
        " mean_of_rates 100, harmonic_mean_of_rates 99.5, time_stamps 94"
    )


@pytest.mark.parametrize(
    "rows",
    [
        (),
        (row(5.0),),
        # The program's own number counts the warm-up, and may differ.
        (row(100.0), other(80.0, "final_value")),
        (row(100.0), other(99.1, "harmonic_mean_of_rates")),
        (row(100.0), other(50.0, "time_stamps", valid=False, why_invalid="throttled")),
        (row(100.0), row(0.5, **JOULES, estimator="gpu_counter")),
    ],
)
def test_nothing_to_say(rows: tuple[Row, ...]) -> None:
    assert said(*rows) == []


def window(metric: str, value: float, repeat: int = 1) -> Row:
    return row(value, repeat=repeat, metric=metric, unit="%", estimator="t_test")


def test_windows_that_are_not_steady() -> None:
    found = said(
        *(row(100.0), window("window_began_early", 1.0), window("window_head_shift", -4.26)),
        *(window("window_drifts", 0.0), window("steady_from_step", 41.0)),
        *(row(100.0, repeat=2), window("window_began_early", 0.0, 2)),
        *(window("window_drifts", 1.0, 2), window("window_drift", 3.0, 2)),
        *(row(100.0, repeat=3), window("window_began_early", 0.0, 3)),
    )
    assert found[:2] == [
        TITLE
        + "the measured window began too early: its first tenth differs from its second half in"
        " 1n1g r1 (-4.3 %, steady from step 41 on)",
        TITLE + "the rate drifts within the measured window: 1n1g r2 (+3.0 %)",
    ]


def test_energy_of_whole_runs() -> None:
    whole = row(0.5, **JOULES, estimator="gpu_counter_of_whole_run")
    assert said(row(100.0), whole) == [
        TITLE + "energy and power are of whole runs, start and warm-up included, because no two"
        " samples lie between times of measured steps: 1n1g"
    ]
