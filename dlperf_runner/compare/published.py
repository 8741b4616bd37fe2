"""Compare measured with published throughput: DataFrames in, rows out. The only files that
this module reads are those of the catalogue.

catalog/published/rule.yml and docs/comparing.md define the verdicts. If a case has several
publications, the nearest one is used. In order of preference, it is comparable, it is the report
that the workload reproduces, and it differs in the fewest conditions. The speed of a case is that
of the estimator that produced the published number, if the log of every run has it.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ..catalog.publication import ComparisonRule
from ..catalog.published_numbers import (
    PublishedNumber,
    load_published,
    load_rule,
    reproduced_reports,
)
from ..core.case import Topology
from ..core.errors import UserError
from ..core.frame import Frame, completed, plain_rows, records
from ..core.identity import CASE, CaseKey, case_key, columns_of, label, topology_text
from ..core.lists import grouped, shortened
from ..core.units import BANDWIDTH, per_second
from ..stats.groups import rates_by_case
from ..stats.intervals import UNKNOWN, ConfidenceInterval, median_interval
from ..stats.ratios import published_interval
from ..stats.summary import summarize
from .conditions import (
    FACTORS,
    OF_TRAINING,
    ONLY_STATED,
    STATED,
    Difference,
    Values,
    differences,
    display_value,
    family,
    published_conditions,
)
from .verdicts import (
    NOT_COMPARABLE,
    NOT_PUBLISHED,
    UNDECIDED,
    published_limit,
    published_verdict,
    to_decide_published,
)


@dataclass(frozen=True)
class SideBySide:
    """Numbers of one framework, model, precision and topology, in ascending order, and the
    conditions (`factors`) in which two of them are known to differ. `spread` is how much the
    highest number is above the lowest, as a fraction of the lowest."""

    framework: str
    model: str
    precision: str
    topology: str
    numbers: tuple[PublishedNumber, ...]
    factors: tuple[str, ...]
    spread: float


def side_by_side(
    numbers: Sequence[PublishedNumber] | None = None,
    *,
    model: str = "",
    framework: str = "",
    precision: str = "",
    every: bool = False,
) -> list[SideBySide]:
    """Publications that seem to contradict each other: groups whose numbers differ by more than the
    tolerance of a reproduction. With `every`, all groups, even of one number. `model`, `framework`
    and `precision` filter the numbers; an empty filter matches all. Raises UserError if no number
    matches."""
    tolerance = load_rule().tolerance
    wanted = {"model": model, "framework": framework, "precision": precision}
    fitting = (
        number
        for number in (load_published() if numbers is None else numbers)
        if all(value in ("", getattr(number, name)) for name, value in wanted.items())
    )
    chosen = grouped(
        fitting,
        lambda number: (
            *(number.framework, number.model, number.precision or "unknown precision"),
            *(number.topology.world_size, str(number.topology), number.unit),
        ),
    )
    if not chosen:
        asked = ", ".join(f"{name} {value}" for name, value in wanted.items() if value)
        raise UserError(
            f"no number is published for {asked}",
            hint="`dlperf list published` shows all published numbers",
        )
    groups = [
        _group(*key[:3], key[4], numbers)
        for key, numbers in sorted(chosen.items(), key=lambda item: item[0])
    ]
    return [group for group in groups if every or group.spread > tolerance]


def _group(
    framework: str, model: str, precision: str, topology: str, numbers: list[PublishedNumber]
) -> SideBySide:
    ordered = sorted(numbers, key=lambda number: (number.samples_per_second, number.date))
    low, high = ordered[0].samples_per_second, ordered[-1].samples_per_second
    factors = differing_conditions(ordered)
    return SideBySide(
        framework, model, precision, topology, tuple(ordered), factors, high / low - 1
    )


def differing_conditions(numbers: Sequence[PublishedNumber]) -> tuple[str, ...]:
    """The conditions in which at least two numbers of one topology are known to differ."""
    differing = {
        item.factor
        for n, first in enumerate(numbers)
        for second in numbers[n + 1 :]
        for item in differences(
            published_conditions(first),
            published_conditions(second),
            nodes=first.topology.nodes,
            between=True,
        )
    }
    return tuple(name for name in FACTORS if name in differing)


def named_values(number: PublishedNumber, factors: Sequence[str]) -> str:
    """The values of these factors for the number: `precision fp16, XLA unknown`. The reason why it
    cannot be right comes first."""
    conditions = published_conditions(number)
    reason = [f"contradictory: {number.contradiction}"] if number.contradiction else []
    values = (f"{label(name)} {display_value(conditions[name]) or 'unknown'}" for name in factors)
    return ", ".join([*reason, *values])


METRIC = "samples_per_second"
COLUMNS = (
    *CASE,
    *("unit", "estimator", "by", "repeats", "mine", "mine_low", "mine_high"),
    *("published", "published_repeats", "ratio", "ratio_low", "ratio_high", "ratio_coverage"),
    *("verdict", "factors", "to_state", "noted", "unknown", "stated", "assumed", "declared"),
    *("report", "publication", "published_title", "published_source", "published_date"),
    *("limit", "limit_verdict", "why"),
)


def compare_published(
    frame: Frame,
    conditions: Mapping[CaseKey, Values] | None = None,
    *,
    rule: ComparisonRule | None = None,
    every: bool = False,
    assume: bool = False,
    limit: float | None = None,
    cases: Sequence[Mapping[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """One row per case of the long frame with the nearest published number; with `every`, one row
    for each published number. What is missing is None.

    Columns: those of CASE; `mine`, the median of the `repeats` valid runs, with its interval;
    `published`, from published_repeats runs (None if not stated); the `ratio` of the two with its
    interval and coverage; the `verdict`; `estimator` of `mine`, and `by`, which names it if it is
    not the case's own; `publication`, the report, with the settings of the number if the report has
    several for the case; and texts. `factors` are conditions that must be equal but differ, or are
    unknown for the user's own runs; `to_state` has the options that state them as published, if all
    are unknown. `noted` are other conditions that differ, `unknown` those that must be equal but
    that the publication does not state, `stated` those that no log or record confirms, each with
    its value and who states it. `assumed` ones are unknown for the user's own runs and were taken
    from the publication, only with `assume`. `declared` are flags and variables in which the
    catalogue's command differs from the report's.

    With a `limit` (0.03 for 3 %), see `published_limit`. `conditions` are by case_key; missing ones
    are unknown. `cases` is the result of `summarize` for the frame, if already computed.
    """
    numbers, rule = load_published(), rule or load_rule()
    rates, estimates = rates_by_case(frame), rates_by_estimator(frame)
    rows: list[dict[str, Any]] = []
    for case in records(summarize(frame)) if cases is None else cases:
        of_runs = (conditions or {}).get(case_key(case), {})
        # An estimator that every run has, or that of the case.
        values = rates[case_key(case)].values
        of_case = {by: v for by, v in estimates[case_key(case)].items() if len(v) == len(values)}
        of_case[case["estimator"]] = values
        rows += _compared_case(case, of_runs, of_case, numbers, rule, every, assume)
    if limit is not None:
        for row in rows:
            verdict, why = published_limit(row, limit)
            row.update(limit=limit, limit_verdict=verdict, why=why)
    return completed(rows, COLUMNS)


def _compared_case(
    case: Mapping[str, Any],
    conditions: Values,
    estimates: Mapping[str, Sequence[float]],
    numbers: Sequence[PublishedNumber],
    rule: ComparisonRule,
    every: bool,
    assume: bool,
) -> Iterator[dict[str, Any]]:
    """The rows of a case. `estimates` is the throughput of its runs by estimator."""
    texts = [str(text) for text in (case["stated"], conditions.get(ONLY_STATED)) if text]
    stated = ", ".join(texts) or None
    columns = {**columns_of(case_key(case)), "unit": case["unit"]}
    batch = columns["batch_size_per_device"]
    measured = {
        **{name: value for name, value in columns.items() if name in FACTORS},
        "global_batch_size": batch and batch * columns["world_size"],
        **conditions,
    }
    if case["unit"] == per_second(BANDWIDTH):
        measured = {name: value for name, value in measured.items() if name not in OF_TRAINING}
    of_model = numbers_of_model(columns, numbers)
    shown = of_model if every else usable_numbers(of_model, measured["accelerator"])
    usual = case["estimator"]
    found_numbers = list(nearest(columns, measured, usual, estimates, shown, rule, assume))
    if not found_numbers:
        row = {**columns, **_measured_values(estimates[usual], usual, usual), "stated": stated}
        yield {**row, "verdict": NOT_PUBLISHED, "factors": why_none(columns, shown, of_model)}
    of_case = [number for number, _ in found_numbers]
    for number, differing in found_numbers if every else found_numbers[:1]:
        by = estimator_of(number, usual, estimates)
        row = {**columns, **_measured_values(estimates[by], by, usual), "stated": stated}
        row |= _comparison(estimates[by], number, differing, rule, assume)
        row["declared"] = _declared(columns, number)
        same = [other for other in of_case if other.report == number.report]
        settings = named_values(number, differing_conditions(same))
        row["publication"] = f"{number.report} ({settings})" if settings else number.report
        if row["verdict"] == UNDECIDED:
            row["why"] = to_decide_published(row, [1 - rule.tolerance, 1 + rule.tolerance])
        yield row


def published_points(cases: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The published numbers for the workloads, models, precisions and batch sizes of these cases,
    at any topology, for plots: with the topology, `value`, `speedup` (None if not published) and
    the publication. `factors` describes the conditions."""
    group = ("workload", "model", "precision", "batch_size_per_device")
    keys = {tuple(case[name] for name in group) for case in cases}
    return [
        {
            **dict(zip(group, key, strict=True)),
            "framework": number.framework,
            "nodes": number.topology.nodes,
            "gpus_per_node": number.topology.gpus_per_node,
            "world_size": number.topology.world_size,
            "value": number.samples_per_second,
            "speedup": number.speedup,
            "report": number.report,
            "published_title": number.title,
            "published_source": number.source,
            "published_date": number.date,
            "factors": conditions_line(number),
        }
        for number in load_published()
        for key in _groups(number)
        if key in keys and not number.contradiction
    ]


