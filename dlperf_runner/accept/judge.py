"""Judges each part of a suite from logs alone: the same suite and logs give the same verdicts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ..catalog.published_numbers import PublishedNumber, load_published, load_rule
from ..commands.verify import refuse_tampered
from ..compare.conditions import differences, parse_stated, published_conditions, read_conditions
from ..compare.published import needed_differences
from ..compare.verdicts import FAILED, NOT_COMPARABLE, PASSED, TOO_FEW, UNDECIDED, on_limit
from ..core.case import Topology
from ..core.errors import UserError
from ..core.frame import records, throughput
from ..core.identity import CASE, CaseKey, case_key, columns_of, label, read_parameters, value_text
from ..core.lists import counted, natural
from ..core.units import per_second
from ..plan.choice import fraction
from ..results.discovery import CAMPAIGNS
from ..results.load import catalogued, load_results
from ..stats.sequential import (
    Gate,
    Promise,
    judged,
    look_sizes,
    planned_runs,
    pooled_deviation,
)
from .suite import (
    Item,
    Part,
    Published,
    Resolved,
    choice_of,
    number_of,
    reference_of,
    title_of,
)

if TYPE_CHECKING:
    from ..results.load import Progress, Results
    from ..results.run_record import FoundRun

# The columns of a row that an item may choose, by the field of its choice.
_CHOSEN = {
    **{name: name for name in ("workload", "framework", "precision", "gpus_per_node", "source")},
    "batch_size": "batch_size_per_device",
    "iterations": "total_steps",
    "warmup": "warmup_steps",
}
_KEYS = {"model": "model", **_CHOSEN, "parameters": "parameters"}


@dataclass
class Sample:
    """The valid runs of a part, in the order in which they were made, with their logs; and why
    others do not count."""

    cases: dict[CaseKey, None] = field(default_factory=dict)
    values: list[float] = field(default_factory=list)
    logs: list[dict[str, Any]] = field(default_factory=list)
    unit: str = ""
    not_counted: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """The looks of an item: how many runs of each part, and why there are none."""

    sizes: tuple[int, ...]
    deviation: float | None
    why: str | None = None


def load(folder: Path, progress: Progress | None = None) -> list[Results]:
    """The results of a campaign, or of all campaigns and other logs below a folder. Raises
    UserError if runs are not what the manifest of their campaign recorded, or are there twice."""
    first = load_results(folder, progress=progress, with_others=True)
    campaigns = [skipped.path for skipped in first.skipped if skipped.view == CAMPAIGNS]
    models = catalogued([folder, *campaigns])
    loaded = [first, *(load_results(path, models, progress=progress) for path in campaigns)]
    refuse_tampered(loaded)
    return loaded


def judge(suite: Resolved, folder: Path, loaded: Sequence[Results]) -> dict[str, Any]:
    """The verdict on each part of each item, as the page has it. Paths of logs are below the
    folder."""
    parts = []
    for number, item in enumerate(suite.suite.items):
        samples = _samples(suite, number, folder, loaded)
        conditions = _conditions(suite, loaded) if isinstance(item.target, Published) else {}
        parts += list(_judge_item(suite, number, samples, conditions))
    # Failed if one part is, passed if all are.
    verdicts = {part["verdict"] for part in parts}
    verdict = FAILED if FAILED in verdicts else UNDECIDED
    return {
        "suite": suite.record(),
        "verdict": PASSED if verdicts == {PASSED} else verdict,
        "parts": parts,
    }


def _judge_item(
    suite: Resolved,
    number: int,
    samples: Mapping[Part, Sample],
    conditions: Mapping[CaseKey, Mapping[str, object]],
) -> Iterator[dict[str, Any]]:
    item = suite.suite.items[number]
    gate = suite.gate(item)
    plan = plan_of(suite, item, samples)
    reference = next((s for part, s in samples.items() if part.name == reference_of(item)), None)
    for part, sample in samples.items():
        if sample is reference:
            continue
        row: dict[str, Any] = {
            "item": title_of(number, item),
            "part": part.name,
            "hosts": sorted(part.hosts, key=natural),
            "unit": sample.unit,
            "runs": len(sample.values),
            "median": median(sample.values) if sample.values else None,
            "margin": gate.margin,
            "looks": list(plan.sizes),
            "deviation": plan.deviation,
        }
        try:
            target, facts = _target(item, sample, reference, conditions)
            row |= facts | _decided(gate, plan, sample, target)
            if row["verdict"] == PASSED and (reasons := sample.not_counted):
                # A part whose slow runs are not valid would pass by the others.
                runs = counted(len(reasons), "run")
                raise _Undecided(f"{runs} not counted, such as {reasons[0]}")
        except _Undecided as why:
            row |= {"verdict": UNDECIDED, "why": str(why)}
        yield row | {"logs": sample.logs}


def _decided(gate: Gate, plan: Plan, sample: Sample, target: float | list[float]) -> dict[str, Any]:
    """The verdict of the looks, and what is missing if it is undecided."""
    others = [] if isinstance(target, float) else target
    look = judged(
        min(len(sample.values), len(others) or len(sample.values)),
        plan.sizes,
        lambda size: gate.interval(sample.values[:size], others[:size] or target),
        lambda interval: on_limit(interval.low, interval.high, gate.margin),
        UNDECIDED,
    )
    row = {"judged_runs": look.size, "low": look.low, "high": look.high, "verdict": look.verdict}
    return {**row, "why": plan.why or look.why}


class _Undecided(Exception):  # noqa: N818  this is no error
    """The reason why a part has no verdict."""


# ---- the plan


def plan_of(suite: Resolved, item: Item, samples: Mapping[Part, Sample]) -> Plan:
    """The looks that the suite states, or those that follow from its pilot: the first runs of each
    part. Only their scatter counts, not their speed."""
    if suite.suite.looks:
        return Plan(tuple(sorted(set(suite.suite.looks))), None)
    size = suite.suite.pilot
    started = {part.name: s.values[:size] for part, s in samples.items() if s.values}
    few = [f" ({name} has {len(values)})" for name, values in started.items() if len(values) < size]
    if few or not started:
        return Plan((), None, f"the pilot needs {size} runs of each part{''.join(few[:1])}")
    deviation = pooled_deviation([*started.values()])
    by_reference = reference_of(item) is not None
    words = (suite.suite.good_passes, suite.suite.slow, suite.suite.slow_fails)
    promise = Promise(*(fraction(text, "") for text in words))
    planned = planned_runs(
        suite.gate(item), promise, deviation, by_reference=by_reference, least=size
    )
    if planned is None:
        why = f"the runs scatter by {deviation:.1%}: too much for this margin"
        return Plan((), deviation, why)
    return Plan(look_sizes(size, planned), deviation)


# ---- targets


def _target(
    item: Item,
    sample: Sample,
    reference: Sample | None,
    conditions: Mapping[CaseKey, Mapping[str, object]],
) -> tuple[float | list[float], dict[str, Any]]:
    """The number, or the runs of the reference; and what the page says of them. Raises _Undecided
    if the part cannot be judged by it."""
    case = _one_case(sample)
    if reference is not None:
        of_reference = _one_case(reference)
        names = [n for n, a, b in zip(CASE, case, of_reference, strict=True) if a != b]
        if names:
            raise _Undecided(f"differs from the reference in {', '.join(map(label, names))}")
        return reference.values, {"target": median(reference.values)}
    if isinstance(item.target, Published):
        number, differing = _published(item.target.published, case, conditions.get(case, {}))
        if differing:
            raise _Undecided(f"{NOT_COMPARABLE}: {'; '.join(differing)}")
        value, unit = number.samples_per_second, per_second(number.unit)
        facts = {"target": value, "published": f"{number.title}, {number.source}, {number.date}"}
    else:
        value, unit = number_of(item.target)
        facts = {"target": value}
    if unit != sample.unit:
        raise UserError(
            "the target has another unit than the runs",
            where=f"target of {columns_of(case)['workload']}",
            expected=sample.unit,
            found=unit,
        )
    return value, facts


def _one_case(sample: Sample) -> CaseKey:
    """The case of a part's runs. Runs that differ are never pooled."""
    if not sample.cases:
        raise _Undecided(f"{TOO_FEW}: no valid run")
    first, *others = sample.cases
    if others:
        names = (n for n, *values in zip(CASE, first, *others, strict=True) if len({*values}) > 1)
        raise _Undecided(f"its runs differ in {', '.join(map(label, names))}")
    return first


