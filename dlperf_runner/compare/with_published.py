"""Compare measured with published throughput: DataFrames in, DataFrame out. The only files that
this module reads are those of the catalogue.

catalog/published/rule.yml and docs/comparing.md define the verdicts. If a case has several
publications, the nearest one is used. In order of preference, it is comparable, it is the report
that the workload reproduces, and it differs in the fewest conditions. The speed of a case is that
of the estimator that produced the published number, if the log of every run has it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from ..core.case import Topology
from ..core.identity import CASE, CaseKey, case_key, label
from ..stats.groups import case_values
from ..stats.intervals import Interval, median_interval
from ..stats.ratios import LEAST_RUNS, published_interval
from .conditions import (
    FACTORS,
    TOO_FEW,
    UNDECIDED,
    Difference,
    Values,
    differences,
    limit_verdict,
    published_conditions,
)
from .outlook import to_decide_published
from .publications import differing, named_values

if TYPE_CHECKING:
    import pandas as pd

    from ..catalog.publication import ComparisonRule
    from ..catalog.published_numbers import PublishedNumber

REPRODUCED, FASTER, SLOWER = "reproduced", "faster", "slower"
NOT_COMPARABLE, NOT_PUBLISHED = "not comparable", "not published"
METRIC = "samples_per_second"
COLUMNS = (
    *CASE,
    "estimator",
    "by",
    "repeats",
    "mine",
    "mine_low",
    "mine_high",
    "published",
    "published_repeats",
    "ratio",
    "ratio_low",
    "ratio_high",
    "ratio_coverage",
    "verdict",
    "factors",
    "noted",
    "unknown",
    "assumed",
    "declared",
    "report",
    "publication",
    "published_title",
    "published_source",
    "published_date",
    "limit",
    "limit_verdict",
    "why",
)
POINTS = ("value", "speedup", "report", "published_title", "published_date", "factors")


def compare_published(
    frame: pd.DataFrame,
    conditions: Mapping[CaseKey, Values] | None = None,
    numbers: Sequence[PublishedNumber] | None = None,
    rule: ComparisonRule | None = None,
    *,
    every: bool = False,
    assume: bool = False,
    table: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """One row per case of the tidy frame with the nearest published number; with `every`, one row
    for each published number.

    Columns: those of CASE; `mine`, the median of the `repeats` valid runs, with the interval
    mine_low to mine_high; `published`, from published_repeats runs (NaN if not stated);
    the `ratio` of the two with its interval and coverage; the `verdict`; and five texts:

    - `factors`: conditions that must be equal but differ, or are unknown for the user's own runs;
    - `noted`: other conditions that differ;
    - `unknown`: conditions that must be equal but that the publication does not state;
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

    from ..stats.summary import summarize

    numbers, rule = _catalogued(numbers, rule)
    values, others = case_values(frame), _by_estimator(frame)
    rows: list[dict[str, Any]] = []
    table = summarize(frame) if table is None else table
    for case in table.to_dict(orient="records"):
        key = case_key(case)
        own: dict[str, Any] = dict(zip(CASE, key, strict=True))
        mine = {
            **{name: value for name, value in own.items() if name in FACTORS},
            **dict((conditions or {}).get(key, {})),
        }
        usual, runs = case["estimator"], values[key]
        estimates = {by: of for by, of in others[key].items() if len(of) == len(runs)}
        estimates[usual] = runs
        nearest = list(_nearest(own, mine, usual, estimates, numbers, rule, assume))
        if not nearest:
            row = {**own, **_mine(runs, usual, usual)}
            rows.append({**row, "verdict": NOT_PUBLISHED, "factors": _why_none(own, numbers)})
        of_case = [number for number, _ in nearest]
        for number, found in nearest if every else nearest[:1]:
            by = _estimator(number, usual, estimates)
            row = {**own, **_mine(estimates[by], by, usual)}
            row |= _comparison(estimates[by], number, found, rule, assume)
            row["declared"] = _declared(own, number)
            row["publication"] = _name(number, of_case)
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


