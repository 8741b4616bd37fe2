"""The two sides, a campaign of each, and their runs in turns, A B B A, until the pairs decide."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import yaml

from ..campaign.directory import missing_runs
from ..compare.verdicts import UNDECIDED
from ..control.rounds import Execution, grow
from ..control.scheduled import create_case, execute
from ..core.errors import UserError, unknown_name
from ..options import Chosen, option, print_note
from ..options.scheduler import scheduled
from ..plan.choice import VARIABLES, parse_choice
from ..plan.inventory import VARIABLES as OF_NODES
from ..plan.inventory import read_inventory
from ..results.load import load_results
from .pairs import PairedTest, judge

_ENVIRONMENT = re.compile(r"[A-Z][A-Z0-9_]*", re.ASCII)
# What follows from the pairs, and what both sides have in common.
OF_PAIRS = ("repeats", "order", "seed", "until_ci", "max_repeats")
_SHARED = [key for key, item in VARIABLES.items() if item.name in ("nodes", *OF_PAIRS)]
_CHOSEN = {key: item.name for key, item in VARIABLES.items() if key not in _SHARED}
Campaign = Annotated[
    str, option("--campaign", "The folder of all campaigns; continued if it exists.", "DIR")
]
MostPairs = Annotated[int, option("--most", "At most so many pairs of two versions.", "N", min=4)]


@dataclass(frozen=True)
class Side:
    """A choice, parameters of the workload, variables of the nodes, and environment variables."""

    choice: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


def parse_side(texts: Sequence[str], where: str) -> Side:
    """A side from its `NAME=VALUE`. A name is an option of `run` (precision), a variable of nodes
    (dlperf_stack), an environment variable (NCCL_ALGO) or, else, a parameter of the workload."""
    side = Side()
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier() or not value.isprintable():
            raise UserError("invalid side", where=where, expected="NAME=VALUE", found=repr(text))
        if name in _SHARED:
            raise UserError("both sides have this in common", where=f"{where} {text}")
        if name in _CHOSEN:
            side.choice[_CHOSEN[name]] = value
        elif name in OF_NODES:
            try:
                side.nodes[name] = yaml.safe_load(value)
            except yaml.YAMLError as error:
                place = f"{where} {text}"
                raise UserError("invalid value", where=place, found=str(error)) from None
        elif name.startswith("dlperf_"):
            raise unknown_name("variable", name, OF_NODES, where)
        elif _ENVIRONMENT.fullmatch(name):
            side.environment[name] = value
        else:
            side.parameters[name] = value
    return side


def create(directory: Path, side: Side, chosen: Chosen) -> None:
    """A new campaign with one run of the side. Raises UserError if the choice has several cases, or
    if the campaign exists and has other runs."""
    changed = {name: getattr(parse_choice(side.choice), name) for name in side.choice}
    parameters = chosen.choice.parameters | side.parameters
    choice = replace(chosen.choice, **changed, parameters=parameters, repeats=1)
    jobs, settings = scheduled(chosen), None
    if jobs.name:
        if name := next(iter(side.nodes), ""):
            problem = "the nodes of a scheduler have the variables of --site"
            expected = "an environment variable, an option or a parameter"
            raise UserError(problem, where=f"{name}=", expected=expected)
        choice, nodes, settings = jobs.planned(replace(chosen, choice=choice))
    else:
        nodes = read_inventory(chosen.inventories, chosen.limit or None, side.nodes, connects=True)
    on = [replace(node, env=node.env | side.environment) for node in nodes]
    create_case(directory, choice, on, settings, print_note, "ab")


def run_in_turns(
    folder: Path, sides: Sequence[Side], chosen: Chosen, test: PairedTest
) -> tuple[dict[str, Any], list[str]]:
    """Run pairs in the folder, which may exist, until a look decides; returns the verdict, and what
    went wrong. Pairs that are done already are not run again. A run that is not done ends it."""
    a, b = (folder / name for name in "ab")
    for place, side in zip((a, b), sides, strict=True):
        create(place, side, chosen)
    execution = Execution(chosen.inventories, chosen.wait, print_note)
    document = _judged(a, b, test)
    for done, size in pairwise((0, *test.sizes)):
        for directory, repeats in turns(a, b, done, size):
            grow(directory, repeats, "the next pairs")
            problems = execute(directory, execution)
            if missing_runs(directory):
                where = f"{directory}: a run is not done; see `dlperf status {directory}`"
                return _judged(a, b, test), [*problems, where]
        document = _judged(a, b, test)
        print_note(f"{size} pairs: {document['verdict']}")
        if document["verdict"] != UNDECIDED:
            break
    return document, []


def turns(a: Path, b: Path, done: int, pairs: int) -> list[tuple[Path, int]]:
    """The sides in turn, with the number of their runs after it: of odd pairs A comes first, of
    even ones B, so that runs of one side that follow each other are one turn."""
    numbers = range(done + 1, pairs + 1)
    order = [(side, n) for n in numbers for side in ((a, b) if n % 2 else (b, a))]
    return [[*turn][-1] for _, turn in groupby(order, itemgetter(0))]


def _judged(a: Path, b: Path, test: PairedTest) -> dict[str, Any]:
    return judge(load_results(a), load_results(b), test)
