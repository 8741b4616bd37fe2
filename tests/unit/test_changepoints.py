"""Change points of a sequence that is looked at after every value."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from dlperf_runner.stats.change_points import LEVEL, change_points, first_change


def by_definition(values: list[float]) -> tuple[int, int] | None:
    """The split and the look, by SciPy's t-test for each of them."""
    for look in range(7, len(values) + 1):
        tests = {
            place: stats.ttest_ind(values[:place], values[place:look])
            for place in range(3, look - 2)
        }
        place = max(tests, key=lambda n: abs(tests[n].statistic))
        # A correlation of 0.5 between neighbours multiplies the variance of a mean by 3.
        smaller = abs(tests[place].statistic) / 3**0.5
        if 2 * stats.t.sf(smaller, look - 2) < 0.1 / look**2:
            return place, look
    return None


@pytest.mark.parametrize("shift", [0, 3, 4, 5, 6, 8])
def test_split_and_look_by_the_definition(shift: float) -> None:
    values = np.random.default_rng(3).normal(size=20)
    values[9:] += shift
    found = first_change(values.tolist())
    assert (found and found[:2]) == by_definition(values.tolist())
    assert (found is None) == (shift < 4)


def test_two_changes_with_their_levels() -> None:
    fast, slow = [380.0, 381, 379], [300.0, 301, 299]
    points = change_points([*fast * 2, *slow * 2, *fast, 380, 379])
    found = [(point.index, point.before, point.after) for point in points]
    assert found == [(6, 380, 300), (12, 300, 380)]
    assert all(0 < point.p_value <= LEVEL for point in points)
    without_spread = change_points([380.0] * 4 + [300.0] * 3)
    assert [point.index for point in without_spread] == [4]


def test_what_was_found_stays_found() -> None:
    values = [380.0, 381, 379, 380, 381, 379, 300, 301, 299, *[340.0 + n % 3 for n in range(30)]]
    found = [[p.index for p in change_points(values[:n])] for n in range(len(values) + 1)]
    for earlier, later in pairwise(found):
        assert later[: len(earlier)] == earlier
    assert found[8] == []
    assert found[9] == [6]


@pytest.mark.parametrize(
    "values",
    [
        *([], [1.0], [1.0, 1.0, 9.0, 9.0], [5.0] * 40),
        [380.0, 380, 380, 300, 300, 300],  # 6 are too few
        [*[380.0, 381, 379] * 4, 300.0, *[380.0, 381, 379] * 4],  # a single outlier
    ],
)
def test_no_change_where_there_is_no_evidence(values: list[float]) -> None:
    assert change_points(values) == []


def test_the_same_values_give_the_same_answer_in_any_unit() -> None:
    values = [float(v) for v in np.random.default_rng(3).normal(10, 1, size=60)]
    values[30:] = [v + 6 for v in values[30:]]
    once = change_points(values)
    assert [p.index for p in once] == [p.index for p in change_points([v * 1024 for v in values])]
    assert [p.index for p in once] == [30]


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (338.28, 338.29, False),  # two values of a bandwidth, as nccl-tests round them
        (46.1, 46.2, False),
        (2.01, 2.02, False),  # just below half a percent
        (46.1, 45.8, True),
        (46.1, 40.2, True),
    ],
)
def test_two_rounded_values_are_a_change_if_far_apart(
    before: float, after: float, found: bool
) -> None:
    """Values without any scatter make each difference infinitely significant."""
    assert bool(change_points([before] * 12 + [after] * 6)) == found
    # A single value of the other kind is noise, which hides none of these.
    assert bool(change_points([before] * 5 + [after] + [before] * 6 + [after] * 12)) == found
