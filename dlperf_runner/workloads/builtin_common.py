"""What the programs of this project share: checked options, and whether a training was one.

A workload that uses it lists it beside its program in the catalogue. Runs on Python 3.7.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence


def at_least(least: int) -> Callable[[str], int]:
    """A type of option: a whole number that is not less."""

    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"a number from {least} expected, found {text}")
        return value

    number.__name__ = "whole number"  # argparse says `invalid whole number value: 'x'`
    return number


positive = at_least(1)
count = at_least(0)


def multiple_of_16(text: str) -> int:
    number = int(text)
    if number < 16 or number % 16:
        raise argparse.ArgumentTypeError(f"a multiple of 16 expected, found {text}")
    return number


def learning_rate(text: str) -> float | None:
    """A learning rate; None is the program's own choice, `auto`."""
    return None if text == "auto" else float(text)


def share_of(classes: int, parts: int, part: int) -> tuple[int, int]:
    """The first class and the number of classes of one of `parts` almost equal shares."""
    size, more = divmod(classes, parts)
    return part * size + min(part, more), size + (part < more)


def check(losses: Sequence[float]) -> str | None:
    """Why this was no training, if it was none: the fixed batch must be learnt.

    `losses` are in the order of the steps that printed or returned them.
    """
    for number, loss in enumerate(losses, 1):
        if not math.isfinite(loss):
            what = f"loss {number} of {len(losses)} is {loss}"
            return f"{what}: no training took place; try a lower --lr"
    if len(losses) > 1 and not losses[-1] < losses[0]:
        return (
            f"the loss did not fall on a fixed batch: {losses[0]:.6f} at first, "
            f"{losses[-1]:.6f} at last; try another --lr"
        )
    return None
