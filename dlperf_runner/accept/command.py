"""The command `accept`: runs what a suite lacks, a campaign for each part of each item and as many
runs as its next look; verdicts on the parts, and a page that others can check."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..campaign.directory import missing_runs, read_plan
from ..campaign.job_files import SchedulerSettings
from ..compare.verdicts import PASSED, UNDECIDED
from ..control.controllers import run_at_once
from ..control.rounds import Execution, grow
from ..control.scheduled import create_case, in_order_of_jobs
from ..core.errors import UserError, lacks_nodes
from ..core.lists import natural, shortened
from ..core.node import Node
from ..options import (
    exit_with,
    print_errors,
    print_json,
    print_note,
    reading_logs,
    refuse_given,
    screen,
)
from ..options.scheduler import Scheduled, schedules
from ..plan.inventory import read_inventory
from . import page as pages
from .judge import judge, load, outside
from .suite import Part, ResolvedSuite, choice_of, read_suite, reference_of

ORDER = 175
_MEASURED = Path("results/acceptance")
HELP = """
suite_file SUITE: The targets of the parts, in YAML.
--results DIR: Judge these logs; run nothing.
--measure DIR: Run what the suite lacks, in campaigns below this folder, and judge by them; repeat
  it to go on. Default: results/acceptance.
