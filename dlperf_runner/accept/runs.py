"""Runs what a suite lacks: a campaign for each part of each item, as many runs as its next look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..campaign.directory import missing_runs, read_plan
from ..compare.verdicts import UNDECIDED
from ..control.campaigns import run
from ..control.rounds import Execution, execute_campaign, grow
from ..core.errors import UserError
from ..plan.inventory import read_inventory
from .judge import judge, load
from .suite import Part, Resolved, choice_of, reference_of


def inventories_of(suite: Resolved, given: Sequence[str] | None) -> list[str]:
    """The inventories of the command line, or else that of the suite."""
    own = suite.suite.inventory
    if given or own is None:
        return list(given or ())
    return [own if "," in own else str(suite.path.parent / own)]


def measure(suite: Resolved, folder: Path, where: Execution) -> list[str]:
    """Run campaigns below the folder until each part is decided or has all its planned runs.
    Returns what went wrong; a part that lacks a run gets no more."""
    problems: list[str] = []
    given_up: set[Path] = set()
    _refuse_unlike_nodes(suite, where)
    while wanted := [w for w in _wanted(suite, folder) if w[2] not in given_up]:
        for number, part, place, repeats in wanted:
            where.say(f"{place.name}: up to {repeats} runs")
            problems += _run(suite, number, part, place, repeats, where)
            if missing_runs(place):
                given_up.add(place)
                problems.append(f"{place}: a run is not done; see `dlperf status {place}`")
    return problems


def _run(
    suite: Resolved, number: int, part: Part, place: Path, repeats: int, where: Execution
) -> list[str]:
    """Make the runs of a part that it lacks."""
    if place.exists():
        grow(place, repeats, "the next look")
        return execute_campaign(place, where.inventories, where.wait, where.say)
    choice = choice_of(suite.suite.items[number])
    choice = replace(choice, nodes=(len(part.hosts),), repeats=repeats)
    _, problems = run(
        *(choice, where.inventories, ",".join(sorted(part.hosts)), str(place)),
        wait=where.wait,
        say=where.say,
    )
    return problems


def _wanted(suite: Resolved, folder: Path) -> Iterator[tuple[int, Part, Path, int]]:
    """The parts that need runs: number of the item, part, campaign, and its runs in all."""
    document = judge(suite, folder, load(folder)) if any(folder.glob("*/campaign.json")) else None
    rows = iter(document["parts"] if document else ())
    for number, item in enumerate(suite.suite.items):
        parts = suite.parts(number)
        judged = [part for part in parts if part.name != reference_of(item)]
        needs = {part: _next_look(suite, next(rows, None)) for part in judged}
        # A reference needs as many runs as the part that needs most.
        most = max(look for look, _ in needs.values())
        for part in parts:
            place = folder / f"{number + 1}-{part.name}"
            planned = _runs_of(place)
            look, valid = needs.get(part, (most, planned))
            # Runs that do not count are made again, but not for ever.
            repeats = min(planned + look - valid, 2 * look)
            if repeats > planned:
                yield number, part, place, repeats


def _next_look(suite: Resolved, row: dict[str, Any] | None) -> tuple[int, int]:
    """The number of runs at which a part is judged next, 0 if it needs none; and those it has."""
    first = min(suite.suite.looks, default=suite.suite.pilot)
    if row is None:
        return first, 0
    runs = row["runs"]
    if row["verdict"] != UNDECIDED or (row["deviation"] is not None and not row["looks"]):
        return 0, runs
    looks = row["looks"] or [first]
    return next((size for size in looks if size > runs), 0), runs


def _runs_of(place: Path) -> int:
    """The highest repeat that a part's campaign plans."""
    if not place.exists():
        return 0
    return max(int(run["repeat"]) for run in read_plan(place)["runs"])


def _refuse_unlike_nodes(suite: Resolved, where: Execution) -> None:
    known = {node.name for node in read_inventory(where.inventories)}
    if unknown := [name for name in suite.nodes if name not in known]:
        raise UserError(
            "the inventory lacks nodes of the suite",
            where=f"{suite.path}: nodes",
            expected=", ".join(sorted(known)),
            found=", ".join(unknown),
            hint="name the inventory with -i, or in the suite: `inventory: PATH`",
        )
