"""Halves a list of versions until the first slow one is found. Each step is a paired test."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..ab.pairs import PairedTest
from ..compare.verdicts import FAILED, PASSED, on_limit
from ..stats.intervals import ConfidenceInterval


@dataclass(frozen=True)
class Step:
    """A version, its verdict against the first one, and what it was judged by."""

    version: str
    verdict: str
    low: float | None = None
    high: float | None = None
    pairs: int = 0


@dataclass(frozen=True)
class FirstSlow:
    """The first slow version, or why it was not found; and the steps."""

    version: str | None
    why: str | None
    steps: tuple[Step, ...]


def steps_of(number: int) -> int:
    """The most steps for a list: the last version, then halves."""
    return 1 + math.ceil(math.log2(max(1, number - 1)))


def step_test(number: int, error: float, most: int) -> PairedTest:
    """The test of one step. The steps share the error (Bonferroni), so that the version found is
    wrong with at most this probability. Each has two bounds, so one of them has half of it."""
    return PairedTest(most=most, error=2 * error / steps_of(number))


def decide_by(slower: float) -> Callable[[ConfidenceInterval], str]:
    """Failed if a version is slower by more than half of what is sought, passed if by less: the
    versions before and after the change are equally far from that."""
    return lambda interval: on_limit(interval.low, interval.high, slower / 2)


def search(versions: Sequence[str], judge: Callable[[str], Step]) -> FirstSlow:
    """The first version with the verdict failed. The first of the list is the one to compare with;
    the last must fail. A step that is undecided ends the search."""
    steps = [judge(versions[-1])]
    if steps[0].verdict != FAILED:
        why = "the last version is not slower" if steps[0].verdict == PASSED else "undecided"
        return FirstSlow(None, f"{why}: {versions[-1]}", tuple(steps))
    good, bad = 0, len(versions) - 1
    while bad - good > 1:
        middle = (good + bad) // 2
        step = judge(versions[middle])
        steps.append(step)
        if step.verdict == FAILED:
            bad = middle
        elif step.verdict == PASSED:
            good = middle
        else:
            left = f"{versions[good]} was not slow, {versions[bad]} was"
            return FirstSlow(None, f"undecided: {step.version}; {left}", tuple(steps))
    return FirstSlow(versions[bad], None, tuple(steps))
