"""The command `aa`: measures how far campaigns of the same thing are apart."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import AsJson, Inventories, Limit, Wait, chooses, print_json

if TYPE_CHECKING:
    from ..plan.choice import Choice


@chooses
def aa(
    choice: Choice,
    directories: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Campaigns of the same thing, at least 3.", metavar="[DIR]...", show_default=False
        ),
    ] = None,
    campaigns: Annotated[
        int | None,
        typer.Option(
            "--campaigns",
            help="Run campaigns until there are as many as this, those in DIR included.",
            metavar="N",
            show_default=False,
        ),
    ] = None,
    inventory: Inventories = None,
    limit: Limit = "",
    wait: Wait = "",
    as_json: AsJson = False,
) -> None:
    """Measure the spread between campaigns of the same thing, for `compare`."""
    from ..commands.aa import distinct, measure_directories, refuse_choice, run_missing
    from ..commands.planning import planned
    from ..commands.rounds import execute_campaign
    from ..compare.spread import save_spreads
    from ..plan.choice import parse_choice, parse_wait
    from ..report.spread_text import render_spreads, spread_records

    parse_wait(wait)
    found = distinct(directories or [], campaigns)
    if campaigns is None:
        refuse_choice(choice, parse_choice({}))
    else:
        found = run_missing(
            found,
            campaigns,
            lambda: planned(choice, inventory, limit),
            lambda directory: _tell(
                execute_campaign(directory, inventory or [], wait, lambda line: _tell([line]))
            ),
        )
    measured, problems = measure_directories(found)
    path = save_spreads(measured) if measured.spreads else None
    if as_json:
        print_json({"campaigns": [str(d) for d in found], "cases": list(spread_records(measured))})
    else:
        width = max(shutil.get_terminal_size((80, 24)).columns, 40)
        print(render_spreads(measured, width), end="")
        if path is not None:
            print(path)
    _tell(f"error: {problem}" for problem in problems)
    if problems:
        raise typer.Exit(2)
    if not measured.spreads:
        raise typer.Exit(1)


def _tell(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, file=sys.stderr)