def conditions_line(number: PublishedNumber) -> str:
    """The conditions of a number in one line: `V100-SXM2-32GB, tensorflow 1.15.4, XLA, real
    data`."""
    conditions = number.conditions
    version = f"{number.framework} {conditions.framework_version or '(version unknown)'}"
    xla = {True: "XLA", False: "no XLA", None: None}[conditions.xla]
    data = f"{conditions.data} data" if conditions.data else None
    parallel = f"parallel: {conditions.parallelism}" if conditions.parallelism else None
    compiled = {True: "compiled", False: "not compiled", None: None}[conditions.compile]
    recipe = conditions.recipe if conditions.recipe != "none" else None
    length = f"sequence length {conditions.sequence_length}" if conditions.sequence_length else None
    how = (xla, compiled, recipe, length, data, parallel)
    return ", ".join(filter(None, (conditions.accelerator, version, *how)))


def ratio_of(values: Sequence[float], number: PublishedNumber) -> tuple[float, ConfidenceInterval]:
    """The median divided by the published number, and its interval. The published number varies
    like its runs, or like the values if its runs were not published."""
    published, repeats = number.samples_per_second, number.conditions.repeats
    interval = published_interval(values, published, number.runs, repeats)
    return median(values) / published, interval


def rates_by_estimator(frame: Frame) -> dict[CaseKey, dict[str, list[float]]]:
    """The throughput of the valid runs of a long frame, by case and estimator."""
    of_estimator = f"{METRIC}_" + frame["estimator"].astype("str")
    is_rate = (frame["metric"] == METRIC) | (frame["metric"] == of_estimator)
    rates = frame[frame["valid"] & is_rate & frame["value"].notna()]
    columns = plain_rows(rates[["estimator", "value"]])
    values: dict[CaseKey, dict[str, list[float]]] = {}
    for case, (estimator, value) in zip(plain_rows(rates[list(CASE)]), columns, strict=True):
        values.setdefault(case, {}).setdefault(estimator, []).append(value)
    return values


