"""What the builtin programs share."""

from __future__ import annotations

import argparse

import pytest

from dlperf_runner.workloads import builtin_common as common


@pytest.mark.parametrize(
    ("losses", "problem"),
    [
        ([7.0, 9.0, 0.5], None),
        ([7.0], None),
        ([], None),
        ([7.0, float("nan"), 0.5], "loss 2 of 3 is nan: no training took place"),
        ([float("inf")], "loss 1 of 1 is inf: no training took place"),
        ([7.0, 7.0], "the loss did not fall on a fixed batch: 7.000000 at first, 7.000000 at last"),
        ([7.0, 7.5], "the loss did not fall on a fixed batch: 7.000000 at first, 7.500000 at last"),
    ],
)
def test_what_is_no_training_is_said(losses: list[float], problem: str | None) -> None:
    found = common.check(losses)
    assert found is None if problem is None else found and found.startswith(problem)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (common.positive, "0", "a number from 1"),
        (common.count, "-1", "a number from 0"),
        (common.multiple_of_16, "120", "a multiple of 16"),
        (common.multiple_of_16, "0", "a multiple of 16"),
    ],
)
def test_an_option_that_does_not_fit(kind: object, text: str, expected: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"{expected} expected, found {text}"):
        kind(text)  # type: ignore[operator]
