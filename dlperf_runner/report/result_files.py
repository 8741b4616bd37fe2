"""The result files of a campaign or of logs, their directory, and the notes on the table."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from ..campaign.directory import LATEST, RESULTS
from ..campaign.manifest import FILE
from ..catalog.workload import Model
from ..core.files import UnsafeFileError, is_campaign, json_text, read_bytes
from ..core.frame import PEAK_TFLOPS, Frame, records
from ..core.identity import GROUP, CaseKey, case_key, label, topology_text, value_text
from ..core.lists import grouped
from ..core.printable import printable
from ..results.archives import stem_of_archive
from ..results.load import Results
from ..results.log_name import stem_of
from ..stats.groups import rates_by_case
from .numbers import decimals, named_record, rate_decimals, with_named_metrics
from .tables import FORMULA

if TYPE_CHECKING:
    from ..results.run_record import FoundRun


def csv(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = ()) -> str:
    """The rows below a header, as `csv_of` writes them. `columns`: those of a table without
    rows."""
    import pandas as pd

    table = pd.DataFrame([*rows], dtype=object)
    return csv_of(pd.DataFrame(columns=[*columns]) if table.empty else table)


def csv_of(table: Frame) -> str:
    """The table as CSV; what is absent is an empty field. A text that a spreadsheet would read as a
    formula gets a leading apostrophe."""
    safe = {
        str(name): column.map(unlike_a_formula)
        for name, column in table.items()
        if column.dtype == object
        and any(value is not unlike_a_formula(value) for value in column.unique())
    }
    return table.assign(**safe).to_csv(index=False, lineterminator="\n")


def unlike_a_formula(value: object) -> object:
    """The value, with a leading apostrophe if it is a text that a spreadsheet would take for a
    formula, which may run or send something."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def summary_json(
    cases: Sequence[Mapping[str, Any]], notes: Sequence[str], problems: Sequence[str]
) -> str:
    """The cases with the names that summary.csv has; what is absent is null."""
    named = [named_record(case) for case in cases]
    return json_text({"cases": named, "notes": list(notes), "problems": list(problems)})


def results_by_batch(
    frame: Frame,
    cases: Iterable[Mapping[str, Any]],
    short_names: Mapping[tuple[str, str], str],
) -> dict[int, str]:
    """The published report's own result file, per batch size:

        {"rn50": {"1n1g": {"average_speed": 384.59, "batch_size_per_device": 128,
                           "median_speed": 384.19, "speedup": 1.0}, ...}}

    As published, each run is rounded before the averages, and these before the speed-up.
    `short_names` is by workload and model. A speed-up over anything but 1 device
    with the same batch size is null. Where
    several tables of one batch size have the same short name, what they differ in is appended,
    but for fp32: rn50 and rn50_fp16, or rn50_builtin and rn50_upstream.
    """
    runs = {key: rates.values for key, rates in rates_by_case(frame).items()}
    by_batch: dict[int, dict[tuple[Any, ...], list[Mapping[str, Any]]]] = {}
    for case in cases:
        key, batch = tuple(case[name] for name in GROUP), case["batch_size_per_device"]
        if batch is not None:
            by_batch.setdefault(batch, {}).setdefault(key, []).append(case)
    return {
        batch: json_text(
            {
                name: _results(groups[key], runs)
                for key, name in _names(list(groups), short_names).items()
            }
        )
        for batch, groups in sorted(by_batch.items())
    }


def _results(
    rows: Sequence[Mapping[str, Any]], runs: Mapping[CaseKey, Sequence[float]]
) -> dict[str, dict[str, Any]]:
    """The cases of a group by topology."""
    by_topology: dict[str, dict[str, Any]] = {}
    for row in rows:
        values = runs[case_key(row)]
        places = rate_decimals(row["workload"], [row["samples_per_second_median"]])
        rounded = [round(value, places) for value in values]
        by_topology[topology_text(row)] = {
            "average_speed": round(fmean(rounded), places),
            "batch_size_per_device": row["batch_size_per_device"],
            "median_speed": round(median(rounded), places),
            "speedup": None,
        }
    for row in rows:
        is_here = row["base_case"] in by_topology  # not the base of strong scaling
        if row["base_world_size"] == 1 and row["speedup"] is not None and is_here:
            result = by_topology[topology_text(row)]
            quotient = result["median_speed"] / by_topology[row["base_case"]]["median_speed"]
            result["speedup"] = round(quotient, decimals([quotient], significant=2))
    return by_topology


