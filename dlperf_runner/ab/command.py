"""The command `ab`: two versions of anything, in turns, until it is decided which is faster."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ..campaign.directory import new_directory
from ..compare.verdicts import UNDECIDED
from ..core.errors import UserError
from ..options import AsJson, Chosen, chooses, option, print_errors, print_json, screen
from ..options.scheduler import of_scheduler
from ..plan.choice import fraction, parse_choice
from ..report.numbers import decimals, percent
from ..report.tables import Column, cell, span
from ..report.terminal import table
from ..results.load import load_results
from .turns import OF_PAIRS, Campaign, MostPairs, PairedTest, judge, parse_side, run_in_turns

ORDER = 90
_Directories = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Two campaigns that were run in turns: judge them, run nothing.", metavar="[DIR] [DIR]"
    ),
]
_OfSide = (
    "of `run`, a parameter, an environment variable such as NCCL_ALGO, or a variable of nodes such"
    " as dlperf_stack; may be repeated."
)
_SideA = Annotated[list[str] | None, option("--a", f"What side A has: an option {_OfSide}", "K=V")]
_SideB = Annotated[list[str] | None, option("--b", "The same of side B.", "K=V")]
_Within = Annotated[str, option("--within", "A difference wholly within this is none.", "PERCENT")]


@partial(chooses, further=of_scheduler(), without=OF_PAIRS)
def command(
    chosen: Chosen,
    directories: _Directories = None,
    a: _SideA = None,
    b: _SideB = None,
    campaign: Campaign = "",
    within: _Within = "1%",
    most: MostPairs = 32,
    as_json: AsJson = False,
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
    for side in "ab":
        rate = cell(document[f"median_{side}"], f".{places}f").text
        title = f"{side.upper()}: {document.get(f'side_{side}') or 'as planned'}"
        rows.append((title, rate if rate == "-" else f"{rate} {document['unit']}", document[side]))
    text, interval = table(_COLUMNS, rows, screen()), ""
    if document["low"] is not None:
        ends = span(document["low"], document["high"], percent, " to ").text
        interval = f": {percent(document['difference'])} ({ends})"
    why = f"; {document['why']}" if document["why"] else ""
    text += f"\nB is {document['verdict']}{interval}, {document['judged_pairs']} pairs{why}.\n"
    if document["differs_in"]:
        text += f"The records differ in {'; '.join(document['differs_in'])}.\n"
    return text
