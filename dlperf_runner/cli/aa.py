"""The command `aa`: measures how far campaigns of the same thing are apart."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson, Chosen, chooses, exit_with, option, print_json, print_note, screen


@chooses
def aa(
    chosen: Chosen,
    directories: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Campaigns of the same thing, at least 3.", metavar="[DIR]...", show_default=False
        ),
    ] = None,
    campaigns: Annotated[
        int | None,
        option(
            "--campaigns",
            "Run campaigns until there are as many as this, those in DIR included.",
            "N",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the spread between campaigns of the same thing, for `compare`."""
    from ..commands import campaigns as commands
    from ..commands.aa import distinct_campaigns, measure_directories, refuse_choice, run_missing
    from ..compare.spread import save_spreads
    from ..plan.choice import parse_choice, parse_wait
    from ..report.spread_text import render_spreads, spread_records

    parse_wait(chosen.wait)
    found = distinct_campaigns(directories or [], campaigns)
    if campaigns is None:
        refuse_choice(chosen.choice, parse_choice({}))
    else:
        more = partial(
            commands.run,
            *(chosen.choice, chosen.inventories, chosen.limit),
            wait=chosen.wait,
            say=print_note,
        )
        found = run_missing(found, campaigns, more)
    measured, problems = measure_directories(found)
    path = save_spreads(measured) if measured.spreads else None
    if as_json:
        print_json({"campaigns": [str(d) for d in found], "cases": list(spread_records(measured))})
    else:
        print(render_spreads(measured, screen()), end="")
        if path is not None:
            print(path)
    exit_with(problems, not measured.spreads)
