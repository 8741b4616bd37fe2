"""Measured speeds beside published ones: DataFrames in, DataFrame out; of files it reads
the catalogue alone.

The rule of the verdict is in catalog/published/rule.yml and docs/comparing.md. Of the
publications of a case the nearest is taken: one that it can be compared with before others, then
the report that the workload reproduces, then the one that differs in the fewest conditions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.case import Topology
from ..stats.intervals import UNKNOWN, Interval, median_interval, ratio_interval
from ..stats.summary import CASE
from .conditions import (
    FACTORS,
    UNDECIDED,
    CaseKey,
    Difference,
    Values,
    case_key,
    differences,
    label,
    limit_verdict,
    published_conditions,
)

if TYPE_CHECKING:
    import pandas as pd

    from ..catalog.publication import ComparisonRule
    from ..catalog.published_numbers import PublishedNumber

REPRODUCED, FASTER, SLOWER = "reproduced", "faster", "slower"
NOT_COMPARABLE, NOT_PUBLISHED = "not comparable", "not published"
VERDICTS = (REPRODUCED, FASTER, SLOWER, UNDECIDED, NOT_COMPARABLE, NOT_PUBLISHED)
METRIC = "samples_per_second"
COLUMNS = (
    *CASE,
    "estimator",
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
    "report",
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
    """One row per case of the tidy frame beside the nearest published number; beside each of
    them with `every`.

    Columns: those of CASE, `mine` (the median of the valid runs, of which there are `repeats`)
    with the interval mine_low to mine_high, `published` (of published_repeats runs, NaN where
    that is not stated), `ratio` of the two with its interval and the interval's coverage, the
    `verdict`, and as text: `factors`, what had to be equal and is not, or is not known of one's own
    runs; `noted`, other conditions that differ; `unknown`, what had to be equal and the publication
    does not state; `assumed`, what is not known of one's own runs and was taken as published, which
    is done with `assume` only. Numbers that there are not are NaN, texts None. `conditions` are by
    case_key; what is missing there is unknown. `table` is what stats makes of the frame, where
    that is there already.
    """
    import pandas as pd

    from ..stats.summary import summarize

    numbers, rule = _catalogued(numbers, rule)
    values = case_values(frame)
    rows: list[dict[str, Any]] = []
    table = summarize(frame) if table is None else table
    for case in table.to_dict(orient="records"):
        key = case_key(case)
        own: dict[str, Any] = dict(zip(CASE, key, strict=True))
        mine = {
            **{name: value for name, value in own.items() if name in FACTORS},
            "accelerator": None,  # gpu is no product
            "estimator": case["estimator"],
            **dict((conditions or {}).get(key, {})),
        }
        own |= {
            "estimator": case["estimator"],
            "repeats": len(values[key]),
            "mine": case[f"{METRIC}_median"],
            **_bounds("mine", median_interval(values[key])),
        }
        nearest = list(_nearest(own, mine, numbers, rule, assume))
        if not nearest:
            rows.append({**own, "verdict": NOT_PUBLISHED, "factors": _why_none(own, numbers)})
        for number, found in nearest if every else nearest[:1]:
            rows.append({**own, **_beside(own, values[key], number, found, rule, assume)})
    return pd.DataFrame(
        [{name: row.get(name) for name in COLUMNS} for row in rows], columns=COLUMNS
    )


def with_limit(table: pd.DataFrame, limit: float) -> pd.DataFrame:
    """The comparison with a verdict on a limit (0.03 for 3 %): failed where all of the ratio's
    interval is below 1 - limit, passed where all of it is above, else undecided with the reason
    `why`; none where nothing is published."""
    import pandas as pd

    verdicts: list[tuple[str | None, str | None]] = []
    for case in table.to_dict(orient="records"):
        low, high = case["ratio_low"] - 1, case["ratio_high"] - 1
        verdict: str | None = limit_verdict(low, high, limit)
        why = None
        if case["verdict"] == NOT_PUBLISHED:
            verdict = None
        elif case["verdict"] == NOT_COMPARABLE:
            verdict, why = UNDECIDED, "it is not comparable with what was published"
        elif math.isnan(low):
            why = f"{case['repeats']} run has no interval; make more"
        elif verdict == UNDECIDED:
            why = f"the interval reaches over {-limit or 0:.1%}; more runs make it narrower"
        verdicts.append((verdict, why))
    texts = pd.DataFrame(
        verdicts, columns=["limit_verdict", "why"], index=table.index, dtype=object
    )
    return table.assign(limit=limit, limit_verdict=texts["limit_verdict"], why=texts["why"])


def published_points(
    table: pd.DataFrame,
    numbers: Sequence[PublishedNumber] | None = None,
) -> pd.DataFrame:
    """What was published of the workloads, models, precisions and batch sizes of a table of
    cases, at any topology, for plots: their columns, topology, `value`, `speedup` (NaN where
    none was published) and where it stands. `factors` is what it was measured with."""
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
    """The conditions of a number in a line: `V100-SXM2-32GB, tensorflow 1.15.4, XLA, real data`."""
    known = number.conditions
    version = f"{number.framework} {known.framework_version or '(version unknown)'}"
    xla = {True: "XLA", False: "no XLA", None: None}[known.xla]
    data = f"{known.data} data" if known.data else None
    parallel = f"parallel: {known.parallelism}" if known.parallelism else None
    return ", ".join(filter(None, (known.accelerator, version, xla, data, parallel)))


def verdict_of(ratio: float, interval: Interval, tolerance: float) -> str:
    """Reproduced: all of the interval of the ratio is within 1 +- tolerance; faster or slower: all
    of it is beyond. An interval that reaches over a limit decides nothing. A ratio that has no
    interval, of one run, is taken as it is."""
    low, high = interval.low, interval.high
    if math.isnan(low) or math.isnan(high):
        low = high = ratio
    if low > 1 + tolerance:
        return FASTER
    if high < 1 - tolerance:
        return SLOWER
    return REPRODUCED if low >= 1 - tolerance and high <= 1 + tolerance else UNDECIDED


def ratio_of(
    values: Sequence[float], median: float, number: PublishedNumber
) -> tuple[float, Interval]:
    """The median over the published number, and the interval of that: by resampling both where
    single runs were published, else that of the median alone over a number taken as exact."""
    ratio = median / number.samples_per_second
    if len(number.runs) > 1:
        return ratio, ratio_interval(values, number.runs)
    of_median = median_interval(values)
    if of_median == UNKNOWN or math.isnan(of_median.low):
        return ratio, UNKNOWN
    low, high = (bound / number.samples_per_second for bound in (of_median.low, of_median.high))
    return ratio, Interval(low, high, of_median.coverage)


def _catalogued(
    numbers: Sequence[PublishedNumber] | None, rule: ComparisonRule | None
) -> tuple[Sequence[PublishedNumber], ComparisonRule]:
    from ..catalog.published_numbers import load_published, load_rule

    return load_published() if numbers is None else numbers, rule or load_rule()


def case_values(frame: pd.DataFrame) -> dict[CaseKey, list[float]]:
    """The speeds of the valid runs of each case of a tidy frame."""
    valid = frame[frame["valid"] & (frame["metric"] == METRIC) & frame["value"].notna()]
    values: dict[CaseKey, list[float]] = {}
    for row in valid[[*CASE, "value"]].to_dict(orient="records"):
        values.setdefault(case_key(row), []).append(float(row["value"]))
    return values


def _group(number: PublishedNumber) -> tuple[Any, ...]:
    model, precision = number.workload_model, number.precision
    return number.workload, model, precision, number.batch_size_per_device


def _of_model(case: Mapping[str, Any], numbers: Sequence[PublishedNumber]) -> list[PublishedNumber]:
    wanted = (case["workload"], case["model"])
    return [number for number in numbers if (number.workload, number.workload_model) == wanted]


def _nearest(
    case: Mapping[str, Any],
    mine: Values,
    numbers: Sequence[PublishedNumber],
    rule: ComparisonRule,
    assume: bool,
) -> Iterator[tuple[PublishedNumber, list[Difference]]]:
    """What was published of the case's model on its topology, the nearest first."""
    topology = Topology(case["nodes"], case["gpus_per_node"])
    found = []
    for number in _of_model(case, numbers):
        if number.topology == topology:
            of_number = published_conditions(number)
            differing = differences(mine, of_number, nodes=topology.nodes)
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


