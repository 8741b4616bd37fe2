"""Measures the spread between campaigns of the same thing: reads several, or runs them first."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..campaign.directory import missing_runs
from ..compare.spread import measure, refuse_copies
from ..core.errors import UserError
from ..core.lists import counted
from ..options import Chosen, chooses, exit_with, print_json, print_note, screen
from ..results.load import catalogued, load_results
from ..stats.between_campaigns import LEAST_CAMPAIGNS

ORDER = 170
HELP = """
directories [DIR]...: Campaigns of the same thing, at least 3.
--campaigns N: Run campaigns until there are as many as this, those in DIR included.
"""


@chooses
def command(
    chosen: Chosen,
    directories: list[Path] | None = None,
    campaigns: int | None = None,
    as_json: bool = False,
) -> None:
    """Measure the spread between campaigns of the same thing, for `compare`.

    Example: dlperf aa results/first results/second"""
    from ..compare.spread import save_spreads
    from ..plan.choice import parse_choice, parse_wait
    from ..report.compare_text import render_spreads, spread_records

    parse_wait(chosen.wait)
    folders = distinct_campaigns(directories or [], campaigns)
    if campaigns is None and chosen.choice != parse_choice({}):
        raise UserError(
            "a choice of what to run has an effect only with --campaigns",
            where="aa",
            hint="add --campaigns 3 to run campaigns",
        )
    if campaigns is not None:
        folders = run_missing(folders, campaigns, chosen)
    models = catalogued(folders)
    loaded = {str(folder): load_results(folder, models) for folder in folders}
    refuse_copies((name, results.logs) for name, results in loaded.items())  # they show no spread
    measured = measure({name: results.frame for name, results in loaded.items()})
    path = save_spreads(measured) if measured.spreads else None
    if as_json:
        print_json(
            {"campaigns": [str(d) for d in folders], "cases": list(spread_records(measured))}
        )
    else:
        print(render_spreads(measured, screen()), end="")
        if path is not None:
            print(path)
    problems = [problem for results in loaded.values() for problem in results.problems]
    exit_with(problems, not measured.spreads)


def distinct_campaigns(directories: Iterable[Path], wanted: int | None) -> list[Path]:
    """The campaigns to read, before others are run until there are as many as wanted.

    Raises UserError if one is named twice, or if there are or will be too few.
    """
    folders: list[Path] = []
    for directory in directories:
        if directory.resolve() in folders:
            raise UserError("a campaign is named twice", where=str(directory))
        folders.append(directory.resolve())
    number = len(folders) if wanted is None else wanted
    if number < max(LEAST_CAMPAIGNS, len(folders)):
        raise UserError(
            "too few campaigns for a spread",
            where="aa" if wanted is None else "--campaigns",
            expected=f"at least {max(LEAST_CAMPAIGNS, len(folders))}",
            found=str(number),
            hint="dlperf aa CAMPAIGN CAMPAIGN CAMPAIGN, or dlperf aa --campaigns 3 --model NAME",
        )
    return folders


def run_missing(folders: Sequence[Path], wanted: int, chosen: Chosen) -> list[Path]:
    """Run campaigns, one after the other, until there are as many as wanted.

    Raises UserError if a run of a campaign is not done; that campaign and those before it are kept.
    """
    from ..control.campaigns import prepare
    from ..control.rounds import Execution, execute_campaign

    directories, place = list(folders), Execution(chosen.inventories, chosen.wait, print_note)
    while len(directories) < wanted:
        directory = prepare(chosen.choice, place.inventories, chosen.limit, place.wait, place.say)
        problems = execute_campaign(directory, place)
        directories.append(directory)
        if left := missing_runs(directory):
            again = shlex.join(map(str, directories))
            raise UserError(
                f"{counted(len(left), 'run')} not done",
                where=str(directory),
                found="; ".join(problems) or None,
                hint=f"dlperf run --resume {shlex.quote(str(directory))} --retry-failed, then"
                f" dlperf aa {again} --campaigns {wanted} with the same choice",
            )
    return directories
