"""The command `ab`: two versions of anything, run in turns (A B B A), and the verdict by pairs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any

import typer
import yaml

from ..campaign.directory import missing_runs, new_directory
from ..compare.verdicts import NO_DIFFERENCE, UNDECIDED, on_limit, side
from ..control.rounds import Execution, grow
from ..control.scheduled import create_case, execute
from ..core.errors import UserError, unknown_name
from ..core.frame import records, throughput
from ..core.identity import CASE, differing, label, value_text
from ..options import Chosen, chooses, option, print_errors, print_json, print_note, screen
from ..options.scheduler import of_scheduler, scheduled
from ..plan.choice import VARIABLES, fraction, parse_choice
from ..plan.inventory import VARIABLES as OF_NODES
from ..plan.inventory import read_inventory
from ..report.numbers import decimals, percent
from ..report.tables import Column, cell, span
from ..report.terminal import table
from ..results.load import Results, load_results
from ..stats.intervals import ConfidenceInterval
from ..stats.sequential import judged, mean_of_logs
from .verify import refuse_tampered

ORDER = 90
HELP = """
directories [DIR] [DIR]: Two campaigns that were run in turns: judge them, run nothing.
--a K=V: What side A has: an option of `run`, a parameter, an environment variable such as
  NCCL_ALGO, or a variable of nodes such as dlperf_stack; may be repeated.
--b K=V: The same of side B.
--within PERCENT: A difference wholly within this is none.
"""
_ENVIRONMENT = re.compile(r"[A-Z][A-Z0-9_]*", re.ASCII)
# What follows from the pairs, and what both sides have in common.
OF_PAIRS = ("repeats", "order", "seed", "until_ci", "max_repeats")
_SHARED = [key for key, item in VARIABLES.items() if item.name in ("nodes", *OF_PAIRS)]
_CHOSEN = {key: item.name for key, item in VARIABLES.items() if key not in _SHARED}
Campaign = Annotated[
    str, option("--campaign", "The folder of all campaigns; continued if it exists.", "DIR")
]
MostPairs = Annotated[int, option("--most", "At most so many pairs of two versions.", "N", min=4)]


@partial(chooses, further=of_scheduler(), without=OF_PAIRS)
def command(
    chosen: Chosen,
    directories: list[Path] | None = None,
    a: list[str] | None = None,
    b: list[str] | None = None,
    campaign: Campaign = "",
    within: str = "1%",
    most: MostPairs = 32,
    as_json: bool = False,
) -> None:
    """Compare two versions of anything, run in turns (A B B A) until it is decided, in pairs. The
    exit status is 1 if it is undecided, or if runs do not count.

    Example: dlperf ab --workload nccl-allreduce --nodes 2 --a NCCL_ALGO=Ring --b NCCL_ALGO=Tree"""
    test = PairedTest(fraction(within, "--within"), most)
    problems: list[str] = []
    if directories:
        if len(directories) != 2 or a or b or chosen.choice != parse_choice({}):
            raise UserError(
                "two campaigns are judged, or two sides are run",
                where="ab",
                expected="dlperf ab A B, or dlperf ab --a K=V --b K=V with options of `run`",
            )
        document = judge(load_results(directories[0]), load_results(directories[1]), test)
    else:
        sides = [parse_side(a or [], "--a"), parse_side(b or [], "--b")]
        if sides[0] == sides[1]:
            hint = "--a NAME=VALUE --b NAME=VALUE"
            raise UserError("both sides are the same", where="ab", hint=hint)
        folder = Path(campaign or new_directory()).resolve()
        document, problems = run_in_turns(folder, sides, chosen, test)
        document |= {"side_a": " ".join(a or []), "side_b": " ".join(b or [])}
    if as_json:
        print_json(document)
    else:
        print(render(document), end="")
    problems += document["not_counted"]
    print_errors(problems)
    raise typer.Exit(1 if problems or document["verdict"] == UNDECIDED else 0)


_COLUMNS = (Column("side"), Column("median", True), Column("campaign"))


def render(document: Mapping[str, Any]) -> str:
    """The verdict as a table."""
    places = decimals([document["median_a"], document["median_b"]])
    rows = []
    for name in "ab":
        rate = cell(document[f"median_{name}"], f".{places}f").text
        title = f"{name.upper()}: {document.get(f'side_{name}') or 'as planned'}"
        rows.append((title, rate if rate == "-" else f"{rate} {document['unit']}", document[name]))
    text, interval = table(_COLUMNS, rows, screen()), ""
    if document["low"] is not None:
        ends = span(document["low"], document["high"], percent, " to ").text
        interval = f": {percent(document['difference'])} ({ends})"
    why = f"; {document['why']}" if document["why"] else ""
    text += f"\nB is {document['verdict']}{interval}, {document['judged_pairs']} pairs{why}.\n"
    if document["differs_in"]:
        text += f"The records differ in {'; '.join(document['differs_in'])}.\n"
    return text


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
    for place, each in zip((a, b), sides, strict=True):
        create(place, each, chosen)
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


# ---- the verdict

SIZES = (4, 8, 16, 32, 64, 128)  # pairs at which verdicts are made


@dataclass(frozen=True)
class PairedTest:
    """`within`: a difference that is wholly within it (0.01 for 1 %) is none. `most`: pairs.
    `error`: the probability that equal sides are called different, over all looks. `slower`: judge
    only if B is slower than half of it: failed, or passed."""

    within: float = 0.01
    most: int = 32
    error: float = 0.05
    slower: float | None = None

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The looks."""
        return (*(size for size in SIZES if size < self.most), self.most)

    def interval(self, differences: list[float]) -> ConfidenceInterval:
        """Student's interval of the mean difference of the logarithms of pairs, at one look."""
        return mean_of_logs(differences).interval(1 - self.error / len(self.sizes))

    def decide(self, interval: ConfidenceInterval) -> str:
        """The verdict of a look. Of `slower`, the versions before and after the change are equally
        far from the limit."""
        if self.slower is not None:
            return on_limit(interval.low, interval.high, self.slower / 2)
        if (verdict := side(interval)) != NO_DIFFERENCE:
            return verdict
        is_within = -self.within <= interval.low and interval.high <= self.within
        return NO_DIFFERENCE if is_within else UNDECIDED


