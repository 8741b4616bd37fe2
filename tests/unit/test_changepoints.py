"""Change points: the statistic by its definition, its false alarms, and what it finds."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dlperf_runner.stats.change_points import LEAST, best_split, change_points


def energy(left: list[float], right: list[float]) -> float:
    """Equations 4 to 6 of Matteson and James (2014), with alpha = 1, as they stand there."""
    n, m = len(left), len(right)
    between = 2 / (n * m) * sum(abs(x - y) for x in left for y in right)
    within = [
        sum(abs(a - b) for a, b in itertools.combinations(of, 2)) / math.comb(len(of), 2)
        for of in (left, right)
    ]
    return n * m / (n + m) * (between - sum(within))


@pytest.mark.parametrize("size", [6, 9, 20])
def test_split_is_the_largest_by_the_definition(size: int) -> None:
    values = [float(v) for v in np.random.default_rng(size).normal(size=size)]
    splits = {
        (n, end): energy(values[:n], values[n:end])
        for end in range(2 * LEAST, size + 1)
        for n in range(LEAST, end - LEAST + 1)
    }
    statistic, place = best_split(np.array(values))
    best = max(splits, key=splits.__getitem__)
    assert place == best[0]
    assert statistic == pytest.approx(splits[best], rel=1e-9)


def test_false_alarms_are_no_more_than_the_level() -> None:
    # 200 sequences without a change; 5 % are 10, and 20 or more come in 1 of 400 such tests.
    generator = np.random.default_rng(1)
    alarms = sum(bool(change_points(generator.normal(380, 3, size=20))) for _ in range(200))
    assert 0 < alarms < 20


def test_a_change_of_three_standard_deviations_is_found_where_it_is() -> None:
    generator = np.random.default_rng(2)
    hits = 0
    for _ in range(50):
        values = [*generator.normal(380, 3, size=12), *generator.normal(371, 3, size=9)]
        found = change_points(values)
        hits += len(found) > 0 and min(abs(point.index - 12) for point in found) <= 1
    assert hits >= 47


def test_two_changes_with_their_levels() -> None:
    values = [380.0, 381, 379, 380, 381, 379, 300, 301, 299, 300, 301, 299, 380, 381, 379, 380, 379]
    points = change_points(values)
    assert [point.index for point in points] == [6, 12]
    assert [(point.before, point.after) for point in points] == [(380, 300), (300, 380)]
    assert all(point.p_value <= 0.05 for point in points)


@pytest.mark.parametrize(
    "values",
    [[], [1.0], [1.0, 1.0, 9.0, 9.0], [5.0] * 40, [380.0, 380, 380, 300, 300, 300]],
    ids=["none", "one", "short", "constant", "6 in any order are no evidence"],
)
def test_no_change_where_there_is_no_evidence(values: list[float]) -> None:
    assert change_points(values) == []


def test_the_same_values_give_the_same_answer_in_any_unit() -> None:
    values = [float(v) for v in np.random.default_rng(3).normal(10, 1, size=60)]
    values[30:] = [v + 1.2 for v in values[30:]]
    once = change_points(values)
    assert once == change_points(values)
    assert [p.index for p in once] == [p.index for p in change_points([v * 1024 for v in values])]
