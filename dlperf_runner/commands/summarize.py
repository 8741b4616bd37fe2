"""Computes a table of speeds and speed-ups from logs, and writes result files.

The input is a campaign (runs/<case>/r<k>/run.json and its log), or directories, archives and files
of logs. A log that fails validation is reported. All other logs are counted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..campaign.manifest import HISTORY, append, home, seal
from ..catalog.workload import Model
from ..core.errors import UserError
from ..core.files import UnsafeFileError, readable_json, write_result
from ..core.frame import Frame
from ..core.lists import counted, grouped
from ..core.printable import printable
from ..options import LATEST, AboutLogs, print_errors, print_json, print_note, reading_logs, states
from ..report.result_files import destination, documents, guarded, source_document
from ..report.terminal import View
from ..results.archives import scratch_of
from ..results.discovery import CAMPAIGNS, Skipped
from ..results.load import Progress, catalogued, load_results
from ..results.statement import MAPPING, Statements, suggested_mapping

if TYPE_CHECKING:
    from ..report.terminal import Screen

ORDER = 150
HELP = """
sources [LOGS]...: A campaign, or directories, archives and files of logs; default: results/latest.
--output-dir DIR: Output directory; default: the campaign, or results/<name> for other logs.
--history FILE: Record the results in this file; default for campaigns in results/:
  results/history.sqlite; for other logs: none.
--no-history: Do not record the results in the history.
--verify: Write nothing; exit with status 1 if a file was changed, deleted or added, or if recorded
  results differ from the logs.
--sign KEY: Sign the manifest with this SSH key, when the results are written.
--allowed-signers FILE: With --verify: require a signature by one of the signers in this file (see
  ssh-keygen(1)).
--suggest-mapping: Write mapping.yml here, with a line to complete for each log that says too
  little.
