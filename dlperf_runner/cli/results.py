"""The commands `summarize` and `status`: show the results and the remaining runs of a campaign."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.errors import UserError
from .options import (
    AboutLogs,
    AsJson,
    CampaignDirectory,
    option,
    print_errors,
    print_json,
    print_note,
    screen,
    states,
)

if TYPE_CHECKING:
    from ..results.statement import Statements

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


@states
def summarize(
    about: AboutLogs,
    sources: Annotated[
        list[Path] | None,
        typer.Argument(
            help="A campaign, or directories and files of logs; default: results/latest.",
            metavar="[LOGS]...",
            show_default=False,
        ),
    ] = None,
    output_dir: Annotated[
        Path | None,
        option(
            "--output-dir",
            "Output directory; default: the campaign, or results/<name> for other logs.",
            "DIR",
        ),
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
    """Compute speeds, speed-ups and efficiencies from logs, and print the table. The exit status is
    1 if a run failed, is missing or is invalid, and 2 if a log failed validation."""
    if (sign is not None and verify) or (allowed_signers is not None and not verify):
        raise UserError("--sign is for writing results, --allowed-signers is for --verify")
    logs = sources or [LATEST]
    if history and len(logs) > 1:
        raise UserError(
            "one directory at a time can be recorded",
            where="--history",
            expected="one campaign or directory of logs",
            found=f"{len(logs)} arguments",
        )
    statements = about.statements()
    if verify:
        path = None if no_history else history or history_of(logs[0])
        _verify(logs, output_dir, path, allowed_signers, as_json, statements)
        return
    status = print_summary(logs, output_dir, history, as_json, statements, no_history=no_history)
    if sign is not None:
        from ..campaign.manifest import home
        from ..campaign.signature import sign as sign_manifest
        from ..commands.destination import destination

        print(sign_manifest(home(output_dir or destination(logs)), sign), file=sys.stderr)
    if status:
        raise typer.Exit(status)


def history_of(directory: Path) -> Path | None:
    """The default history file of a directory."""
    if not (directory / "campaign.json").is_file():
        return None
    from ..history import store as history

    return history.history_of(directory)


def print_summary(
    sources: Sequence[Path],
    output_dir: Path | None = None,
    history: Path | None = None,
    as_json: bool = False,
    statements: Statements | None = None,
    *,
    no_history: bool = False,
) -> int:
    """Print the table and the paths of its files, and record the results. Returns the exit
    status."""
    from ..commands.progress import reading_logs
    from ..commands.summarize import summarize as summarize_logs

    result = summarize_logs(sources, output_dir, statements=statements, progress=reading_logs)
    if as_json:
        files = [str(path) for path in result.paths]
        print_json({**json.loads(result.document), "skipped": result.skipped, "files": files})
    else:
        print(result.text)
        for path in result.paths:
            here = path.is_absolute() and path.is_relative_to(Path.cwd())
            print(path.relative_to(Path.cwd()) if here else path)
    print_errors(result.problems)
    if output_dir and result.unwritten:
        raise result.unwritten
    default = None if no_history else history_of(sources[0])
    # Nothing is recorded of a campaign in a directory that cannot be written to.
    if file := history or (None if result.unwritten else default):
        from ..commands.summarize import record

        for note in record(file, sources[0], result):
            print_note(note)
    return 2 if result.problems else int(result.is_incomplete)


def _verify(
    sources: Sequence[Path],
    output_dir: Path | None,
    history: Path | None,
    allowed_signers: Path | None,
    as_json: bool,
    statements: Statements,
) -> None:
    from ..commands.progress import reading_logs
    from ..commands.verify import verify
    from ..core.lists import counted

    result = verify(
        sources,
        output_dir,
        history,
        statements=statements,
        allowed_signers=allowed_signers,
        progress=reading_logs,
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


def print_status(document: Mapping[str, Any]) -> None:
    """Print the runs that are not done or are invalid, with the reason, and how many are done."""
    from ..campaign.manifest import FILE
    from ..report.tables import Cell, Column
    from ..report.terminal import table

    left = [run for run in document["runs"] if not run["done"] or run["status"] == "invalid"]
    columns = (Column("run"), Column("status"), Column("message", wraps=True))
    rows = (
        (run["id"], Cell(run["status"], run["status"], run["status"]), _reason(run)) for run in left
    )
    print(table(columns, rows, screen()) if left else "", end="")
    invalid = f", {document['invalid']} of them invalid" if document["invalid"] else ""
    print(f"{document['done']} of {document['total']} runs done{invalid}")
    if names := document["unrecorded"]:
        print(f"not recorded in {FILE}: {', '.join(names)}. Resume the campaign to record them")


def _reason(run: Mapping[str, Any]) -> str:
    kind = f"{run['category']}: " if run["category"] else ""
    return f"{kind}{run['message'] or ''}" + (f". {run['advice']}" if run["advice"] else "")


def archive(
    directory: CampaignDirectory = LATEST,
    as_json: AsJson = False,
) -> None:
    """Compress the logs and the telemetry of a campaign's finished runs. They can be summarized and
    verified as before."""
    from dataclasses import asdict

    from ..commands.archive import archive as compress
    from ..core.lists import counted

    done = compress(directory)
    if as_json:
        print_json(asdict(done))
    else:
        sizes = f"{done.before / 2**20:.1f} MiB became {done.now / 2**20:.1f} MiB"
        print(f"{counted(done.files, 'file')} compressed: {sizes}")


def status(
    directory: CampaignDirectory = LATEST,
    watch: Annotated[
        bool,
        option(
            "--watch",
            "Show it again every two seconds until its controller ends, with the last rates, the"
            " GPU telemetry and the time left.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the unfinished runs of a campaign, why runs failed or are invalid, and done runs that
    the manifest lacks. The exit status is 1 if there are any."""
    from ..commands.controllers import status_of
    from ..commands.watch import poll_campaign

    if watch:
        for document in poll_campaign(directory):
            if sys.stdout.isatty():
                print("\x1b[H\x1b[2J", end="")
            print_status(document)
            print_telemetry(document["telemetry"])
            print(progress_line(document))
    else:
        document = status_of(directory)
        if as_json:
            print_json(document)
        else:
            print_status(document)
    _end(document)


