"""Runs what a suite lacks: a campaign for each part of each item, as many runs as its next look."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..campaign.directory import missing_runs, read_plan
from ..campaign.job_files import SchedulerSettings
from ..compare.verdicts import UNDECIDED
from ..control.controllers import run_at_once
from ..control.rounds import Execution, grow
from ..control.scheduled import create_case, in_order_of_jobs
from ..core.errors import UserError, lacks_nodes
from ..core.lists import natural
from ..core.node import Node
from ..options.scheduler import Scheduled
from ..plan.inventory import read_inventory
from .judge import judge, load
from .suite import Part, Resolved, choice_of, reference_of


def inventories_of(suite: Resolved, given: Sequence[str] | None, jobs: Scheduled) -> list[str]:
    """The inventories of the command line, or else that of the suite, unless jobs run it."""
    if given or (path := suite.suite.inventory) is None or jobs.name:
        return list(given or ())
    return [path if "," in path else str(suite.path.parent / path)]


Wanted = tuple[int, Part, Path, int]


def measure(suite: Resolved, folder: Path, where: Execution, jobs: Scheduled) -> list[str]:
    """Run campaigns below the folder until each part is decided or has all its planned runs.
    Returns what went wrong; a part that lacks a run gets no more."""
    problems: list[str] = []
    given_up: set[Path] = set()
    nodes = {} if jobs.name else _inventory(suite, where)
    if jobs.name:
        _refuse_other_nodes(suite, where, jobs)
    options = [f"--inventory={path}" for path in where.inventories]
    options += [f"--wait={where.wait}"] if where.wait else []
    while wanted := [w for w in _wanted(suite, folder) if w[2] not in given_up]:
        for each in wanted:
            _plan(suite, each, nodes, where, jobs)
        for group in at_once(wanted) if suite.suite.at_once else ([each] for each in wanted):
            places = [place for _, _, place, _ in group]
            problems += run_at_once(places, options)
            for place in filter(missing_runs, places):
                given_up.add(place)
                problems.append(f"{place}: a run is not done; see `dlperf status {place}`")
    return problems


def at_once(wanted: Iterable[Wanted]) -> list[list[Wanted]]:
    """Groups of parts that share no node; each part is in the first one that it can be in."""
    groups: list[list[Wanted]] = []
    for each in wanted:
        is_free = (g for g in groups if all(each[1].hosts.isdisjoint(w[1].hosts) for w in g))
        if (group := next(is_free, None)) is None:
            groups.append(group := [])
        group.append(each)
    return groups


def _plan(
    suite: Resolved, wanted: Wanted, nodes: Mapping[str, Node], where: Execution, jobs: Scheduled
) -> None:
    """Plan the runs of a part that it lacks."""
    number, part, place, repeats = wanted
    where.say(f"{place.name}: up to {repeats} runs")
    choice = replace(choice_of(suite.suite.items[number]), nodes=(len(part.hosts),))
    hosts = sorted(part.hosts, key=natural)
    of_part: Sequence[Node] = [node for name, node in nodes.items() if name in part.hosts]
    settings = None
    if jobs.name:
        of_part, settings = _of_jobs(hosts, where, jobs)
        choice = in_order_of_jobs(choice, settings, is_given=False)
    # Warnings about a plan are said once.
    say: Callable[[str], None] = where.say if not place.exists() else lambda _: None
    create_case(place, choice, of_part, settings, say, f"{suite.path}: items.{number}")
    grow(place, repeats, "the next look")


def _of_jobs(
    hosts: Sequence[str], where: Execution, jobs: Scheduled
) -> tuple[tuple[Node, ...], SchedulerSettings]:
    """The nodes of a scheduler, and how jobs on these hosts are made."""
    options = {**jobs.options, "nodelist": ",".join(hosts)}
    without = {"inventory": where.inventories, "wait": where.wait}
    return replace(jobs, options=options).nodes(without)


def _wanted(suite: Resolved, folder: Path) -> Iterator[Wanted]:
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
            ended = 0  # runs that have been made
            if place.exists():
                ended = len(read_plan(place)["runs"]) - len(missing_runs(place))
            look, valid = needs.get(part, (most, ended))
            # Runs that do not count are made again, but not for ever.
            repeats = min(ended + look - valid, 2 * look)
            if repeats > ended:
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


def _refuse_other_nodes(suite: Resolved, where: Execution, jobs: Scheduled) -> None:
    """Raise UserError if the partition or the allocation lacks a node."""
    try:
        _of_jobs(suite.nodes, where, jobs)
    except UserError as error:
        if error.where == "--nodelist":
            error.hint = (
                f"salloc --nodelist={','.join(suite.nodes)}, or other `nodes:` in the suite"
            )
            error.where = f"{suite.path}: nodes"
        raise


def _inventory(suite: Resolved, where: Execution) -> dict[str, Node]:
    """The nodes of the inventory. Raises UserError if it lacks one of the suite."""
    nodes = {node.name: node for node in read_inventory(where.inventories, connects=True)}
    if unknown := [name for name in suite.nodes if name not in nodes]:
        hint = "name the inventory with -i, or in the suite: `inventory: PATH`"
        place = f"{suite.path}: nodes"
        raise lacks_nodes("the inventory", [*nodes], ", ".join(unknown), place, hint)
    return nodes