def published_points(
    table: pd.DataFrame,
    numbers: Sequence[PublishedNumber] | None = None,
) -> pd.DataFrame:
    """The published numbers for the workloads, models, precisions and batch sizes of a table of
    cases, at any topology, for plots. Columns: those four, the topology, `value`, `speedup` (NaN if
    not published) and the publication. `factors` describes the conditions."""
    import pandas as pd

    numbers, _ = _catalogued(numbers, None)
    group = ("workload", "model", "precision", "batch_size_per_device")
    keys = {tuple(case[name] for name in group) for case in table.to_dict(orient="records")}
    rows = [
        {
            **dict(zip(group, _group(number), strict=True)),
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
            "factors": described(number),
        }
        for number in numbers
        if _group(number) in keys
    ]
    topology = ("nodes", "gpus_per_node", "world_size")
    columns = [*group, "framework", *topology, *POINTS, "published_source"]
    return pd.DataFrame(rows, columns=columns)


def described(number: PublishedNumber) -> str:
    """The conditions of a number in one line: `V100-SXM2-32GB, tensorflow 1.15.4, XLA, real
    data`."""
    known = number.conditions
    version = f"{number.framework} {known.framework_version or '(version unknown)'}"
    xla = {True: "XLA", False: "no XLA", None: None}[known.xla]
    data = f"{known.data} data" if known.data else None
    parallel = f"parallel: {known.parallelism}" if known.parallelism else None
    return ", ".join(filter(None, (known.accelerator, version, xla, data, parallel)))


def verdict_of(interval: Interval, tolerance: float) -> str:
    """Reproduced: the whole interval of the ratio is within 1 +- tolerance. Faster or slower: the
    whole interval is outside. An interval that crosses a bound is undecided. So are too few runs,
    however close they are: they have no interval."""
    low, high = interval.low, interval.high
    if low > 1 + tolerance:
        return FASTER
    if high < 1 - tolerance:
        return SLOWER
    return REPRODUCED if low >= 1 - tolerance and high <= 1 + tolerance else UNDECIDED


def ratio_of(values: Sequence[float], number: PublishedNumber) -> tuple[float, Interval]:
    """The median divided by the published number, and its interval. The published number varies
    like its runs, or like the values if its runs were not published."""
    published, repeats = number.samples_per_second, number.conditions.repeats
    interval = published_interval(values, published, number.runs, repeats)
    return median(values) / published, interval


def _catalogued(
    numbers: Sequence[PublishedNumber] | None, rule: ComparisonRule | None
) -> tuple[Sequence[PublishedNumber], ComparisonRule]:
    from ..catalog.published_numbers import load_published, load_rule

    return load_published() if numbers is None else numbers, rule or load_rule()


def _by_estimator(frame: pd.DataFrame) -> dict[CaseKey, dict[str, list[float]]]:
    """The throughput of the valid runs of a tidy frame, by case and estimator."""
    own = frame["metric"] == METRIC
    other = frame["metric"] == METRIC + "_" + frame["estimator"].astype(str)
    valid = frame[frame["valid"] & (own | other) & frame["value"].notna()]
    values: dict[CaseKey, dict[str, list[float]]] = {}
    for row in valid[[*CASE, "estimator", "value"]].to_dict(orient="records"):
        of_case = values.setdefault(case_key(row), {})
        of_case.setdefault(row["estimator"], []).append(float(row["value"]))
    return values


def _estimator(number: PublishedNumber, usual: str, estimates: Collection[str]) -> str:
    """The estimator of a case to compare with the number: that of the number, if every run has
    it."""
    return next((name for name in estimates if name == number.conditions.estimator), usual)


def _mine(values: Sequence[float], by: str, usual: str) -> dict[str, Any]:
    return {
        "estimator": by,
        "by": f"{by}, as published, not by {usual}" if by != usual else None,
        "repeats": len(values),
        "mine": median(values),
        **_bounds("mine", median_interval(values)),
    }


