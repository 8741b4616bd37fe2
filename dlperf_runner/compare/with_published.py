"""Compare measured with published throughput: DataFrames in, DataFrame out. The only files that
this module reads are those of the catalogue.

catalog/published/rule.yml and docs/comparing.md define the verdicts. If a case has several
publications, the nearest one is used. In order of preference, it is comparable, it is the report
that the workload reproduces, and it differs in the fewest conditions. The speed of a case is that
of the estimator that produced the published number, if the log of every run has it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from ..catalog.published_numbers import (
    PublishedNumber,
    load_published,
    load_rule,
    reproduced_reports,
)
from ..core.frame import by_case, records
from ..core.identity import CASE, TOPOLOGY, CaseKey, case_key, columns_of, label
from ..core.units import BANDWIDTH, per_second
from ..stats.groups import rates_by_case
from ..stats.intervals import UNKNOWN, ConfidenceInterval, median_interval
from ..stats.ratios import LEAST_RUNS, published_interval
from ..stats.summary import summarize
from .conditions import (
    FACTORS,
    OF_TRAINING,
    ONLY_STATED,
    TOO_FEW,
    UNDECIDED,
    Difference,
    Values,
    limit_verdict,
)
from .nearest import (
    estimator_of,
    nearest,
    needed_differences,
    numbers_of_model,
    publication_name,
    usable_numbers,
    why_none,
)
from .outlook import to_decide_published

if TYPE_CHECKING:
    import pandas as pd

    from ..catalog.publication import ComparisonRule

REPRODUCED, FASTER, SLOWER = "reproduced", "faster", "slower"
NOT_COMPARABLE, NOT_PUBLISHED = "not comparable", "not published"
METRIC = "samples_per_second"
COLUMNS = (
    *CASE,
    *("unit", "estimator", "by", "repeats", "mine", "mine_low", "mine_high"),
    *("published", "published_repeats", "ratio", "ratio_low", "ratio_high", "ratio_coverage"),
    *("verdict", "factors", "noted", "unknown", "stated", "assumed", "declared"),
    *("report", "publication", "published_title", "published_source", "published_date"),
    *("limit", "limit_verdict", "why"),
)


def compare_published(
    frame: pd.DataFrame,
    conditions: Mapping[CaseKey, Values] | None = None,
    *,
    rule: ComparisonRule | None = None,
    every: bool = False,
    assume: bool = False,
    table: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """One row per case of the tidy frame with the nearest published number; with `every`, one row
    for each published number.

    Columns: those of CASE; `mine`, the median of the `repeats` valid runs, with the interval
    mine_low to mine_high; `published`, from published_repeats runs (NaN if not stated);
    the `ratio` of the two with its interval and coverage; the `verdict`; and six texts:

    - `factors`: conditions that must be equal but differ, or are unknown for the user's own runs;
    - `noted`: other conditions that differ;
    - `unknown`: conditions that must be equal but that the publication does not state;
    - `stated`: conditions of the user's own runs that no log or record confirms, each with its
      value and who states it;
    - `assumed`: conditions that are unknown for the user's own runs and were taken from the
      publication, only with `assume`;
    - `declared`: flags and variables in which the catalogue's command differs from the report's.

    `estimator` is that of `mine`; `by` names it if it is not the case's own.

    `publication` is the report, with the settings of the number if the report has several numbers
    for the case.

    Missing numbers are NaN, missing texts None. `conditions` are by case_key; missing ones are
    unknown. `table` is the result of `summarize` for the frame, if already computed.
    """
    import pandas as pd

    numbers, rule = load_published(), rule or load_rule()
    values, others = rates_by_case(frame), _by_estimator(frame)
    rows: list[dict[str, Any]] = []
    table = summarize(frame) if table is None else table
    for case in records(table):
        key = case_key(case)
        known = dict((conditions or {}).get(key, {}))
        texts = [str(text) for text in (case["stated"], known.get(ONLY_STATED)) if text]
        stated = ", ".join(texts) or None
        own = {**columns_of(key), "unit": case["unit"]}
        mine = {
            **{name: value for name, value in own.items() if name in FACTORS},
            "global_batch_size": own["batch_size_per_device"] * own["world_size"],
            **known,
        }
        if case["unit"] == per_second(BANDWIDTH):
            mine = {name: value for name, value in mine.items() if name not in OF_TRAINING}
        of_model = numbers_of_model(own, numbers)
        shown = of_model if every else usable_numbers(of_model, mine["accelerator"])
        usual, runs = case["estimator"], values[key].values
        estimates = {by: of for by, of in others[key].items() if len(of) == len(runs)}
        estimates[usual] = runs
        found_numbers = list(nearest(own, mine, usual, estimates, shown, rule, assume))
        if not found_numbers:
            row = {**own, **_mine(runs, usual, usual), "stated": stated}
            rows.append(
                {**row, "verdict": NOT_PUBLISHED, "factors": why_none(own, shown, of_model)}
            )
        of_case = [number for number, _ in found_numbers]
        for number, found in found_numbers if every else found_numbers[:1]:
            by = estimator_of(number, usual, estimates)
            row = {**own, **_mine(estimates[by], by, usual), "stated": stated}
            row |= _comparison(estimates[by], number, found, rule, assume)
            row["declared"] = _declared(own, number)
            row["publication"] = publication_name(number, of_case)
            if row["verdict"] == UNDECIDED:
                row["why"] = to_decide_published(row, [1 - rule.tolerance, 1 + rule.tolerance])
            rows.append(row)
    return pd.DataFrame(
        [{name: row.get(name) for name in COLUMNS} for row in rows], columns=COLUMNS
    )


def with_limit(table: pd.DataFrame, limit: float) -> pd.DataFrame:
    """The comparison with a verdict on a limit (0.03 for 3 %): failed if the whole interval of the
    ratio is below 1 - limit, passed if it is above, else undecided with the reason `why`. There is
    no verdict if nothing is published."""
    import pandas as pd

    verdicts: list[tuple[str | None, str | None]] = []
    for case in table.to_dict(orient="records"):
        low, high = case["ratio_low"] - 1, case["ratio_high"] - 1
        verdict: str | None = limit_verdict(low, high, limit)
        why = None
        if case["verdict"] == NOT_PUBLISHED:
            verdict = None
        elif case["verdict"] == NOT_COMPARABLE:
            verdict, why = UNDECIDED, "it is not comparable with the publication"
        elif math.isnan(low):
            verdict = TOO_FEW
            why = f"fewer than {LEAST_RUNS} runs give no interval"
        elif verdict == UNDECIDED:
            outlook = to_decide_published(case, [1 - limit])
            why = f"the interval crosses {-limit or 0:.1%}; {outlook}"
        verdicts.append((verdict, why))
    texts = pd.DataFrame(
        verdicts, columns=["limit_verdict", "why"], index=table.index, dtype=object
    )
    return table.assign(limit=limit, limit_verdict=texts["limit_verdict"], why=texts["why"])


def published_points(table: pd.DataFrame) -> pd.DataFrame:
    """The published numbers for the workloads, models, precisions and batch sizes of a table of
    cases, at any topology, for plots. Columns: those four, the topology, `value`, `speedup` (NaN if
    not published) and the publication. `factors` describes the conditions."""
    import pandas as pd

    group = ("workload", "model", "precision", "batch_size_per_device")
    keys = {tuple(case[name] for name in group) for case in table.to_dict(orient="records")}
    rows = [
        {
            **dict(zip(group, key, strict=True)),
            "framework": number.framework,
            "nodes": number.topology.nodes,
            "gpus_per_node": number.topology.gpus_per_node,
            "world_size": number.topology.world_size,
            "value": number.samples_per_second,
            "speedup": math.nan if number.speedup is None else number.speedup,
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
    names = ("value", "speedup", "report", "published_title", "published_source", "published_date")
    return pd.DataFrame(rows, columns=[*group, "framework", *TOPOLOGY, *names, "factors"])


def conditions_line(number: PublishedNumber) -> str:
    """The conditions of a number in one line: `V100-SXM2-32GB, tensorflow 1.15.4, XLA, real
    data`."""
    known = number.conditions
    version = f"{number.framework} {known.framework_version or '(version unknown)'}"
    xla = {True: "XLA", False: "no XLA", None: None}[known.xla]
    data = f"{known.data} data" if known.data else None
    parallel = f"parallel: {known.parallelism}" if known.parallelism else None
    compiled = {True: "compiled", False: "not compiled", None: None}[known.compile]
    recipe = known.recipe if known.recipe != "none" else None
    length = f"sequence length {known.sequence_length}" if known.sequence_length else None
    how = (xla, compiled, recipe, length, data, parallel)
    return ", ".join(filter(None, (known.accelerator, version, *how)))


def verdict_of(interval: ConfidenceInterval, tolerance: float) -> str:
    """Reproduced: the whole interval of the ratio is within 1 +- tolerance. Faster or slower: the
    whole interval is outside. An interval that crosses a bound is undecided. So are too few runs,
    however close they are: they have no interval."""
    low, high = interval.low, interval.high
    if low > 1 + tolerance:
        return FASTER
    if high < 1 - tolerance:
        return SLOWER
    return REPRODUCED if low >= 1 - tolerance and high <= 1 + tolerance else UNDECIDED


def ratio_of(values: Sequence[float], number: PublishedNumber) -> tuple[float, ConfidenceInterval]:
    """The median divided by the published number, and its interval. The published number varies
    like its runs, or like the values if its runs were not published."""
    published, repeats = number.samples_per_second, number.conditions.repeats
    interval = published_interval(values, published, number.runs, repeats)
    return median(values) / published, interval


def _by_estimator(frame: pd.DataFrame) -> dict[CaseKey, dict[str, list[float]]]:
    """The throughput of the valid runs of a tidy frame, by case and estimator."""
    of_estimator = f"{METRIC}_" + frame["estimator"].astype("str")
    is_rate = (frame["metric"] == METRIC) | (frame["metric"] == of_estimator)
    rates = frame[frame["valid"] & is_rate & frame["value"].notna()]
    return {
        key: {str(name): group.tolist() for name, group in rows.groupby("estimator")["value"]}
        for key, rows in by_case(rates)
    }


def _mine(values: Sequence[float], by: str, usual: str) -> dict[str, Any]:
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
    found: Sequence[Difference],
    rule: ComparisonRule,
    assume: bool,
) -> dict[str, Any]:
    needed = needed_differences(found, rule)
    same_unit = all(item.factor != "unit" for item in found)
    ratio, interval = ratio_of(values, number) if same_unit else (math.nan, UNKNOWN)
    assumed = [item for item in needed if assume and (item.mine is None or item.is_partial)]
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
        "verdict": verdict_of(interval, rule.tolerance) if judged else NOT_COMPARABLE,
        "factors": ", ".join(filter(None, (contradiction, _text(factors)))) or None,
        "noted": _text([item for item in found if item not in needed]),
        "unknown": ", ".join(map(label, unknown)) or None,
        "assumed": ", ".join(f"{label(item.factor)} {item.other}" for item in assumed) or None,
        "report": number.report,
        "published_title": number.title,
        "published_source": number.source,
        "published_date": number.date,
    }


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


def _text(found: Sequence[Difference]) -> str | None:
    return ", ".join(map(str, found)) or None
