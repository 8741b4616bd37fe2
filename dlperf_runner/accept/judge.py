"""Judges each part of a suite from logs alone: the same suite and logs give the same verdicts."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from ..catalog.published_numbers import load_rule
from ..commands.verify import refuse_tampered
from ..compare.conditions import parse_stated, read_conditions
from ..compare.published import compare_published, no_number
from ..compare.verdicts import FAILED, NOT_COMPARABLE, PASSED, TOO_FEW, UNDECIDED, on_limit
from ..core.errors import UserError
from ..core.frame import records, throughput
from ..core.identity import (
    CASE,
    CaseKey,
    case_key,
    columns_of,
    differing,
    label,
    read_parameters,
    value_text,
)
from ..core.lists import counted, natural
from ..plan.choice import Choice, fraction
from ..results.discovery import CAMPAIGNS
from ..results.load import Progress, Results, catalogued, load_results
from ..stats.sequential import Gate, judged, look_sizes, planned_runs, pooled_deviation
from .suite import Item, Part, Published, ResolvedSuite, choice_of, reference_of, title_of

# A row of the frame, or the case of a run that does not count and `why`; with the path of its `log`
# below the folder, its start, its hosts and the families of its model.
Row = Mapping[str, Any]
# The columns of a row that an item may choose, by the key of its choice.
_CHOSEN = {
    **{name: name for name in ("workload", "framework", "precision", "gpus_per_node", "source")},
    "batch_size": "batch_size_per_device",
    "iterations": "total_steps",
    "warmup": "warmup_steps",
}
_KEYS = {"model": "model", **_CHOSEN, "parameters": "parameters"}


def load(folder: Path, progress: Progress | None = None) -> list[Results]:
    """The results of a campaign, or of all campaigns and other logs below a folder. Raises
    UserError if runs are not what the manifest of their campaign recorded, or are there twice."""
    first = load_results(folder, progress=progress, with_others=True)
    campaigns = [skipped.path for skipped in first.skipped if skipped.view == CAMPAIGNS]
    models = catalogued([folder, *campaigns])
    loaded = [first, *(load_results(path, models, progress=progress) for path in campaigns)]
    refuse_tampered(loaded)
    return loaded


def judge(suite: ResolvedSuite, folder: Path, loaded: Sequence[Results]) -> dict[str, Any]:
    """The verdict on each part of each item, as the page has it."""
    runs = [row for results in loaded for row in _runs(results, folder)]
    parts: list[dict[str, Any]] = []
    for number, item in enumerate(suite.items):
        samples = _samples(suite, number, runs)
        parts += _judge_item(suite, number, samples, _published(suite, item, loaded))
    # Failed if one part is, passed if all are.
    verdicts = {part["verdict"] for part in parts}
    verdict = FAILED if FAILED in verdicts else UNDECIDED
    verdict = PASSED if verdicts == {PASSED} else verdict
    return {"suite": suite.record(), "verdict": verdict, "parts": parts}


def outside(suite: ResolvedSuite, loaded: Sequence[Results]) -> list[str]:
    """Nodes that the suite lacks, with their numbers of runs, which no part is judged by."""
    hosts = Counter(h for results in loaded for run in results.runs for h in {*run.hosts})
    others = sorted(hosts.keys() - {*suite.nodes}, key=natural)
    return [f"{host} ({counted(hosts[host], 'run')})" for host in others]


def _judge_item(
    suite: ResolvedSuite,
    number: int,
    samples: Mapping[Part, Sequence[Row]],
    numbers: Mapping[CaseKey, Row],
) -> Iterator[dict[str, Any]]:
    item = suite.items[number]
    gate = suite.gate(item)
    valid = {part: [row for row in rows if not row["why"]] for part, rows in samples.items()}
    sizes, deviation, why = plan_of(suite, item, gate, valid)
    by_name = {part.name: rows for part, rows in valid.items()}
    reference = by_name.get(reference_of(item) or "")
    for part, runs in valid.items():
        if runs is reference:
            continue
        values = [run["value"] for run in runs]
        row: dict[str, Any] = {
            "item": title_of(number, item),
            "part": part.name,
            "hosts": sorted(part.hosts, key=natural),
            "unit": runs[0]["unit"] if runs else "",
            "runs": len(runs),
            "median": median(values) if runs else None,
            "margin": gate.margin,
            "looks": list(sizes),
            "deviation": deviation,
            "without_start": sum(run["started"] is None for run in (*runs, *(reference or ()))),
        }
        try:
            target, facts = _target(item, runs, reference, numbers)
            look = judged(
                len(values) if isinstance(target, float) else min(len(values), len(target)),
                sizes,
                partial(gate.interval, values, target),
                lambda interval: on_limit(interval.low, interval.high, gate.margin),
                UNDECIDED,
            )
            row |= facts | asdict(look) | {"why": why or look.why}
            row["judged_runs"] = row.pop("size")
            lost = [f"{run['log']}: {run['why']}" for run in samples[part] if run["why"]]
            if row["verdict"] != FAILED and lost:
                # A part whose slow runs are not valid would pass by the others.
                left_out = f"{counted(len(lost), 'run')} not counted, such as {lost[0]}"
                raise _Undecided("; ".join(filter(None, (row["why"], left_out))))
        except _Undecided as reason:
            row |= {"verdict": UNDECIDED, "why": str(reason)}
        names = {"log": "log", "sha256": "log_sha256", "value": "value"}
        yield row | {"logs": [{n: run[c] for n, c in names.items()} for run in runs]}


class _Undecided(Exception):  # noqa: N818  this is no error
    """The reason why a part has no verdict."""


def plan_of(
    suite: ResolvedSuite, item: Item, gate: Gate, samples: Mapping[Part, Sequence[Row]]
) -> tuple[Sequence[int], float | None, str | None]:
    """The looks that the suite states, or those that follow from its pilot: the first runs of each
    part, of which only the scatter counts, not the speed; that scatter; and why there are none."""
    size = suite.pilot
    if suite.looks:
        return sorted({*suite.looks}), None, None
    pilots = {
        part.name: [r["value"] for r in rows[:size]] for part, rows in samples.items() if rows
    }
    few = [f" ({name} has {len(values)})" for name, values in pilots.items() if len(values) < size]
    if few or not pilots:
        return (), None, f"the pilot needs {size} runs of each part{''.join(few[:1])}"
    deviation = pooled_deviation([*pilots.values()])
    promise = {n: fraction(getattr(suite, n), n) for n in ("good_passes", "slow", "slow_fails")}
    by_reference = reference_of(item) is not None
    planned = planned_runs(gate, deviation, **promise, by_reference=by_reference, least=size)
    if planned is None:
        return (), deviation, f"the runs scatter by {deviation:.1%}: too much for this margin"
    return look_sizes(size, planned), deviation, None


# ---- targets


def _target(
    item: Item, runs: Sequence[Row], reference: Sequence[Row] | None, numbers: Mapping[CaseKey, Row]
) -> tuple[float | list[float], dict[str, Any]]:
    """The number, or the runs of the reference; and what the page says of them. Raises _Undecided
    if the part cannot be judged by it. Runs that differ are never pooled."""
    for rows, what in ((runs, "its runs differ"), (reference, "differs from the reference")):
        if rows is not None and not rows:
            raise _Undecided(f"{TOO_FEW}: no valid run")
        if names := differing((*runs, *(rows or ())), CASE):
            raise _Undecided(f"{what} in {', '.join(map(label, names))}")
    if reference is not None:
        values = [run["value"] for run in reference]
        return values, {"target": median(values)}
    case, unit = case_key(runs[0]), runs[0]["unit"]
    if isinstance(item.target, Published):
        if (number := numbers.get(case)) is None:
            report = item.target.published
            raise no_number(report, runs[:1], f"target: {{published: {report}}}")
        if number["published"] is None or number["factors"] or number["unknown"]:
            silent = number["unknown"] and f"not published: {number['unknown']}"
            texts = "; ".join(filter(None, (number["factors"], silent)))
            raise _Undecided(f"{NOT_COMPARABLE}: {texts or 'another unit'}")
        source = (number[f"published_{name}"] for name in ("title", "source", "date"))
        value = number["published"]
        return value, {"target": value, "published": ", ".join(map(str, source))}
    text, _, unit_of_target = item.target.partition(" ")
    if unit_of_target != unit:
        problem, where = "the target has another unit than the runs", runs[0]["workload"]
        raise UserError(problem, where=f"target of {where}", expected=unit, found=unit_of_target)
    return float(text), {"target": float(text)}


def _published(suite: ResolvedSuite, item: Item, loaded: Sequence[Results]) -> dict[CaseKey, Row]:
    """The nearest number of the item's report for each case, as `compare` has it."""
    if not isinstance(item.target, Published):
        return {}
    stated = parse_stated([f"{name}={value}" for name, value in suite.conditions.items()])
    runs = [run for results in loaded for run in results.counted]
    models = [model for results in loaded for model in results.models]
    conditions = read_conditions(runs, models, load_rule(), stated)
    tables = (
        compare_published(each.frame, conditions, every=True) for each in loaded if each.counted
    )
    rows = [row for table in tables for row in table]
    of_report = [row for row in rows if row["report"] == item.target.published]
    return {case_key(row): row for row in reversed(of_report)}  # the nearest is the first