def _names(
    keys: list[tuple[Any, ...]], short_names: Mapping[tuple[str, str], str]
) -> dict[tuple[Any, ...], str]:
    """A name for each group of cases, different for each."""
    by_name = grouped(keys, lambda key: short_names.get((key[0], key[1]), key[1]))
    names: dict[tuple[Any, ...], str] = {}
    for name, same in by_name.items():
        differing = [n for n in range(len(GROUP)) if len({key[n] for key in same}) > 1]
        for key in same:
            words = [str(key[n]) for n in differing if key[n] not in (None, "fp32")]
            names[key] = "_".join([name, *words])
    return names


# What a user asked for. Tables that agree in these columns but in no others are named in a note.
_SETTINGS = ("workload", "model", "precision", "batch_size_per_device")


def documents(
    results: Results, models: Sequence[Model]
) -> tuple[list[dict[str, Any]], list[str], dict[str, str]]:
    """The statistics, the notes on them, and the content of each result file by its name."""
    from ..stats.notes import case_notes
    from ..stats.summary import COLUMNS, summarize
    from . import markdown

    frame = results.frame
    cases = records(summarize(frame))
    notes = [*case_notes(frame, cases), *notes_on(cases, results), *results.notes]
    problems = [results.relative(problem) for problem in results.problems]
    short_names = {(m.workload.name, m.name): m.short_name for m in models}
    files = {
        "summary.csv": csv(map(named_record, cases), COLUMNS),
        "measurements.csv": csv_of(with_named_metrics(frame)),
        "summary.json": summary_json(cases, notes, problems),
        "summary.md": markdown.render(cases, notes, problems),
    }
    for batch, document in results_by_batch(frame, cases, short_names).items():
        files[f"bz{batch}_result.json"] = document
    return cases, notes, files


# ---- their directory


SOURCE = "source.json"  # in results/<name>/: the paths of the logs
_RESERVED = (LATEST, "baselines")


def destination(sources: Sequence[Path]) -> Path:
    """A campaign's own directory; for other logs, results/<name>, with a number if that belongs to
    something else."""
    if is_campaign(sources[0]):
        return sources[0]
    name = printable(_name_of(sources))
    for number in itertools.count(1):
        place = RESULTS / (name if number == 1 else f"{name}-{number}")
        is_free = place.name not in _RESERVED and not os.path.lexists(place)
        if is_free or _recorded(place) == _source_paths(sources):
            return place
    raise AssertionError


def guarded(sources: Sequence[Path]) -> Path:
    """The directory of `destination` or above it in which no link is followed."""
    return sources[0] if is_campaign(sources[0]) else RESULTS


def source_document(sources: Sequence[Path]) -> dict[str, str]:
    """The file that makes results/<name> the directory of these logs. Empty for a campaign."""
    if is_campaign(sources[0]):
        return {}
    return {SOURCE: json_text({"logs": _source_paths(sources), "manifest": FILE})}


def _name_of(sources: Sequence[Path]) -> str:
    only = sources[0].resolve()
    if len(sources) == 1:
        if only.is_file():
            return stem_of_archive(only.name) or stem_of(only.name) or only.name
        return only.name or "logs"
    return Path(os.path.commonpath([path.resolve() for path in sources])).name or "logs"


def _source_paths(sources: Sequence[Path]) -> list[str]:
    return sorted({printable(str(path.resolve())) for path in sources})


def _recorded(place: Path) -> object:
    """The logs whose directory this is. None if it belongs to something else."""
    try:
        return json.loads(read_bytes(place / SOURCE, inside=RESULTS))["logs"]
    except (OSError, ValueError, KeyError, TypeError, UnsafeFileError):  # such as results/latest
        return None


# ---- notes on the table


