"""The command `report`: writes a page with plots and tables for one or more campaigns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import AboutLogs, AsJson, Conditions, exit_with, option, print_json, states


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
        files, problems = [*map(str, made.paths)], [*map(str, made.problems)]
        document = {"answers": made.answers, "files": files}
        print_json({**document, "notes": made.notes, "problems": problems})
    else:
        for text in (*made.answers, *made.notes, *map(str, made.paths)):
            print(text)
    exit_with(made.problems, made.is_incomplete)