def _group(number: PublishedNumber) -> tuple[Any, ...]:
    model, precision = number.workload_model, number.precision
    return number.workload, model, precision, number.batch_size_per_device


def _of_model(case: Mapping[str, Any], numbers: Sequence[PublishedNumber]) -> list[PublishedNumber]:
    wanted = (case["workload"], case["model"])
    return [number for number in numbers if (number.workload, number.workload_model) == wanted]


def _nearest(
    case: Mapping[str, Any],
    mine: Values,
    usual: str,
    estimates: Collection[str],
    numbers: Sequence[PublishedNumber],
    rule: ComparisonRule,
    assume: bool,
) -> Iterator[tuple[PublishedNumber, list[Difference]]]:
    """The published numbers for the model and topology of the case, the nearest first."""
    topology = Topology(case["nodes"], case["gpus_per_node"])
    found = []
    for number in _of_model(case, numbers):
        if number.topology == topology:
            of_number = published_conditions(number)
            by = {"estimator": _estimator(number, usual, estimates), **mine}
            differing = differences(by, of_number, nodes=topology.nodes)
            needed = _needed(differing, rule)
            if assume:
                needed = [item for item in needed if item.mine is not None]
            batch = math.log(number.batch_size_per_device / case["batch_size_per_device"])
            comparable = all(item.other is None for item in needed)
            nearness = (len(needed), len(differing), abs(batch))
            order = (not comparable, not number.reproduced, *nearness)
            found.append((order, number, differing))
    for _, number, differing in sorted(found, key=lambda item: item[0]):
        yield number, differing


def _name(number: PublishedNumber, others: Sequence[PublishedNumber]) -> str:
    same = [other for other in others if other.report == number.report]
    settings = named_values(number, differing(same))
    return f"{number.report} ({settings})" if settings else number.report


def _why_none(case: Mapping[str, Any], numbers: Sequence[PublishedNumber]) -> str:
    of_model = _of_model(case, numbers)
    if not of_model:
        return f"no number is published for {case['model']} of {case['workload']}"
    topologies = ", ".join(map(str, sorted({number.topology for number in of_model})))
    return f"topology ({case['nodes']}n{case['gpus_per_node']}g; published: {topologies})"


def _comparison(
    values: Sequence[float],
    number: PublishedNumber,
    found: Sequence[Difference],
    rule: ComparisonRule,
    assume: bool,
) -> dict[str, Any]:
    ratio, interval = ratio_of(values, number)
    needed = _needed(found, rule)
    assumed = [item for item in needed if assume and item.mine is None]
    # The user cannot match what a publication does not state: it is listed, but has no effect on
    # the verdict.
    factors = [item for item in needed if item.other is not None and item not in assumed]
    unknown = [item.factor for item in needed if item.other is None]
    repeats = number.conditions.repeats
    return {
        "published": number.samples_per_second,
        "published_repeats": math.nan if repeats is None else float(repeats),
        "ratio": ratio,
        **_bounds("ratio", interval),
        "ratio_coverage": interval.coverage,
        "verdict": NOT_COMPARABLE if factors else verdict_of(interval, rule.tolerance),
        "factors": _text(factors),
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
    from ..catalog.published_numbers import reproduced_reports

    reports = {report.name: report.reproduction for report in reproduced_reports()}
    reproduction = reports.get(number.report) if case["source"] == "upstream" else None
    names = [
        item.item
        for item in (reproduction.differences if reproduction else ())
        if item.kind == "changed" and (case["nodes"] > 1 or not item.between_nodes)
    ]
    return f"{', '.join(names)} (docs/reproducing/{number.report}.md)" if names else None


def _needed(found: Sequence[Difference], rule: ComparisonRule) -> list[Difference]:
    return [item for item in found if item.factor in rule.must_be_equal]


def _bounds(name: str, interval: Interval) -> dict[str, float]:
    return {f"{name}_low": interval.low, f"{name}_high": interval.high}


def _text(found: Sequence[Difference]) -> str | None:
    return ", ".join(map(str, found)) or None