"""


@states
def command(
    about: AboutLogs,
    sources: list[Path] | None = None,
    output_dir: Path | None = None,
    history: Path | None = None,
    no_history: bool = False,
    verify: bool = False,
    sign: Path | None = None,
    allowed_signers: Path | None = None,
    suggest_mapping: bool = False,
    as_json: bool = False,
) -> None:
    """Compute speeds, speed-ups and efficiencies from logs, and print the table. Results of MLPerf
    and logs of nccl-tests have their own tables. The exit status is 1 if a run failed, is missing
    or is invalid, and 2 if a log failed validation.

    Example: dlperf summarize examples/logs"""
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
    if suggest_mapping:
        _suggest_mapping(logs, statements)
        return
    status = print_summary(logs, output_dir, history, as_json, statements, no_history=no_history)
    if sign is not None:
        from ..campaign.manifest import sign as sign_manifest

        print(sign_manifest(home(output_dir or destination(logs)), sign), file=sys.stderr)
    if status:
        raise typer.Exit(status)


def _suggest_mapping(sources: Sequence[Path], statements: Statements) -> None:
    """Write a mapping to be completed into the current directory. Raises UserError if there is
    one."""
    path = Path(MAPPING)
    if path.exists():
        raise UserError(
            "there is a mapping already",
            where=str(path),
            expected="no such file here",
            hint=f"complete it, and state it with --mapping {path}; or move it away",
        )
    problems = load_results(sources, statements=statements, progress=reading_logs).problems
    if text := suggested_mapping(problems, sources):
        write_result(path, text)
        print(f"{path}: complete it, and state it with --mapping {path}")
    else:
        print("no log lacks a setting that a mapping could state, so none is written")


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
    result = summarize(sources, output_dir, statements=statements, progress=reading_logs)
    if as_json:
        files = [str(path) for path in result.paths]
        others = {view.name: view.document for view in result.views}
        document = {**json.loads(result.document), **others}
        print_json({**document, "skipped": result.skipped, "files": files})
    else:
        print(result.text)
        for path in result.paths:
            here = path.is_absolute() and path.is_relative_to(Path.cwd())
            print(path.relative_to(Path.cwd()) if here else path)
    problems = [*result.problems, *chain.from_iterable(view.problems for view in result.views)]
    print_errors(problems)
    if output_dir and result.unwritten:
        raise result.unwritten
    default = None if no_history else history_of(sources[0])
    # Nothing is recorded of a campaign in a directory that cannot be written to.
    if file := history or (None if result.unwritten else default):
        for note in record(file, sources[0], result):
            print_note(note)
    is_negative = result.is_incomplete or any(view.is_negative for view in result.views)
    return 2 if problems else int(is_negative)


def _verify(
    sources: Sequence[Path],
    output_dir: Path | None,
    history: Path | None,
    allowed_signers: Path | None,
    as_json: bool,
    statements: Statements,
) -> None:
    from .verify import verify

    result = verify(
        sources,
        output_dir,
        history,
        statements=statements,
        allowed_signers=allowed_signers,
        progress=reading_logs,
    )
    differences = result.differences
    if as_json:
        problems = [str(problem) for problem in result.problems]
        document = {"differences": differences, "notes": result.notes, "problems": problems}
        print_json(document)
    else:
        for sentence in (*result.notes, *differences):
            print(sentence)
        end = counted(len(differences), "difference")
        print(end if differences else "everything that was compared is as it was recorded")
    print_errors(result.problems)
    if differences or result.problems:
        raise typer.Exit(1 if differences else 2)


@dataclass(frozen=True)
class SummaryResult:
    """The result of `summarize`.

    `notes`: on the table. `problems`: logs that failed validation. `is_incomplete`: a run failed,
    is missing or is invalid. `paths`: the files written. `unwritten`: why there are none.
    `frame` and `cases`: the computed values. `document`: the content of summary.json. `skipped`:
    the files that were not read as logs, with the reasons. `views`: the results of other kinds.
    """

    notes: list[str]
    problems: list[UserError]
    is_incomplete: bool
    paths: list[Path]
    unwritten: UserError | None
    frame: Frame
    cases: list[dict[str, Any]]
    document: str
    skipped: Mapping[str, str]
    views: Sequence[View] = ()

    @property
    def text(self) -> str:
        """The table and its notes, for standard output."""
        from ..report.case_tables import render
        from ..report.terminal import Screen

        screen = Screen.from_stream(sys.stdout)
        views = [view.render(screen).rstrip("\n") + "\n" for view in self.views]
        has_runs = self.cases or self.notes or not views
        return "\n".join([render(self.cases, self.notes, screen)] * bool(has_runs) + views)


def summarize(
    sources: Path | Sequence[Path],
    output_dir: Path | None = None,
    models: Sequence[Model] | None = None,
    *,
    statements: Statements | None = None,
    progress: Progress | None = None,
) -> SummaryResult:
    """Summarise a campaign, or all logs in directories and files, and write the results.

    `output_dir`: by default, the campaign, or results/<name> for other logs. `models`: by
    default, those of the catalogue. `statements`: what the user states about the
    logs. `progress`: as in `load_results`.

    Raises UserError if there are no logs. Errors in single logs are in the result's `problems`.
    """
    sources = [sources] if isinstance(sources, Path) else sources
    models = catalogued(sources) if models is None else models
    with ExitStack() as stack:
        results = load_results(
            sources,
            models,
            statements=statements,
            progress=progress,
            scratch=scratch_of(stack),
            with_others=True,
        )
        views = _views(results.skipped, models)
    cases, notes, files = documents(results, models)
    place = output_dir or destination(sources)
    source = source_document(sources) if output_dir is None else {}
    paths: list[Path] = []
    unwritten = None
    if views and not (results.runs or results.problems):
        notes = []  # no result is one of a training run
    elif results.counted or not readable_json(place / "summary.json").get("cases"):
        paths, unwritten = _written(place, output_dir or guarded(sources), files | source)
    else:
        notes.append(f"the earlier results in {place} are kept, because no run could be counted")
    if results.problems:
        count = counted(len(results.problems), "log")
        notes.append(f"{count} failed validation; see the errors")
    if unwritten:
        notes.append(f"the results were not written: {unwritten.where}: {unwritten.found}")
    return SummaryResult(
        notes,
        results.problems,
        results.is_incomplete,
        paths,
        unwritten,
        results.frame,
        cases,
        files["summary.json"],
        {printable(str(file.path)): file.reason for file in results.skipped},
        views,
    )


def _views(skipped: Sequence[Skipped], models: Sequence[Model]) -> list[View]:
    """The results of other kinds than training runs."""
    contents = {file.path: file.content for file in skipped if file.content}
    views = []
    for name, files in grouped(skipped, attrgetter("view")).items():
        places = {file.path: file.content for file in files}
        if name == CAMPAIGNS:
            views.append(_campaigns(places, models))
        elif name is not None:
            feature = import_module(f"...{name}.command", __name__)
            view = feature.view(places, contents)
            # A table stands for itself; what its name states must not contradict it.
            errors = [file.error for file in files if file.error]
            contradictions = [error for error in errors if "contradicts" in error.problem]
            views.append(view._replace(problems=[*view.problems, *contradictions]))
    return views


def _campaigns(places: Mapping[Path, Path | None], models: Sequence[Model]) -> View:
    """The tables of campaigns among logs, by path, with the files of those in archives. Nothing is
    written into them, and workloads that they keep are not used."""
    from ..report.case_tables import render

    parts: dict[Path, tuple[list[dict[str, Any]], list[str]]] = {}
    texts, problems, is_incomplete = {}, [], False
    for path, content in places.items():
        try:
            results = load_results(content or path, models)
        except UserError as error:
            problems.append(_at(path, content, error))
            continue
        cases, notes, files = documents(results, models)
        parts[path], texts[str(path)] = (cases, notes), json.loads(files["summary.json"])
        problems += [_at(path, content, error) for error in results.problems]
        is_incomplete |= results.is_incomplete

    def shown(screen: Screen) -> str:
        tables = (f"Campaign {path}\n\n{render(*part, screen)}" for path, part in parts.items())
        return "\n".join(tables)

    return View(CAMPAIGNS, shown, texts, problems, is_incomplete)


def _at(path: Path, content: Path | None, error: UserError) -> UserError:
    """An error in a campaign, whose files are elsewhere if it is in an archive."""
    for name, text in vars(error).items():
        setattr(error, name, text and text.replace(str(content), str(path)))
    return error


def _written(
    place: Path, inside: Path, files: Mapping[str, str]
) -> tuple[list[Path], UserError | None]:
    """Write all files and the manifest, or stop at the first that cannot be written. Raises
    UserError if that is unsafe."""
    paths: list[Path] = []
    try:
        for name, content in files.items():
            paths.append(write_result(place / name, content, inside))
        seal(place, "summary", paths)
    except UnsafeFileError:
        raise
    except UserError as error:
        return paths, error
    return paths, None


def record(history: Path, directory: Path, result: SummaryResult) -> list[str]:
    """Write the results to the history, and the digest of its rows to the manifest. Returns notes
    on logs that another campaign of the history has, too."""
    from ..history import store

    campaign = store.campaign_identity(directory)
    recorded = store.record(history, campaign, result.frame, result.cases)
    rows = store.recorded_tables(history, campaign, set(result.frame["log_sha256"].dropna()))
    if rows is not None and result.paths:
        place = home(result.paths[0].parent)
        name = os.path.relpath(history.resolve(), place)
        append(place, HISTORY, {name: store.rows_digest(rows)})
    notes = []
    if recorded.name != campaign.name:
        notes.append(
            f"{history}: another campaign with the name {campaign.name} and the same time has other"
            f" logs, so this one is recorded as {recorded.name}"
        )
    return notes + [
        f"{history}: {other} has some of these logs, too, so they are in the history twice"
        for other in store.with_same_logs(history, recorded)
    ]