def _why_none(case: Mapping[str, Any], numbers: Sequence[PublishedNumber]) -> str:
    of_model = _of_model(case, numbers)
    if not of_model:
        return f"nothing is published of {case['model']} of {case['workload']}"
    topologies = ", ".join(map(str, sorted({number.topology for number in of_model})))
    return f"topology ({case['nodes']}n{case['gpus_per_node']}g; published: {topologies})"


def _beside(
    case: Mapping[str, Any],
    values: Sequence[float],
    number: PublishedNumber,
    found: Sequence[Difference],
    rule: ComparisonRule,
    assume: bool,
) -> dict[str, Any]:
    ratio, interval = ratio_of(values, case["mine"], number)
    needed = _needed(found, rule)
    assumed = [item for item in needed if assume and item.mine is None]
    # What a publication does not say nobody can make equal: it is told, and decides nothing.
    factors = [item for item in needed if item.other is not None and item not in assumed]
    unknown = [item.factor for item in needed if item.other is None]
    repeats = number.conditions.repeats
    return {
        "published": number.samples_per_second,
        "published_repeats": math.nan if repeats is None else float(repeats),
        "ratio": ratio,
        **_bounds("ratio", interval),
        "ratio_coverage": interval.coverage,
        "verdict": NOT_COMPARABLE if factors else verdict_of(ratio, interval, rule.tolerance),
        "factors": _text(factors),
        "noted": _text([item for item in found if item not in needed]),
        "unknown": ", ".join(map(label, unknown)) or None,
        "assumed": ", ".join(f"{label(item.factor)} {item.other}" for item in assumed) or None,
        "report": number.report,
        "published_title": number.title,
        "published_source": number.source,
        "published_date": number.date,
    }


def _needed(found: Sequence[Difference], rule: ComparisonRule) -> list[Difference]:
    return [item for item in found if item.factor in rule.must_be_equal]


def _bounds(name: str, interval: Interval) -> dict[str, float]:
    return {f"{name}_low": interval.low, f"{name}_high": interval.high}


def _text(found: Sequence[Difference]) -> str | None:
    return ", ".join(map(str, found)) or None