def _measured_values(values: Sequence[float], by: str, usual: str) -> dict[str, Any]:
    return {
        "estimator": by,
        "by": f"{by}, as published, not by {usual}" if by != usual else None,
        "repeats": len(values),
        "mine": median(values),
        **_bounds("mine", median_interval(values)),
    }


def _groups(number: PublishedNumber) -> list[tuple[Any, ...]]:
    of_case = (number.workload_model, number.precision, number.batch_size_per_device)
    return [(workload, *of_case) for workload in number.workloads]


def _comparison(
    values: Sequence[float],
    number: PublishedNumber,
    differing: Sequence[Difference],
    rule: ComparisonRule,
    assume: bool,
) -> dict[str, Any]:
    needed = needed_differences(differing, rule)
    same_unit = all(item.factor != "unit" for item in differing)
    ratio, interval = ratio_of(values, number) if same_unit else (math.nan, UNKNOWN)
    assumed = [item for item in needed if assume and (item.measured is None or item.is_partial)]
    # The user cannot match what a publication does not state: it is listed, but has no effect on
    # the verdict.
    factors = [item for item in needed if item.other is not None and item not in assumed]
    unknown = [item.factor for item in needed if item.other is None]
    repeats = number.conditions.repeats
    contradiction = number.contradiction and f"contradictory publication: {number.contradiction}"
    judged = not factors and not contradiction
    return {
        "published": number.samples_per_second if same_unit else math.nan,
        "published_repeats": math.nan if repeats is None else float(repeats),
        "ratio": ratio,
        **_bounds("ratio", interval),
        "ratio_coverage": interval.coverage,
        "verdict": published_verdict(interval, rule.tolerance) if judged else NOT_COMPARABLE,
        "factors": ", ".join(filter(None, (contradiction, _text(factors)))) or None,
        "to_state": None if contradiction else _to_state(factors),
        "noted": _text([item for item in differing if item not in needed]),
        "unknown": ", ".join(map(label, unknown)) or None,
        "assumed": ", ".join(f"{label(item.factor)} {item.other}" for item in assumed) or None,
        "report": number.report,
        "published_title": number.title,
        "published_source": number.source,
        "published_date": number.date,
    }


