"""Computes a table of speeds and speed-ups from logs, and writes result files.

The input is a campaign (runs/<case>/r<k>/run.json and its log), or directories and files of logs. A
log that fails validation is reported. All other logs are counted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..campaign.manifest import HISTORY, append, home, seal
from ..catalog.workload import Model
from ..core.errors import UserError
from ..core.files import UnsafeFileError, readable_json, write_result
from ..core.frame import PEAK_TFLOPS, records
from ..core.identity import GROUP, label, topology_text, value_text
from ..core.lists import counted, grouped
from ..core.printable import printable
from ..results.load import Progress, Results, catalogued, load_results
from ..results.statement import Statements
from .destination import destination, guarded, source_document

if TYPE_CHECKING:
    import pandas as pd

# What a user asked for. Tables that agree in these columns but in no others are named in a note.
_SETTINGS = ("workload", "model", "precision", "batch_size_per_device")


@dataclass(frozen=True)
class SummaryResult:
    """The result of `summarize`.

    `notes`: on the table. `problems`: logs that failed validation. `is_incomplete`: a run failed,
    is missing or is invalid. `paths`: the files written. `unwritten`: why there are none.
    `frame` and `cases`: the computed values. `document`: the content of summary.json. `skipped`:
    the files that were not read as logs, with the reasons.
    """

    notes: list[str]
    problems: list[UserError]
    is_incomplete: bool
    paths: list[Path]
    unwritten: UserError | None
    frame: pd.DataFrame
    cases: list[dict[str, Any]]
    document: str
    skipped: Mapping[str, str]

    @property
    def text(self) -> str:
        """The table and its notes, for standard output."""
        from ..report.layout import render
        from ..report.terminal import Screen

        return render(self.cases, self.notes, Screen.of(sys.stdout))


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
    results = load_results(sources, models, statements=statements, progress=progress)
    cases, notes, files = documents(results, models)
    place = output_dir or destination(sources)
    own = source_document(sources) if output_dir is None else {}
    paths: list[Path] = []
    unwritten = None
    if results.counted or not readable_json(place / "summary.json").get("cases"):
        paths, unwritten = _written(place, output_dir or guarded(sources), files | own)
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
    )


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


def documents(
    results: Results, models: Sequence[Model]
) -> tuple[list[dict[str, Any]], list[str], dict[str, str]]:
    """The statistics, the notes on them, and the content of each result file by its name."""
    from ..report import data, markdown
    from ..report.units import named_record, with_named_metrics
    from ..stats import summary
    from ..stats.notes import case_notes

    frame = results.frame
    cases = records(summary.summarize(frame))
    notes = [*case_notes(frame, cases), *notes_on(cases, results), *results.notes]
    problems = [results.told(problem) for problem in results.problems]
    short_names = {(m.workload.name, m.name): m.short_name for m in models}
    files = {
        "summary.csv": data.csv(map(named_record, cases), summary.COLUMNS),
        "measurements.csv": data.csv_of(with_named_metrics(frame)),
        "summary.json": data.summary(cases, notes, problems),
        "summary.md": markdown.render(cases, notes, problems),
    }
    for batch, document in data.results_by_batch(frame, cases, short_names).items():
        files[f"bz{batch}_result.json"] = document
    return cases, notes, files


# ---- notes on the table


def notes_on(cases: Iterable[dict[str, Any]], results: Results) -> Iterator[str]:
    """Notes on the input and the calculation that the statistics do not show."""
    from ..stats.groups import by_group

    cases = list(cases)
    groups = by_group(cases)
    for name, of in groups.items():
        if len({case["estimator"] for case in of}) > 1:
            texts = [f"{topology_text(case)} {case['estimator']}" for case in of]
            yield f"{name}: the published rule uses different estimators: {', '.join(texts)}"
    yield from _flops_notes(cases)
    yield from _repeat_notes(results)
    yield from _not_pooled([of[0] for of in groups.values()])
    for (what, by), number in sorted(results.unconfirmed.items()):
        yield f"the {what} is from {by}, not from the log: {number} of {len(results.counted)} runs"


def _flops_notes(cases: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The formula and the peak of each MFU."""
    for model, formula, peak, source in dict.fromkeys(
        (case["model"], case["flops_formula"], case[PEAK_TFLOPS], case["peak_source"])
        for case in cases
        if case["flops_formula"]
    ):
        share = "no MFU, because the peak of the accelerator at this precision is unknown"
        if peak is not None:
            share = f"MFU is their share of {peak:g} TFLOP/s ({source})"
        yield f"{model}: model FLOPs per token are {formula}; {share}"


def _repeat_notes(results: Results) -> Iterator[str]:
    """Notes on missing repeats.

    The expected number of repeats is the maximum over the cases with the same settings.
    """
    repeats: dict[tuple[object, ...], list[int]] = {}
    most: dict[tuple[object, ...], int] = {}
    # Hardware and parameters of a failed run are not always known, but its repeat exists and is
    # reported.
    failed: dict[str, list[int]] = {}
    with_log = []
    for run in results.runs:
        if run.why_not is not None or run.copy_of is not None or run.path in results.invalid:
            failed.setdefault(str(run), []).append(run.repeat)
        else:
            with_log.append(run)
    for run in with_log:
        repeats.setdefault(run.case, []).append(run.repeat)
        most[run.settings] = max(most.get(run.settings, 0), run.repeat)
    missing: dict[tuple[str, int, str], list[str]] = {}
    for run in {run.case: run for run in with_log}.values():
        numbers, others = repeats[run.case], failed.get(str(run), [])
        wanted = max(most[run.settings], *others, 0)
        absent = sorted({*range(1, min(wanted, 1000) + 1)}.difference(numbers, others))
        if absent:
            key = (run.setting, wanted, _listed(absent))
            missing.setdefault(key, []).append(str(run.topology))
    for (setting, wanted, absent_list), topologies in missing.items():
        yield f"{setting}: missing repeat {absent_list} of {wanted} for {', '.join(topologies)}"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:10])) + (", ..." if len(numbers) > 10 else "")


def _not_pooled(groups: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Notes on runs with the same settings that must not be pooled, because they differ. `groups`
    has one case of each table."""
    from ..stats.groups import title

    for several in grouped(groups, itemgetter(*_SETTINGS)).values():
        same = {name: several[0][name] if name in _SETTINGS else None for name in GROUP}
        texts = []
        for name in GROUP:
            values = dict.fromkeys(value_text(case[name]) for case in several)
            if len(values) > 1:
                texts.append(f"{label(name)} ({', '.join(values)})")
            else:
                same[name] = several[0][name]
        if texts:
            name = title({**same, "unit": several[0]["unit"]})
            yield f"{name}: not pooled, because the runs differ in {' and '.join(texts)}"
