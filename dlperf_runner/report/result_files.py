"""The result files of a campaign or of logs, and the notes on the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from ..catalog.workload import Model
from ..core.frame import PEAK_TFLOPS, records
from ..core.identity import GROUP, label, topology_text, value_text
from ..core.lists import grouped
from ..results.load import Results

# What a user asked for. Tables that agree in these columns but in no others are named in a note.
_SETTINGS = ("workload", "model", "precision", "batch_size_per_device")


def documents(
    results: Results, models: Sequence[Model]
) -> tuple[list[dict[str, Any]], list[str], dict[str, str]]:
    """The statistics, the notes on them, and the content of each result file by its name."""
    from ..stats import summary
    from ..stats.notes import case_notes
    from . import data, markdown
    from .units import named_record, with_named_metrics

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


_JOBS = 1000


def _repeat_notes(results: Results) -> Iterator[str]:
    """Notes on missing repeats.

    The expected number of repeats is the maximum over the cases with the same settings. Numbers
    above _JOBS are those of jobs.
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
        counted = run.repeat if run.repeat <= _JOBS else 0
        most[run.settings] = max(most.get(run.settings, 0), counted)
    missing: dict[tuple[str, int, str], list[str]] = {}
    for run in {run.case: run for run in with_log}.values():
        numbers, others = repeats[run.case], failed.get(str(run), [])
        wanted = max(most[run.settings], *(number for number in others if number <= _JOBS), 0)
        absent = sorted({*range(1, wanted + 1)}.difference(numbers, others))
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