def judge(a: Results, b: Results, test: PairedTest) -> dict[str, Any]:
    """The verdict on B by the pairs of runs with the same number. Raises UserError if a side has
    several cases, if the sides have different units or a log in common, if somebody changed their
    runs, or if these were not made in turns on the same nodes."""
    refuse_tampered([a, b])
    _refuse_unpaired(a, b)
    rows = [_rates(a), _rates(b)]
    units = {row["unit"] for of_side in rows for row in of_side.values()}
    if len(units) > 1:
        raise UserError("the two sides count different things", found=", ".join(sorted(units)))
    common = sorted(rows[0].keys() & rows[1].keys())
    values = [[of_side[number]["value"] for number in common] for of_side in rows]
    differences = [math.log(y / x) for x, y in zip(*values, strict=True)]
    look = judged(
        len(common),
        test.sizes,
        lambda size: test.interval(differences[:size]),
        test.decide,
        UNDECIDED,
        "pair",
    )
    first, second = (next(iter(of_side.values()), {}) for of_side in rows)
    verdict = asdict(look)
    count = verdict.pop("size")
    return verdict | {
        "a": str(a.directory),
        "b": str(b.directory),
        "unit": first.get("unit"),
        "median_a": median(values[0]) if common else None,
        "median_b": median(values[1]) if common else None,
        "pairs": len(common),
        "judged_pairs": count,
        "looks": list(test.sizes),
        "difference": math.expm1(fmean(differences[:count])) if count else None,
        "differs_in": [
            f"{label(name)} {value_text(first[name])} and {value_text(second[name])}"
            for name in (differing([first, second], CASE) if first and second else ())
        ],
        "not_counted": [
            f"{path}: {why}" for each in (a, b) for path, why in each.not_counted.items()
        ],
    }


def _refuse_unpaired(a: Results, b: Results) -> None:
    """Raise UserError unless the records of both sides show that their runs are pairs."""
    runs = [{run.repeat: run for run in each.counted} for each in (a, b)]
    both = runs[0].keys() & runs[1].keys()
    turns = sorted(
        (run.started or 0.0, number, side)
        for side, of_side in enumerate(runs)
        for number, run in of_side.items()
    )
    expected = problem = None
    if early := [n for (_, before, _), (_, n, _) in pairwise(turns) if n < before]:
        problem = "the two campaigns were not run in turns, so their runs are no pairs"
        expected = f"the runs r{early[0]} of both before r{early[0] + 1} of either"
    # A is first in odd pairs, B in even ones; or the other way round.
    elif len({(n + side) % 2 for n, side in {n: s for _, n, s in turns if n in both}.items()}) > 1:
        problem, expected = "the sides did not take turns to be first", "A B B A, as `ab` runs them"
    for number in both:
        hosts = [each[number].hosts for each in runs]
        if all(hosts) and {*hosts[0]} != {*hosts[1]}:
            problem = f"the runs r{number} were on different nodes, so they are no pair"
            expected = f"the nodes of the first, {', '.join(hosts[0])}; see --limit, --nodelist"
            break
    silent = (run.path for each in runs for run in each.values() if run.started is None)
    if log := next(silent, None):
        problem = "nothing records when these runs began"
        expected = f"the start in {log.with_name('run.json')}, as campaigns have"
    if problem:
        hint = "`dlperf compare` judges campaigns that were run one after the other"
        where = f"{a.directory} and {b.directory}"
        raise UserError(problem, where=where, expected=expected, hint=hint)


def _rates(results: Results) -> dict[int, Mapping[str, Any]]:
    """The rows of the valid runs of the side's only case, by the number of the run."""
    rows = records(throughput(results.frame))
    for name, values in differing(rows, CASE).items():
        raise UserError(
            "a side has runs of several cases",
            where=str(results.directory),
            expected=f"one {label(name)}",
            found=", ".join(sorted(map(value_text, values))),
        )
    return {row["repeat"]: row for row in rows}