def _to_state(factors: Sequence[Difference]) -> str | None:
    """The options with which the case is comparable, if its conditions are as published; None if
    one is known to be another."""
    contradicting = (f for f in factors if f.measured is not None and not f.is_partial)
    if not factors or any(contradicting) or any(f.factor not in STATED for f in factors):
        return None
    return " ".join(f"--condition {shlex.quote(f'{f.factor}={f.other}')}" for f in factors)


def _declared(case: Mapping[str, Any], number: PublishedNumber) -> str | None:
    """The flags that differ from the report's command, as the catalogue declares for its source."""
    reports = {report.name: report.reproduction for report in reproduced_reports()}
    reproduction = reports.get(number.report) if case["source"] == "upstream" else None
    names = [
        item.item
        for item in (reproduction.differences if reproduction else ())
        if item.kind == "changed" and (case["nodes"] > 1 or not item.between_nodes)
    ]
    return f"{', '.join(names)} (docs/reproducing/{number.report}.md)" if names else None


def _bounds(name: str, interval: ConfidenceInterval) -> dict[str, float]:
    return {f"{name}_low": interval.low, f"{name}_high": interval.high}


def _text(differences: Sequence[Difference]) -> str | None:
    return ", ".join(map(str, differences)) or None


# ---- the published numbers for a case


def numbers_of_model(
    case: Mapping[str, Any], numbers: Sequence[PublishedNumber]
) -> list[PublishedNumber]:
    return [
        number
        for number in numbers
        if case["workload"] in number.workloads and number.workload_model == case["model"]
    ]


