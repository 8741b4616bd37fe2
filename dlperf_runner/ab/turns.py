"""Runs two campaigns in turns, A B B A, until their pairs decide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..campaign.directory import missing_runs
from ..compare.verdicts import UNDECIDED
from ..control.rounds import Execution, grow
from ..control.scheduled import execute
from ..options import Chosen, print_note
from ..options.scheduler import scheduled
from ..results.load import load_results
from .pairs import Decide, PairedTest, judge
from .sides import Side, create


def run_in_turns(
    folder: Path,
    sides: Sequence[Side],
    chosen: Chosen,
    test: PairedTest,
    decide: Decide | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """`measure` of two sides, each in a campaign of the folder, which may exist."""
    a, b = (folder / name for name in "ab")
    for place, side in zip((a, b), sides, strict=True):
        create(place, side, chosen, scheduled(chosen), print_note)
    where = Execution(chosen.inventories, chosen.wait, print_note)
    return measure(a, b, test, where, decide)


def measure(
    a: Path, b: Path, test: PairedTest, place: Execution, decide: Decide | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Run pairs until a look decides; returns the verdict, and what went wrong. Pairs that are
    done already are not run again. A run that is not done ends it."""
    document = _judged(a, b, test, decide)
    done = 0
    for size in test.sizes:
        for directory, repeats in turns(a, b, done, size):
            grow(directory, repeats, "the next pairs")
            problems = execute(directory, place)
            if missing_runs(directory):
                where = f"{directory}: a run is not done; see `dlperf status {directory}`"
                return _judged(a, b, test, decide), [*problems, where]
        done = size
        document = _judged(a, b, test, decide)
        place.say(f"{size} pairs: {document['verdict']}")
        if document["verdict"] != UNDECIDED:
            break
    return document, []


def turns(a: Path, b: Path, done: int, pairs: int) -> Iterator[tuple[Path, int]]:
    """The sides in turn, with the number of their runs after it: of odd pairs A comes first, of
    even ones B, so that runs of one side that follow each other are one turn."""
    turn: tuple[Path, int] | None = None
    for pair in range(done + 1, pairs + 1):
        for side in (a, b) if pair % 2 else (b, a):
            if turn is not None and turn[0] != side:
                yield turn
            turn = (side, pair)
    if turn is not None:
        yield turn


def _judged(a: Path, b: Path, test: PairedTest, decide: Decide | None) -> dict[str, Any]:
    return judge(load_results(a), load_results(b), test, decide)
