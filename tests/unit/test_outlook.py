"""How many more runs would decide: the estimate, and that it comes true."""

import math
from statistics import NormalDist, median

import pytest
from compare_rows import rows
from frame_rows import frame

from dlperf_runner.compare.campaigns import compare_campaigns
from dlperf_runner.compare.verdicts import to_decide, to_decide_published
from dlperf_runner.stats.between_campaigns import Spread
from dlperf_runner.stats.ratios import published_interval
from dlperf_runner.stats.sequential import MOST_MORE, more_runs


def scattered(size: int, cv: float = 0.01, middle: float = 100.0) -> list[float]:
    """A sample whose quantiles are those of a normal distribution."""
    points = [NormalDist().inv_cdf((place + 0.5) / size) for place in range(size)]
    return [middle * (1 + cv * point) for point in points]


def number_in(text: str) -> int:
    assert text.startswith("about ")
    return int(text.split()[1])


@pytest.mark.parametrize(("factor", "verdict"), [(0.98, "passed"), (0.96, "failed")])
def test_so_many_more_runs_do_decide(factor: float, verdict: str) -> None:
    """1 % beside a limit of 3 %, with a CV of 2 %."""

    def judged(size: int) -> tuple[str, str]:
        a, b = scattered(size, 0.02), scattered(size, 0.02, 100 * factor)
        (case,) = compare_campaigns(frame(rows(a)), frame(rows(b)), 0.03)
        return case["limit_verdict"], case["why"] or ""

    found, why = judged(6)
    assert found == "undecided"
    assert why.startswith("the interval crosses -3.0%; about ")
    assert why.endswith(" would decide if the difference and the spread stay as they are")
    more = number_in(why.partition("; ")[2])
    # The estimate is Student's; the interval between two quotients is a little wider.
    assert judged(6 + more * 4 // 3)[0] == verdict
    assert judged(6 + more // 2)[0] == "undecided"


def test_what_more_runs_cannot_decide_is_said() -> None:
    a, b = scattered(6), scattered(6, middle=98.0)
    text = to_decide(a, b, 0.03, 1, None)
    assert number_in(text) < 20
    # So wide a spread between campaigns hides 1 %, however many runs there are.
    wide = Spread(5, 25, 5.0, 1e-4, 1e-6)
    expected = "more runs cannot decide it: the spread between campaigns alone is as large"
    assert to_decide(a, b, 0.03, 1, wide) == expected
    narrow = Spread(5, 25, 5.0, 1e-8, 1e-8)
    assert to_decide(a, b, 0.03, 1, narrow) == text
    # Right at the limit no number does.
    assert to_decide(a, [v * 0.97 for v in a], 0.03, 1, None).startswith("more than 100 more runs")
    assert to_decide([1.0], [1.0, 2.0], 0.03, 1, None) == "more runs make it narrower"


def published_row(size: int, ratio: float, repeats: float) -> dict[str, float]:
    values = scattered(size, 0.02, 100 * ratio)
    interval = published_interval(values, 100.0, (), None if math.isnan(repeats) else int(repeats))
    return {
        "repeats": size,
        "published_repeats": repeats,
        "ratio": median(values) / 100,
        "ratio_low": interval.low,
        "ratio_high": interval.high,
    }


def test_more_runs_beside_a_published_median() -> None:
    bounds = [0.95, 1.05]
    row = published_row(4, 0.98, 20)
    assert row["ratio_low"] < 0.95
    more = number_in(to_decide_published(row, bounds))
    after = published_row(4 + more + 2, 0.98, 20)
    assert 0.95 < after["ratio_low"] < after["ratio_high"] < 1.05
    # One published run of a CV of 2 % is itself as uncertain as the distance of 3 %.
    once = to_decide_published(published_row(4, 0.98, math.nan), bounds)
    assert once == "more runs cannot decide it: the publication rests on too few"
    few = to_decide_published(published_row(2, 0.98, 5), bounds)
    assert few == "an interval needs at least 1 more"


def test_the_least_number_is_found() -> None:
    assert more_runs(lambda number: number >= 7) == 7
    assert more_runs(lambda _: True) == 1
    assert more_runs(lambda number: number > MOST_MORE) is None
