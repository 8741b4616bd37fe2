"""The commands `summarize` and `status`: show the results and the remaining runs of a campaign."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import UserError
from .options import AsJson, option, print_errors, print_json, screen

LATEST = Path("results/latest")
_History = Annotated[
    Path | None,
    option(
        "--history",
        "Record the results in this file; default for campaigns in results/:"
        " results/history.sqlite; for other logs: none.",
        "FILE",
    ),
]


def summarize(
    directory: Annotated[
        Path,
        typer.Argument(
            help="A campaign, or a directory of published logs.",
            metavar="[DIR]",
            show_default=True,
        ),
    ] = LATEST,
    output_dir: Annotated[
        Path | None,
        option("--output-dir", "Output directory; default: DIR.", "DIR"),
    ] = None,
    history: _History = None,
    no_history: Annotated[
        bool, option("--no-history", "Do not record the results in the history.")
    ] = False,
    verify: Annotated[
        bool,
        option(
            "--verify",
            "Write nothing; exit with status 1 if a file was changed, deleted or added, or if"
            " recorded results differ from the logs.",
        ),
    ] = False,
    sign: Annotated[
        Path | None,
        option(
            "--sign", "Sign the manifest with this SSH key, when the results are written.", "KEY"
        ),
    ] = None,
    allowed_signers: Annotated[
        Path | None,
        option(
            "--allowed-signers",
            "With --verify: require a signature by one of the signers in this file"
            " (see ssh-keygen(1)).",
            "FILE",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute speeds, speed-ups and efficiencies from logs, and print the table."""
    path = None if no_history else history or history_of(directory)
    if (sign is not None and verify) or (allowed_signers is not None and not verify):
        raise UserError("--sign is for writing results, --allowed-signers is for --verify")
    if verify:
        _verify(directory, output_dir, path, allowed_signers, as_json)
        return
    fine = print_summary(directory, output_dir, path, as_json)
    if sign is not None:
        from ..campaign.manifest import home
        from ..campaign.signature import sign as sign_manifest

        print(sign_manifest(home(output_dir or directory), sign), file=sys.stderr)
    if not fine:
        raise typer.Exit(2)


def history_of(directory: Path) -> Path | None:
    """The default history file of a directory."""
    from ..history import store as history

    return history.history_of(directory) if (directory / "campaign.json").is_file() else None


def print_summary(
    directory: Path, output_dir: Path | None, history: Path | None, as_json: bool = False
) -> bool:
    """Print the table and the paths of its files. Returns False if a log failed validation."""
    from ..commands.progress import reading_logs
    from ..commands.summarize import summarize as summarize_directory

    result = summarize_directory(directory, output_dir, progress=reading_logs)
    if as_json:
        document = {**json.loads(result.document), "files": [str(path) for path in result.paths]}
        print_json(document)
    else:
        print(result.text)
        for path in result.paths:
            here = path.is_absolute() and path.is_relative_to(Path.cwd())
            print(path.relative_to(Path.cwd()) if here else path)
    print_errors(result.problems)
    if history is not None:
        from ..commands.summarize import record

        record(history, directory, result)
    return not result.problems


def _verify(
    directory: Path,
    output_dir: Path | None,
    history: Path | None,
    allowed_signers: Path | None,
    as_json: bool,
) -> None:
    from ..commands.progress import reading_logs
    from ..commands.verify import verify
    from ..report.terminal import counted

    result = verify(
        directory, output_dir, history, allowed_signers=allowed_signers, progress=reading_logs
    )
    found = result.differences
    if as_json:
        problems = [str(problem) for problem in result.problems]
        document = {"differences": found, "notes": result.notes, "problems": problems}
        print_json(document)
    else:
        for sentence in (*result.notes, *found):
            print(sentence)
        end = counted(len(found), "difference")
        print(end if found else "everything that was compared is as it was recorded")
    print_errors(result.problems)
    if found or result.problems:
        raise typer.Exit(1 if found else 2)


def status(
    directory: Annotated[
        Path, typer.Argument(help="The directory of a campaign.", metavar="[DIR]")
    ] = LATEST,
    as_json: AsJson = False,
) -> None:
    """Show the unfinished runs of a campaign. The exit status is 1 if there are any."""
    from ..commands.campaigns import status_of
    from ..report.tables import Cell, Column
    from ..report.terminal import table

    document = status_of(directory)
    left = [run for run in document["runs"] if not run["done"]]
    if as_json:
        print_json(document)
    else:
        columns = (Column("run"), Column("status"), Column("message", wraps=True))
        rows = (
            (run["id"], Cell(run["status"], run["status"], run["status"]), run["message"] or "")
            for run in left
        )
        print(table(columns, rows, screen()) if left else "", end="")
        print(f"{document['done']} of {document['total']} runs done")
    if left:
        raise typer.Exit(1)