# ---- the runs of a part


def _runs(results: Results, folder: Path) -> Iterator[Row]:
    """The runs that have ended."""
    families = {model.workload.name: model.workload.families for model in results.models}
    table = throughput(results.frame)
    rows = dict(zip(table.index, records(table), strict=True))
    for number, run in enumerate(results.runs):
        why = None if number in rows else results.not_counted.get(run.path)
        if number in rows or why:
            yield {
                **rows.get(number, columns_of(run.case)),
                "why": why,
                "log": os.path.relpath(run.path, folder),
                "name": (str(run.path.parent.parent), run.repeat),
                "started": run.started,
                "hosts": {*run.hosts},
                "families": families.get(run.workload, ()),
            }


def _samples(suite: ResolvedSuite, number: int, runs: Sequence[Row]) -> dict[Part, list[Row]]:
    """The runs of each part of an item by their start; by their names if one records none. Raises
    UserError if the item leaves open which of several measured cases it means: parts that ran
    different ones are not judged by one target."""
    item = suite.items[number]
    choice = choice_of(item)
    chosen = sorted((row for row in runs if _is_chosen(choice, row)), key=lambda row: row["name"])
    samples = {part: [r for r in chosen if _is_of(part, r)] for part in suite.parts(item)}
    for rows in samples.values():
        if all(row["started"] is not None for row in rows if not row["why"]):
            rows.sort(key=lambda row: row["started"] or 0.0)
    valid = [row for rows in samples.values() for row in rows if not row["why"]]
    several = differing(valid, _KEYS.values())
    for key, column in _KEYS.items():
        if values := several.get(column):
            raise UserError(
                "the results have several cases of this item",
                where=f"{suite.path}: items.{number}",
                expected=f"`{key}:` with one of {', '.join(sorted(map(value_text, values)))}",
            )
    return samples


def _is_of(part: Part, run: Row) -> bool:
    """True if a run was on the nodes of a part. Runs of other logs are in a directory of its
    name."""
    if run["hosts"]:
        return bool(run["hosts"] == part.hosts and run["nodes"] == len(part.hosts))
    return part.name in run["log"].split("/")[:-1]


def _is_chosen(choice: Choice, run: Row) -> bool:
    """True if a run is one of the item's, as far as the item says what it is."""
    if choice.container and not run["container"]:
        return False
    for name, column in _CHOSEN.items():
        wanted = getattr(choice, name)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,) * (wanted is not None)
        if wanted and run[column] not in wanted:
            return False
    if choice.model and not {run["model"], *run["families"]} & {*choice.model}:
        return False
    values = read_parameters(run["parameters"])
    return all(values.get(name, text) == text for name, text in choice.parameters.items())