def nearest(
    case: Mapping[str, Any],
    measured: Values,
    usual: str,
    estimates: Collection[str],
    numbers: Sequence[PublishedNumber],
    rule: ComparisonRule,
    assume: bool,
) -> Iterator[tuple[PublishedNumber, list[Difference]]]:
    """The numbers for the topology of the case, the nearest first."""
    topology = Topology(case["nodes"], case["gpus_per_node"])
    ranked = []
    for number in numbers:
        if number.topology == topology:
            of_number = published_conditions(number)
            by = {"estimator": estimator_of(number, usual, estimates), **measured}
            differing = differences(by, of_number, nodes=topology.nodes)
            needed = needed_differences(differing, rule)
            if assume:
                needed = [item for item in needed if item.measured is not None]
            size, batch_size = number.batch_size_per_device, case["batch_size_per_device"]
            batch = abs(math.log(size / batch_size)) if size and batch_size else math.inf
            comparable = all(item.other is None for item in needed)
            nearness = (len(needed), len(differing), batch)
            order = (bool(number.contradiction), not comparable, not number.reproduced, *nearness)
            ranked.append((order, number, differing))
    for _, number, differing in sorted(ranked, key=lambda item: item[0]):
        yield number, differing


def usable_numbers(
    of_model: Sequence[PublishedNumber], accelerator: object
) -> Sequence[PublishedNumber]:
    """The numbers without contradictions; those of the same family of accelerators, if any."""
    usable = [number for number in of_model if number.contradiction is None]
    wanted = family(accelerator)
    return [n for n in usable if wanted and family(n.conditions.accelerator) == wanted] or usable


def why_none(
    case: Mapping[str, Any],
    usable: Sequence[PublishedNumber],
    of_model: Sequence[PublishedNumber],
) -> str:
    """The reason why nothing is published for the topology of a case. No number is made up from
    others."""
    if not of_model:
        usual = case["model"].replace("_", "-")  # nccl-tests: all_reduce
        names = {n.workload_model for n in load_published() if n.model == usual}
        twins = sorted(names - {case["model"]})
        more = f"; with --model {twins[0]}, those of {twins[0]}" if twins else ""
        return f"no number is published for {case['model']} of {case['workload']}{more}"
    here = Topology(case["nodes"], case["gpus_per_node"])
    others = [number for number in of_model if number.topology == here]
    topologies = ", ".join(map(str, sorted({number.topology for number in usable}))) or "none"
    families = {family(number.conditions.accelerator) for number in usable}
    on = f" on {families.pop()}" if others and len(families) == 1 else ""
    unused = dict.fromkeys(
        "contradictory" if number.contradiction else f"on {number.conditions.accelerator}"
        for number in others
    )
    more = f"; with --all: {', '.join(unused)}" if unused else ""
    return f"topology ({here}; published{on}: {topologies}{more})"


def no_number(
    report: str, cases: Iterable[Mapping[str, Any]], where: str, hint: str | None = None
) -> UserError:
    """The error about cases of which the report has no number."""
    numbers = (number for number in load_published() if number.report == report)
    names = dict.fromkeys(f"{n.workload_model} on {n.topology}" for n in numbers)
    measured = dict.fromkeys(f"{case['model']} on {topology_text(case)}" for case in cases)
    return UserError(
        f"the report {report} has no number for a case of these runs",
        where=where,
        expected=shortened([*names]) or "a name of `dlperf list published`",
        found=shortened([*measured]) or "no valid run",
        hint=hint,
    )


def estimator_of(number: PublishedNumber, usual: str, estimates: Collection[str]) -> str:
    """The estimator of a case to compare with the number: that of the number, if every run has
    it."""
    return next((name for name in estimates if name == number.conditions.estimator), usual)


def needed_differences(differences: Sequence[Difference], rule: ComparisonRule) -> list[Difference]:
    return [item for item in differences if item.factor in rule.must_be_equal]