def notes_on(cases: Iterable[dict[str, Any]], results: Results) -> Iterator[str]:
    """Notes on the input and the calculation that the statistics do not show."""
    from ..stats.groups import by_group

    cases = list(cases)
    groups = by_group(cases)
    for name, group in groups.items():
        if len({case["estimator"] for case in group}) > 1:
            texts = [f"{topology_text(case)} {case['estimator']}" for case in group]
            yield f"{name}: the published rule uses different estimators: {', '.join(texts)}"
    yield from _flops_notes(cases)
    yield from _repeat_notes(results)
    yield from _not_pooled([group[0] for group in groups.values()])
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


# Repeats that may be missing, however few there are: more if 1 and 2 show that numbers count.
_FEW, _MORE = 4, 10
_DIRECTORY = "directory"
_WAY_OUT = (
    "; if they are repeats, name the directories run1, run2, ... or state it in mapping.yml"
    " (--suggest-mapping writes one)"
)


def _repeat_notes(results: Results) -> Iterator[str]:
    """Notes on missing repeats.

    The expected number of repeats is the maximum over the cases with the same settings.
    """
    repeats: dict[tuple[object, ...], list[int]] = {}
    same_settings: dict[tuple[object, ...], set[int]] = {}
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
        same_settings.setdefault(run.settings, set()).add(run.repeat)
    missing: dict[tuple[str, int, str], list[str]] = {}
    planned = {}
    if any(run.nvlink_domains for run in with_log):
        planned = grouped(with_log, lambda run: (run.path.parent.parent, str(run)))
    for runs in planned.values():
        yield from _domain_notes(runs)
    for run in {run.case: run for run in with_log}.values():
        # A scheduler may have placed some repeats on another number of NVLink domains.
        placed = planned.get((run.path.parent.parent, str(run)), ()) if planned else ()
        numbers = repeats[run.case] + [other.repeat for other in placed]
        others = failed.get(str(run), [])
        wanted = _wanted(same_settings[run.settings].union(others))
        absent = sorted({*range(1, wanted + 1)}.difference(numbers, others))
        if absent:
            key = (run.setting, wanted, _listed(absent))
            missing.setdefault(key, []).append(_topology_text(run))
    for (setting, wanted, absent_list), topologies in missing.items():
        yield f"{setting}: missing repeat {absent_list} of {wanted} for {', '.join(topologies)}"


def _wanted(repeats: Iterable[int]) -> int:
    """The number of repeats that there should be. A number below which most are missing is that of
    a job, a seed or something else."""
    ordered = sorted(repeats)
    few = _MORE if ordered[:2] == [1, 2] else _FEW
    numbered = enumerate(ordered, start=1)
    return max((n for number, n in numbered if n - number <= max(few, number)), default=0)


def _topology_text(run: FoundRun) -> str:
    return topology_text({**asdict(run.topology), "nvlink_domains": run.nvlink_domains})


def _domain_notes(runs: Sequence[FoundRun]) -> Iterator[str]:
    """A note on repeats of a planned case that ran over different numbers of NVLink domains, on
    nodes that a scheduler chose."""
    placed = grouped(runs, _topology_text)
    if len(placed) > 1:
        texts = (
            f"repeat {_listed(sorted(run.repeat for run in same))} ran on {topology}"
            for topology, same in placed.items()
        )
        yield f"{runs[0].setting}: not pooled, because {', '.join(texts)}"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:10])) + (", ..." if len(numbers) > 10 else "")


def _not_pooled(groups: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Notes on runs with the same settings that must not be pooled, because they differ. `groups`
    has one case of each table."""
    from ..stats.groups import title

    for several in grouped(groups, itemgetter(*_SETTINGS)).values():
        same = {name: several[0][name] if name in _SETTINGS else None for name in GROUP}
        texts, differing = [], []
        for name in GROUP:
            values = dict.fromkeys(value_text(case[name]) for case in several)
            if len(values) > 1:
                texts.append(f"{label(name)} ({', '.join(values)})")
                differing.append(name)
            else:
                same[name] = several[0][name]
        if texts:
            name = title({**same, "unit": several[0]["unit"]})
            are_words = any("*" in str(case[_DIRECTORY]) for case in several)
            way_out = _WAY_OUT if differing == [_DIRECTORY] and not are_words else ""
            yield f"{name}: not pooled, because the runs differ in {' and '.join(texts)}{way_out}"