def _end(document: Mapping[str, Any]) -> None:
    if document["done"] - document["invalid"] < document["total"] or document["unrecorded"]:
        raise typer.Exit(1)


def print_telemetry(telemetry: Mapping[str, Any]) -> None:
    """Print a row for each node: of its GPUs the means of utilization, the sum of power, and the
    largest of the others."""
    from operator import itemgetter
    from statistics import fmean

    from ..core.lists import grouped
    from ..report.tables import Column, cell
    from ..report.terminal import table

    if not telemetry["devices"]:
        return
    names = ("node", "GPUs", "utilization %", "W", "°C", "MiB")
    rows = []
    for node, devices in grouped(telemetry["devices"], itemgetter("node")).items():
        shown = []
        for name, summary in (
            ("utilization_percent", fmean),
            ("power_w", sum),
            ("temperature_c", max),
            ("memory_used_mib", max),
        ):
            values = [device[name] for device in devices if device[name] is not None]
            shown.append(cell(summary(values) if values else None, ".0f"))
        rows.append((node, str(len(devices)), *shown))
    when = "now" if telemetry["is_running"] else "means; largest temperature and memory"
    print(f"GPUs of {telemetry['run']}, {when}:")
    print(table([Column(name) for name in names], rows, screen()), end="")


def progress_line(document: Mapping[str, Any]) -> str:
    """`resnet50_b2_1n1g/r1: 9.8 10.1 10.2 samples/s; about 12 min left`."""
    from itertools import groupby

    parts = []
    series = document["series"]
    running = [run["id"] for run in document["runs"] if run["status"] == "running"]
    if running:
        points = series["points"] if series["run"] in running else ()
        rates = [rate for rate, _ in groupby(rate for _, rate in points)]
        shown = [f"{rate:.4g}" for rate in rates[-8:]]
        parts.append(
            f"{running[0]}: {' '.join([*shown, series['unit']]) if shown else 'no rate yet'}"
        )
    if (left := document["left_s"]) is not None:
        parts.append(f"about {left / 60:.0f} min left")
    owner = document["controller"]
    parts.append(f"controller: process {owner['process']['pid']}" if owner else "no controller")
    return "; ".join(parts)


def attach(directory: CampaignDirectory = LATEST) -> None:
    """Follow a campaign that runs detached or in another terminal. Ctrl-C leaves it running."""
    from ..campaign.directory import read_campaign
    from ..campaign.execute import follow
    from ..campaign.lock import owner_alive
    from ..commands.controllers import status_of

    read_campaign(directory)
    try:
        follow(directory, lambda: owner_alive(directory) is not None)
    except KeyboardInterrupt:
        print_note("The campaign continues.")
        return
    document = status_of(directory)
    print_status(document)
    _end(document)


def stop(
    directory: CampaignDirectory = LATEST,
    now: Annotated[bool, option("--now", "Stop the current run, too.")] = False,
) -> None:
    """Stop a campaign after its current run. It can be resumed."""
    from ..commands.controllers import stop as stop_controller

    print(stop_controller(directory, now=now))