--page DIR: Write the page to this folder.
--sign KEY: With --page: sign it with this SSH key.
--check DIR: Compare a page with the suite and the logs; status 1 if it differs.
--allowed-signers FILE: With --check: who may have signed (ssh-keygen(1)).
"""


@schedules
def command(
    jobs: Scheduled,
    suite_file: Path,
    results: Path | None = None,
    measure: Path | None = None,
    inventory: list[str] | None = None,
    wait: str = "",
    page: Path | None = None,
    sign: Path | None = None,
    check: Path | None = None,
    allowed_signers: Path | None = None,
    as_json: bool = False,
) -> None:
    """Accept a cluster: measure each node, pair, scalable unit, and all of it until it is decided
    whether it reaches its target, with known error rates. The exit status is 1 unless all parts
    passed.

    Example: dlperf accept suite.yml --results results/rack7 --page acceptance"""
    only = "this option has an effect only with"
    refuse_given({"sign": None if page else sign}, f"{only} --page")
    refuse_given({"allowed_signers": None if check else allowed_signers}, f"{only} --check")
    refuse_given({"page": check and page}, "a page is either written or checked")
    if results is not None:
        of_runs = {"measure": measure, "inventory": inventory, "wait": wait}
        refuse_given({**of_runs, "scheduler": jobs.name}, "nothing is run with --results")
    elif check is not None:
        raise UserError("a page is checked by logs", where="--check", hint="add --results DIR")
    refuse_given({"nodelist": jobs.options.get("nodelist")}, "the suite names the nodes")
    suite = read_suite(suite_file, pages.recorded(check)["suite"] if check else None)
    failures: list[str] = []
    if results is None:
        results = measure or _MEASURED
        inventories = inventory or ([] if jobs.name else suite.inventories)
        failures = run_missing(suite, results, Execution(inventories, wait, print_note), jobs)
    loaded = load(results, reading_logs)
    document = judge(suite, results, loaded)
    problems = [problem for each in loaded for problem in each.problems]
    if others := outside(suite, loaded):
        print_note(f"not judged: nodes that {suite_file} lacks: {shortened(others)}")
    if check is not None:
        differing, notes = pages.check(check, document, allowed_signers)
        if file := suite.inventory:
            notes.append(f"nodes as the page has them, not {file}: {', '.join(suite.nodes)}")
        for note in notes:
            print_note(note)
        print("\n".join(differing) or f"{check}: as computed from the suite and the logs")
        exit_with(problems, differing)
        return
    written = pages.write(document, page, sign) if page is not None else None
    if as_json:
        print_json(document)
    else:
        print(pages.render(document, screen()), end="")
        if written:
            print(written)
    print_errors(failures)
    exit_with(problems, document["verdict"] != PASSED)


_NOT_RUN: dict[str, Any] = {"verdict": UNDECIDED, "looks": [], "deviation": None, "runs": 0}
Wanted = tuple[int, Part, Path, int]
Nodes = tuple[Sequence[Node], SchedulerSettings | None]


def run_missing(suite: ResolvedSuite, folder: Path, where: Execution, jobs: Scheduled) -> list[str]:
    """Run campaigns below the folder until each part is decided or has all its planned runs.
    Returns what went wrong; a part that lacks a run gets no more."""
    problems: list[str] = []
    given_up: set[Path] = set()
    nodes_on = _nodes(suite, where, jobs)
    options = [f"--inventory={path}" for path in where.inventories]
    options += [f"--wait={where.wait}"] if where.wait else []
    while wanted := [w for w in _wanted(suite, folder) if w[2] not in given_up]:
        for number, part, place, repeats in wanted:
            where.say(f"{place.name}: up to {repeats} runs")
            nodes, settings = nodes_on(part.hosts)
            choice = replace(choice_of(suite.items[number]), nodes=(len(part.hosts),))
            if settings:
                choice = in_order_of_jobs(choice, settings, is_given=False)
            # Warnings about a plan are said once.
            warn = where.say if not place.exists() else lambda _: None
            create_case(place, choice, nodes, settings, warn, f"{suite.path}: items.{number}")
            grow(place, repeats, "the next look")
        for group in at_once(wanted) if suite.at_once else ([each] for each in wanted):
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


def _nodes(
    suite: ResolvedSuite, where: Execution, jobs: Scheduled
) -> Callable[[Collection[str]], Nodes]:
    """A function that gives the nodes of these names, and how jobs on them are made. Raises
    UserError if the inventory, the partition or the allocation lacks a node of the suite."""
    place, without = f"{suite.path}: nodes", {"inventory": where.inventories, "wait": where.wait}

    def of_jobs(hosts: Collection[str]) -> Nodes:
        options = {**jobs.options, "nodelist": ",".join(sorted(hosts, key=natural))}
        return replace(jobs, options=options).nodes(without)

    if jobs.name:
        try:
            of_jobs(suite.nodes)
        except UserError as error:
            if error.where == "--nodelist":
                names = ",".join(suite.nodes)
                error.hint = f"salloc --nodelist={names}, or other `nodes:` in the suite"
                error.where = place
            raise
        return of_jobs
    nodes = {node.name: node for node in read_inventory(where.inventories, connects=True)}
    if unknown := [name for name in suite.nodes if name not in nodes]:
        hint = "name the inventory with -i, or in the suite: `inventory: PATH`"
        raise lacks_nodes("the inventory", [*nodes], ", ".join(unknown), place, hint)
    return lambda hosts: ([node for name, node in nodes.items() if name in hosts], None)


def _wanted(suite: ResolvedSuite, folder: Path) -> Iterator[Wanted]:
    """The parts that need runs: number of the item, part, campaign, and its runs in all."""
    document = judge(suite, folder, load(folder)) if any(folder.glob("*/campaign.json")) else {}
    rows = iter(document.get("parts", ()))
    first = min(suite.looks, default=suite.pilot)
    for number, item in enumerate(suite.items):
        parts, needs = suite.parts(item), dict[Part, tuple[int, int]]()
        for part in (part for part in parts if part.name != reference_of(item)):
            row = next(rows, _NOT_RUN)
            is_open = row["verdict"] == UNDECIDED and (row["looks"] or row["deviation"] is None)
            looks = (row["looks"] or [first]) if is_open else []
            # The runs at which it is judged next, 0 if it needs none; and those that it has.
            needs[part] = next((n for n in looks if n > row["runs"]), 0), row["runs"]
        # A reference needs as many runs as the part that needs most.
        most = max(look for look, _ in needs.values())
        for part in parts:
            place = folder / f"{number + 1}-{part.name}"
            is_planned = place.exists()
            ended = len(read_plan(place)["runs"]) - len(missing_runs(place)) if is_planned else 0
            look, valid = needs.get(part, (most, ended))
            # Runs that do not count are made again, but not for ever.
            if (repeats := min(ended + look - valid, 2 * look)) > ended:
                yield number, part, place, repeats