def _published(
    report: str, case: CaseKey, conditions: Mapping[str, object]
) -> tuple[PublishedNumber, list[str]]:
    """The report's number for a case, and what keeps the two from being compared."""
    columns, rule = columns_of(case), load_rule()
    topology = Topology(columns["nodes"], columns["gpus_per_node"])
    of_report = [n for n in load_published() if n.report == report and n.contradiction is None]
    fitting = []
    for number in of_report:
        if number.topology == topology and number.workload_model == columns["model"]:
            published = published_conditions(number)
            differing = differences(conditions, published, nodes=topology.nodes)
            fitting.append((number, [str(d) for d in needed_differences(differing, rule)]))
    if not fitting:
        names = sorted({f"{n.model} {n.topology}" for n in of_report}, key=natural)
        raise UserError(
            "the report has no number for this part",
            where=f"target: {{published: {report}}}",
            expected=f"one of {', '.join(names)}" if names else "a name of `dlperf list published`",
            found=f"{columns['model']} {topology}" if names else report,
        )
    return min(fitting, key=lambda pair: len(pair[1]))


def _conditions(
    suite: Resolved, loaded: Sequence[Results]
) -> Mapping[CaseKey, Mapping[str, object]]:
    stated = parse_stated([f"{name}={value}" for name, value in suite.suite.conditions.items()])
    runs = [run for results in loaded for run in results.counted]
    models = [model for results in loaded for model in results.models]
    return read_conditions(runs, models, load_rule(), stated)


