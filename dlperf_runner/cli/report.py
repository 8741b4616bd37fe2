"""The command `report`: writes a page with plots and tables for one or more campaigns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import AboutLogs, AsJson, Conditions, option, print_errors, print_json, states


@states
def report(
    about: AboutLogs,
    directories: Annotated[
        list[Path],
        typer.Argument(help="Campaigns, or directories of published logs.", metavar="CAMPAIGN..."),
    ],
    output_dir: Annotated[
        Path | None,
        option(
            "--output-dir",
            "Output directory; default: CAMPAIGN/report, results/<name>/report for other logs,"
            " or ./report for several campaigns.",
            "DIR",
        ),
    ] = None,
    lang: Annotated[str, option("--lang", "en or zh.", "LANGUAGE")] = "en",
    condition: Conditions = None,
    as_json: AsJson = False,
) -> None:
    """Write report.html, report.md, plots and results.{csv,json,xlsx}. The exit status is 1 if a
    run failed, is missing or is invalid, and 2 if a log failed validation."""
    from ..commands.report import make_report

    made = make_report(
        directories, output_dir, lang, conditions=condition or [], statements=about.statements()
    )
    if as_json:
        document = {
            "answers": made.answers,
            "files": [str(path) for path in made.paths],
            "notes": made.notes,
            "problems": [str(problem) for problem in made.problems],
        }
        print_json(document)
    else:
        for text in (*made.answers, *made.notes, *map(str, made.paths)):
            print(text)
    print_errors(made.problems)
    if made.problems or made.is_incomplete:
        raise typer.Exit(2 if made.problems else 1)
