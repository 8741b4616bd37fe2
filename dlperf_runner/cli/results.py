"""The commands `summarize` and `status`: show the results and the remaining runs of a campaign."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import UserError
from .options import AsJson, print_json

LATEST = Path("results/latest")
_History = Annotated[
    Path | None,
    typer.Option(
        "--history",
        help="Record the results in this file; default for campaigns in results/:"
        " results/history.sqlite; for other logs: none.",
        metavar="FILE",
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
        typer.Option("--output-dir", help="Output directory; default: DIR.", metavar="DIR"),
    ] = None,
    history: _History = None,
    no_history: Annotated[
        bool, typer.Option("--no-history", help="Do not record the results in the history.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Write nothing; exit with status 1 if a file was changed, deleted or added, or if"
            " recorded results differ from the logs.",
        ),
    ] = False,
    sign: Annotated[
        Path | None,
        typer.Option(
            "--sign",
            help="Sign the manifest with this SSH key, when the results are written.",
            metavar="KEY",
        ),
    ] = None,
    allowed_signers: Annotated[
        Path | None,
        typer.Option(
            "--allowed-signers",
            help="With --verify: require a signature by one of the signers in this file"
            " (see ssh-keygen(1)).",
            metavar="FILE",
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
    for problem in result.problems:
        print(f"error: {problem}", file=sys.stderr)
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
    from ..report.text import counted

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
    for problem in result.problems:
        print(f"error: {problem}", file=sys.stderr)
    if found or result.problems:
        raise typer.Exit(1 if found else 2)


def status(
    directory: Annotated[
        Path, typer.Argument(help="The directory of a campaign.", metavar="[DIR]")
    ] = LATEST,
    as_json: AsJson = False,
) -> None:
    """Show the unfinished runs of a campaign. The exit status is 1 if there are any."""
    from ..campaign import directory as campaigns
    from ..report.terminal import coloured

    records = campaigns.read_records(directory)
    for record in records:
        if campaigns.is_cut_off(record["outcome"]):
            record["outcome"] |= {"status": "cut off", "message": "its controller ended"}
    left = [record for record in records if not campaigns.is_done(directory, record)]
    done = len(records) - len(left)
    if as_json:
        unfinished = {record["id"] for record in left}
        document = {
            "runs": [
                {
                    "id": record["id"],
                    "done": record["id"] not in unfinished,
                    "status": record["outcome"].get("status"),
                    "message": record["outcome"].get("message"),
                }
                for record in records
            ],
            "done": done,
            "total": len(records),
        }
        print_json(document)
    else:
        for record in left:
            outcome = record["outcome"]
            message = f": {outcome['message']}" if outcome.get("message") else ""
            colour = "red" if outcome["status"] == "failed" else "yellow"
            print(f"{record['id']}  {coloured(outcome['status'], colour, sys.stdout)}{message}")
        print(f"{done} of {len(records)} runs done")
    if left:
        raise typer.Exit(1)