# ---- the runs of a part


def _samples(
    suite: Resolved, number: int, folder: Path, loaded: Iterable[Results]
) -> dict[Part, Sample]:
    """The valid runs of each part of an item, in the order of their campaigns and repeats."""
    item = suite.suite.items[number]
    samples = {part: Sample() for part in suite.parts(number)}
    chosen: list[tuple[FoundRun, Mapping[str, Any], str | None]] = []
    for results in loaded:
        families = {model.workload.name: model.workload.families for model in results.models}
        rows = throughput(results.frame)
        runs = zip(rows.index, records(rows), strict=True)
        chosen += [
            (results.runs[n], row, None) for n, row in runs if _is_chosen(item, row, families)
        ]
        for run in results.runs:
            case = columns_of(run.case)
            if (why := results.not_counted.get(run.path)) and _is_chosen(item, case, families):
                chosen.append((run, case, why))
    chosen.sort(key=lambda each: (str(each[0].path.parent.parent), each[0].repeat))
    for run, row, why in chosen:
        path = os.path.relpath(run.path, folder)
        for part in _parts_of(samples, run.hosts, path):
            sample = samples[part]
            if run.hosts and row["nodes"] != len(part.hosts):
                continue
            if why is not None:
                sample.not_counted.append(f"{path}: {why}")
                continue
            sample.cases[case_key(row)] = None
            sample.values.append(row["value"])
            sample.logs.append({"log": path, "sha256": row["log_sha256"], "value": row["value"]})
            sample.unit = row["unit"]
    _refuse_several(suite, number, samples.values())
    return samples


def _is_chosen(item: Item, row: Mapping[str, Any], families: Mapping[str, Sequence[str]]) -> bool:
    """True if a run is one of the item's, as far as the item says what it is."""
    choice = choice_of(item)
    if choice.container and not row["container"]:
        return False
    for name, column in _CHOSEN.items():
        wanted = getattr(choice, name)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,) * (wanted is not None)
        if wanted and row[column] not in wanted:
            return False
    if choice.model and not {row["model"], *families.get(row["workload"], ())} & {*choice.model}:
        return False
    values = read_parameters(row["parameters"])
    return all(values.get(name, text) == text for name, text in choice.parameters.items())


def _parts_of(parts: Iterable[Part], hosts: Sequence[str], path: str) -> list[Part]:
    """The part on whose nodes a run was. The runs of other logs are in a directory of its name."""
    if hosts:
        return [part for part in parts if part.hosts == {*hosts}]
    folders = {*path.split("/")[:-1]}
    return [part for part in parts if part.name in folders]


def _refuse_several(suite: Resolved, number: int, samples: Iterable[Sample]) -> None:
    """Raise UserError if the item leaves open which of several measured cases it means: parts that
    ran different ones are not judged by one target."""
    cases = [columns_of(case) for sample in samples for case in sample.cases]
    for key, column in _KEYS.items():
        if len(values := {case[column] for case in cases}) > 1:
            raise UserError(
                "the results have several cases of this item",
                where=f"{suite.path}: items.{number}",
                expected=f"`{key}:` with one of {', '.join(sorted(map(value_text, values)))}",
            )
