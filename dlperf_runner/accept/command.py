"""The command `accept`: runs what a suite lacks, a campaign for each part of each item and as many
runs as its next look; verdicts on the parts, and a page that others can check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ..campaign.directory import missing_runs, read_plan
from ..campaign.job_files import SchedulerSettings
from ..compare.verdicts import PASSED, UNDECIDED
from ..control.controllers import run_at_once
from ..control.rounds import Execution, grow
from ..control.scheduled import create_case, in_order_of_jobs
from ..core.errors import UserError, lacks_nodes
from ..core.lists import natural
from ..core.node import Node
from ..options import (
    AsJson,
    Inventories,
    Wait,
    exit_with,
    option,
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
from .judge import judge, load
from .suite import Part, Resolved, choice_of, read_suite, reference_of

ORDER = 175
_MEASURED = Path("results/acceptance")


_Suite = Annotated[Path, typer.Argument(help="The targets of the parts, in YAML.", metavar="SUITE")]
_Results = Annotated[Path | None, option("--results", "Judge these logs; run nothing.", "DIR")]
_Measure = Annotated[
    Path | None,
    option(
        "--measure",
        "Run what the suite lacks, in campaigns below this folder, and judge by them; repeat it"
        " to go on. Default: results/acceptance.",
        "DIR",
    ),
]
_Page = Annotated[Path | None, option("--page", "Write the page to this folder.", "DIR")]
_Sign = Annotated[Path | None, option("--sign", "With --page: sign it with this SSH key.", "KEY")]
_Check = Annotated[
    Path | None,
    option("--check", "Compare a page with the suite and the logs; status 1 if it differs.", "DIR"),
]
_AllowedSigners = Annotated[
    Path | None,
    option("--allowed-signers", "With --check: who may have signed (ssh-keygen(1)).", "FILE"),
]


@schedules
def command(
    jobs: Scheduled,
    suite_file: _Suite,
    results: _Results = None,
    measure: _Measure = None,
    inventory: Inventories = None,
    wait: Wait = "",
    page: _Page = None,
    sign: _Sign = None,
    check: _Check = None,
    allowed_signers: _AllowedSigners = None,
    as_json: AsJson = False,
) -> None:
    """Accept a cluster: measure each node, pair, scalable unit, and all of it until it is decided
    whether it reaches its target, with known error rates. The exit status is 1 unless all parts
    passed.

    Example: dlperf accept suite.yml --results results/rack7 --page acceptance"""
    _refuse_useless(page, sign, check, allowed_signers)
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
        where = Execution(inventories_of(suite, inventory, jobs), wait, print_note)
        failures = run_missing(suite, results, where, jobs)
    loaded = load(results, reading_logs)
    document = judge(suite, results, loaded)
    problems = [problem for each in loaded for problem in each.problems]
    if check is not None:
        differing, notes = pages.check(check, document, allowed_signers)
        if file := suite.suite.inventory:
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


def _refuse_useless(
    page: Path | None, sign: Path | None, check: Path | None, allowed: Path | None
) -> None:
    """Raise UserError at an option that has no effect."""
    if page is None:
        refuse_given({"sign": sign}, "this option has an effect only with --page")
    if check is not None:
        refuse_given({"page": page}, "a page is either written or checked")
    else:
        refuse_given({"allowed_signers": allowed}, "this option has an effect only with --check")


def inventories_of(suite: Resolved, given: Sequence[str] | None, jobs: Scheduled) -> list[str]:
    """The inventories of the command line, or else that of the suite, unless jobs run it."""
    if given or (path := suite.suite.inventory) is None or jobs.name:
        return list(given or ())
    return [path if "," in path else str(suite.path.parent / path)]


Wanted = tuple[int, Part, Path, int]


def run_missing(suite: Resolved, folder: Path, where: Execution, jobs: Scheduled) -> list[str]:
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
