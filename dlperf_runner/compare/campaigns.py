"""Compare two campaigns case by case: DataFrames in, DataFrame out.

Cases match if workload, model, source, precision, batch size and topology are equal. Their
ENVIRONMENT may differ; a difference is named. docs/comparing.md defines the verdicts and the limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from ..stats.intervals import SampleComparison, compare_samples
from ..stats.ratios import RelativeDifference, relative_difference
from ..stats.summary import CASE
from .conditions import CaseKey, Difference, shown
from .verdicts import ONLY_A, ONLY_B, against_limit, case_verdict, too_few
from .with_published import case_values

if TYPE_CHECKING:
    import pandas as pd

# The columns that may differ between the two sides of a comparison; all others of CASE must match.
ENVIRONMENT = ("framework_version", "accelerator", "driver", "stack", "container")
IDENTITY = tuple(name for name in CASE if name not in ENVIRONMENT)
COLUMNS = (
    *IDENTITY,
    *("n_a", "n_b", "a", "b", "difference", "relative", "relative_low", "relative_high"),
    *("coverage", "at_worst", "log_ratio", "log_ratio_error", "log_ratio_freedom"),
    *("p_value", "p_adjusted", "test", "effect_size"),
    *("verdict", "environment", "limit", "limit_verdict", "why"),
)


def compare_campaigns(a: pd.DataFrame, b: pd.DataFrame, limit: float | None = None) -> pd.DataFrame:
    """One row per case of either tidy frame, in the order of the frames.

    `a` and `b` are the medians of n_a and n_b valid runs. `difference` is how much b is above a
    (Hodges and Lehmann); `relative` is the same as a fraction of a. Its interval holds together
    with those of all cases, on which the `verdict` rests; `coverage` is that of the interval alone,
    and `at_worst` the lower bound of the case alone. log_ratio, its error and its degrees of
    freedom are for `together`. `p_value` is from the `test`, p_adjusted has Holm's adjustment over
    all cases. effect_size is Cliff's delta. `environment` names the differences in environment, if
    any. With a `limit` (0.03 for 3 %), see `against_limit` for `limit_verdict` and `why`.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    compared: list[tuple[dict[str, Any], SampleComparison, list[float], list[float]]] = []
    for key_a, values_a, key_b, values_b in _pairs(case_values(a), case_values(b)):
        row = dict(zip(CASE, key_a or key_b or (), strict=True))
        row = {name: row[name] for name in IDENTITY}
        rows.append(row)
        row.update(n_a=len(values_a), n_b=len(values_b))
        row.update({s: median(v) for s, v in (("a", values_a), ("b", values_b)) if v})
        if key_a is None or key_b is None:
            row["verdict"] = ONLY_A if key_b is None else ONLY_B
            continue
        row["environment"] = _environment(key_a, key_b)
        result = compare_samples(values_a, values_b)
        compared.append((row, result, values_a, values_b))
    cases = sum(not too_few(result) for _, result, *_ in compared) or 1
    adjusted = holm([result.p_value for _, result, *_ in compared])
    for (row, result, values_a, values_b), p_adjusted in zip(compared, adjusted, strict=True):
        found = relative_difference(values_a, values_b, cases)
        row.update(_numbers(result, found), p_adjusted=p_adjusted)
        row["verdict"] = case_verdict(result, found)
    if limit is not None:
        for row in rows:
            verdict, why = against_limit(row, limit)
            row.update(limit=limit, limit_verdict=verdict, why=why)
    return pd.DataFrame(
        [{name: row.get(name) for name in COLUMNS} for row in rows], columns=COLUMNS
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for n comparisons (Holm 1979): the smallest is multiplied by n, the next by
    n - 1 and so on; none is below the previous one or above 1."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def _pairs(
    a: Mapping[CaseKey, list[float]], b: Mapping[CaseKey, list[float]]
) -> Iterator[tuple[CaseKey | None, list[float], CaseKey | None, list[float]]]:
    """The cases of both sides, each with its partner if it has one: the case in the same
    environment, else the only remaining case with the same identity."""
    left: dict[CaseKey, list[CaseKey]] = {}
    for key in b:
        if key not in a:
            left.setdefault(_identity(key), []).append(key)
    alone = [_identity(key) for key in a if key not in b]
    taken: set[CaseKey] = set()
    for key, values in a.items():
        others = left.get(_identity(key), [])
        if key in b:
            partner = key
        elif len(others) == 1 and alone.count(_identity(key)) == 1:
            partner = others[0]
        else:
            yield key, values, None, []
            continue
        taken.add(partner)
        yield key, values, partner, b[partner]
    for key, values in b.items():
        if key not in taken:
            yield None, [], key, values


def _identity(key: CaseKey) -> CaseKey:
    return tuple(value for name, value in zip(CASE, key, strict=True) if name in IDENTITY)


def _environment(a: CaseKey, b: CaseKey) -> str | None:
    first, second = dict(zip(CASE, a, strict=True)), dict(zip(CASE, b, strict=True))
    differing = [
        Difference(name, shown(first[name]), shown(second[name]) or "unknown")
        for name in ENVIRONMENT
        if first[name] != second[name]
    ]
    return ", ".join(map(str, differing)) or None


def _numbers(result: SampleComparison, found: RelativeDifference) -> dict[str, Any]:
    return {
        "difference": result.difference,
        "relative": found.relative,
        "relative_low": found.interval.low,
        "relative_high": found.interval.high,
        "coverage": found.interval.coverage,
        "at_worst": found.at_worst,
        "log_ratio": found.log_ratio.value,
        "log_ratio_error": found.log_ratio.error,
        "log_ratio_freedom": found.log_ratio.freedom,
        "p_value": result.p_value,
        "test": result.test,
        "effect_size": result.effect_size,
    }
