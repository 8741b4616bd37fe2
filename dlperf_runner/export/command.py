"""Writes results in the formats of other programs."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.errors import UserError, as_user_error, unknown_name
from ..core.files import open_append, read_json, write_result
from ..options import LATEST, AboutLogs, completes, exit_with, reading_logs, states
from .record import ExportedCampaign, exported_cases, of_history

if TYPE_CHECKING:
    from ..results.statement import Statements

ORDER = 200
HELP = """
sources [RESULTS]...: Campaigns, directories of logs, or a history (.sqlite); default:
  results/latest.
--output -o PATH: A file; default: standard output, for github GITHUB_STEP_SUMMARY. For mlflow and
  wandb a directory; default: mlruns, and the current one.
"""


@states
def command(
    about: AboutLogs,
    form: Annotated[
        str,
        typer.Argument(
            help="prometheus (text file), openmetrics, github (step summary), mlflow or wandb"
            " (offline).",
            metavar="FORMAT",
            autocompletion=completes(lambda: FORMATS),
        ),
    ],
    sources: list[Path] | None = None,
    output: Path | None = None,
) -> None:
    """Export results to Prometheus, MLflow, Weights & Biases or GitHub. The exit status is that of
    `summarize`.

    Example: dlperf export openmetrics examples/logs"""
    if form not in FORMATS:
        raise unknown_name("format", form, FORMATS, "FORMAT")
    names = _names(sources or [LATEST])
    read = [_read(source, name, about.statements()) for source, name in names.items()]
    campaigns = [campaign for one in read for campaign in one.campaigns]
    if form in DIRECTORIES:
        place = output or Path("mlruns" if form == "mlflow" else ".")
        print(DIRECTORIES[form](campaigns, place))
    elif form == "github":
        print(_appended("".join(one.markdown for one in read), output))
    elif output:
        print(write_result(output, TEXTS[form](campaigns)))
    else:
        sys.stdout.buffer.write(TEXTS[form](campaigns))
    problems = [problem for one in read for problem in one.problems]
    exit_with(problems, any(one.is_incomplete for one in read))


SUMMARY = "GITHUB_STEP_SUMMARY"
_MODULES = [
    importlib.import_module(f"{__package__}.{module.name}")
    for module in pkgutil.iter_modules([str(Path(__file__).parent)])
    if module.name != Path(__file__).stem
]


def _of_modules(table: str) -> dict[str, Any]:
    return {name: it for module in _MODULES for name, it in getattr(module, table, {}).items()}


# The text of a format, or a writer to a directory, which says what to do next.
TEXTS: Mapping[str, Callable[[Sequence[ExportedCampaign]], bytes]] = _of_modules("TEXTS")
DIRECTORIES: Mapping[str, Callable[[Sequence[ExportedCampaign], Path], str]] = _of_modules(
    "DIRECTORIES"
)
FORMATS = (*TEXTS, "github", *DIRECTORIES)


@dataclass(frozen=True)
class _Read:
    """A source: its campaigns, and its results in Markdown. `problems` and `is_incomplete` as in
    `summarize`."""

    campaigns: Sequence[ExportedCampaign]
    markdown: str
    problems: Sequence[UserError] = ()
    is_incomplete: bool = False


def _names(sources: Sequence[Path]) -> dict[Path, str]:
    """A name for each source; where several have the same, each says where it is."""
    from ..campaign.directory import name_of

    by_path = {source.resolve(): source for source in sources}
    names = {source: name_of(source) for source in by_path.values()}
    several = Counter(names.values())
    return {
        source: name if several[name] == 1 else f"{name} ({path.parent})"
        for (path, source), name in zip(by_path.items(), names.values(), strict=True)
    }


def _read(source: Path, name: str, statements: Statements) -> _Read:
    if source.suffix == ".sqlite":
        return _history(source)
    from ..history.store import campaign_identity
    from ..report.markdown import text
    from ..report.result_files import documents
    from ..results.load import load_results

    results = load_results(source, statements=statements, progress=reading_logs)
    cases, _, files = documents(results, results.models)
    path = source / "campaign.json"
    record = read_json(path) if path.is_file() else {}  # other logs have none
    created = datetime.fromtimestamp(source.stat().st_mtime, UTC)
    if source.is_dir():
        created = datetime.fromisoformat(campaign_identity(source).created)
    copies = sum(run.copy_of is not None for run in results.runs)
    states = {
        "counted": len(results.counted),
        "not counted": len(results.runs) - len(results.counted) - copies,
        "missing": len(results.missing),
        "damaged": len(results.problems),
    }
    exported = ExportedCampaign(
        name,
        created,
        exported_cases(cases, results.frame),
        # Campaigns in one folder are of one site. Other logs may be of any machine.
        str(source.resolve().parent if record else source.resolve()),
        [str(tag) for tag in record.get("tags") or ()],
        record.get("notes"),
        states,
    )
    markdown = files["summary.md"].replace("# Results", f"# {text(name)}", 1)
    return _Read([exported], markdown, results.problems, results.is_incomplete)


def _history(file: Path) -> _Read:
    from ..history.store import points
    from ..report.history_view import by_case, cases_table, explained

    rows = points(file)
    if not rows:
        raise UserError("the history is empty", where=str(file))
    cases = by_case(rows)
    changes = {name: explained(of_case) for name, of_case in cases.items()}
    markdown = f"# History\n\n{cases_table(cases, changes).strip()}\n"
    return _Read(of_history(rows, str(file.resolve())), markdown)


def _appended(text: str, output: Path | None) -> str:
    """Append to the summary of a step, which other commands of the step also write."""
    path = output or Path(os.environ.get(SUMMARY, ""))
    if path == Path():
        raise UserError(
            "there is no file for the summary",
            where=SUMMARY,
            expected="the file that GitHub Actions sets for a step, or --output",
        )
    with as_user_error("cannot write the summary", path), open_append(path) as file:
        file.write(f"{text}\n".encode())
    return str(path)
