"""What the losses of a run say about its validity."""

import math

import pytest

from dlperf_runner.catalog.validity import catalogued_rules
from dlperf_runner.measure.validity import Evidence, judge


def losses(*values: float | None) -> tuple[str, ...]:
    """What the losses of a run come to, of which nothing else is known."""
    return judge(Evidence(), range(1, len(values) + 1), values, catalogued_rules()).reasons


def test_loss_that_is_no_number() -> None:
    assert losses(7.0, math.nan, 6.0) == ("the loss is not finite at step 2",)
    assert losses(7.0, 8.0, math.inf) == ("the loss is not finite at step 3",)
    assert losses(7.0, None, 6.0) == ()


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([0.0], "the loss is 0 at every step"),
        ([0.0] * 20, "the loss is 0 at every step"),
        ([6.907] * 3, "the loss is 6.907 at every step"),
        ([1e30] * 20, "the loss is never below 1e+30"),
        ([1e30 * (n + 1) for n in range(5)], "the loss is never below 1e+30"),
        ([-1e30, -2e30], "the loss is never below 1e+30"),
    ],
)
def test_loss_of_a_program_that_does_not_train(values: list[float], reason: str) -> None:
    assert losses(*values) == (reason,)
    assert losses(*values, 5.0, 4.0) != (reason,)


def test_loss_that_is_no_longer_printed() -> None:
    assert losses(7.0, 6.9, None, None, None) == ("no loss is printed after step 2",)
    assert losses(7.0, *[None] * 10) == ()  # one says nothing of how often the program prints it
    assert losses(7.0, 6.9, None, None) == ()
    assert losses(*[None, None, None, 7.0, None, None, None, 6.9, None, None, None]) == ()


def test_two_equal_losses_may_be_chance() -> None:
    assert losses(6.9, 6.9) == ()
    assert losses(6.9) == ()


def test_rising_loss() -> None:
    # Medians of the first three and the last three of 15: 2 and 3 are 50 % apart, 2 and 3.1 more.
    first = [2.0] * 12
    assert losses(*first, 3.0, 3.0, 3.0) == ()
    assert losses(*first, 3.1, 3.1, 1.0) == ("the loss rises from 2 to 3.1",)
    assert losses(9.0, 9.0, 9.0, *first) == ()
    assert losses(2.0, 2.0, 90.0) == ()  # too few to say
    assert losses(*first, 2.0, 2.0, 99.0) == ()  # one step is no tendency
