"""Computes a table of speeds and speed-ups from a directory of logs, and writes result files.

The input is a campaign (runs/<case>/r<k>/run.json and its log), a directory tree like the published
one (.../bz128/4n8g/rn50_b128_fp32_1.log), or a directory of logs named as in the NGC report
(tf_gpu8_amp_bs256.txt). A log that fails validation is reported. All other logs are counted.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..campaign.manifest import HISTORY, append, home, seal
from ..core.errors import UserError
from ..core.files import write_result
from ..core.identity import GROUP, label, value_text
from ..results.discovery import FLAT_DEVICES_PER_NODE, FLAT_NAME
from ..results.load import Progress, Results, catalogued, load_results
from ..results.run_record import Known

if TYPE_CHECKING:
    import pandas as pd

# What a user asked for. Tables that agree in these columns but in no others are named in a note.
_SETTINGS = ("workload", "model", "precision", "batch_size_per_device")


@dataclass(frozen=True)
class SummaryResult:
    """The result of `summarize`.

    `text`: the table to print. `problems`: logs that failed validation. `paths`: the files written.
    `frame` and `table`: the computed values. `document`: the content of summary.json.
    """

    text: str
    problems: list[UserError]
    paths: list[Path]
    frame: pd.DataFrame
    table: pd.DataFrame
    document: str


def summarize(
    directory: Path,
    output_dir: Path | None = None,
    known: Sequence[Known] | None = None,
    *,
    progress: Progress | None = None,
) -> SummaryResult:
    """Summarise all logs in `directory` and write the results into `output_dir`.

    `output_dir`: by default, `directory`. `known`: the known workloads; by default, those of the
    catalogue. `progress`: as in `load_results`.

    Raises UserError if there are no logs. Errors in single logs are in the result's `problems`.
    """
    from ..report import text

    known = list(catalogued()) if known is None else known
    results = load_results(directory, known, progress=progress)
    table, notes, files = documents(results, known)
    place = output_dir or directory
    paths = [write_result(place / name, content) for name, content in files.items()]
    seal(place, "summary", paths)
    if results.problems:
        count = text.counted(len(results.problems), "log")
        notes.append(f"{count} failed validation; see the errors")
    width = shutil.get_terminal_size((80, 24)).columns
    return SummaryResult(
        text.render(table, notes, width),
        results.problems,
        paths,
        results.frame,
        table,
        files["summary.json"],
    )


def record(history: Path, directory: Path, result: SummaryResult) -> None:
    """Write the results to the history, and the digest of its rows to the manifest."""
    from ..history import store

    campaign = store.identified(directory)
    store.record(history, campaign, result.frame, result.table)
    place = home(result.paths[0].parent)
    rows = store.recorded_tables(history, campaign)
    if rows is not None:
        name = os.path.relpath(history.resolve(), place)
        append(place, HISTORY, {name: store.rows_digest(rows)})


def documents(
    results: Results, known: Sequence[Known]
) -> tuple[pd.DataFrame, list[str], dict[str, str]]:
    """The statistics, the notes on them, and the content of each result file by its name."""
    from ..report import data, markdown
    from ..stats.notes import remarks
    from ..stats.summary import summarize as statistics

    frame = results.frame
    table = statistics(frame)
    notes = [*remarks(frame, table), *notes_on(table, results), *results.notes]
    problems = [results.told(problem) for problem in results.problems]
    short_names = {(k.workload, k.model): k.short_name for k in known}
    files = {
        "summary.csv": data.csv(table),
        "measurements.csv": data.csv(frame),
        "summary.json": data.summary(table, notes, problems),
        "summary.md": markdown.render(table, notes, problems),
    }
    for batch, document in data.results_by_batch(frame, table, short_names).items():
        files[f"bz{batch}_result.json"] = document
    return table, notes, files


# ---- notes on the table


def notes_on(table: pd.DataFrame, results: Results) -> Iterator[str]:
    """Notes on the input and the calculation that the statistics do not show."""
    from ..stats.groups import by_group, records

    groups = by_group(records(table))
    for name, cases in groups.items():
        if len({case["estimator"] for case in cases}) > 1:
            texts = [f"{c['nodes']}n{c['gpus_per_node']}g {c['estimator']}" for c in cases]
            yield f"{name}: the published rule uses different estimators: {', '.join(texts)}"
    yield from _repeat_notes(results)
    yield from _not_pooled([cases[0] for cases in groups.values()])
    for (what, by), number in sorted(results.unconfirmed.items()):
        yield f"{number} of {len(results.counted)} logs do not state their {what}: {by} does"
    if any(FLAT_NAME.fullmatch(run.path.stem) for run in results.counted):
        yield (
            "the log names do not contain the number of nodes: assuming"
            f" {FLAT_DEVICES_PER_NODE} devices per node"
        )


def _repeat_notes(results: Results) -> Iterator[str]:
    """Notes on missing repeats.

    The expected number of repeats is the maximum over the cases with the same settings.
    """
    repeats: dict[tuple[object, ...], list[int]] = {}
    most: dict[tuple[object, ...], int] = {}
    # The hardware of a failed run is not always known, but its repeat exists and is reported.
    failed: dict[str, list[int]] = {}
    for run in results.runs:
        if run.why_not is not None or run.copy_of is not None:
            failed.setdefault(str(run), []).append(run.repeat)
    with_log = [run for run in results.runs if run.why_not is None and run.copy_of is None]
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

    apart: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for case in groups:
        apart.setdefault(tuple(case[name] for name in _SETTINGS), []).append(case)
    for several in apart.values():
        same = {name: several[0][name] if name in _SETTINGS else None for name in GROUP}
        texts = []
        for name in GROUP:
            values = dict.fromkeys(value_text(case[name]) for case in several)
            if len(values) > 1:
                texts.append(f"{label(name)} ({', '.join(values)})")
            else:
                same[name] = several[0][name]
        if texts:
            yield (f"{title(same)}: not pooled, because the runs differ in {' and '.join(texts)}")
