"""Compare two campaigns case by case: DataFrames in, DataFrame out.

Cases match if their identity is equal (see core/identity.py and pairing.py). Their environment may
differ; a difference is named. docs/comparing.md defines the verdicts and the limit.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from ..core.identity import IDENTITY, label
from ..stats.intervals import Interval, SampleComparison, compare_samples
from .conditions import UNDECIDED, limit_verdict
from .pairing import check_names, pairs, refuse_unlike, unrecorded
from .with_published import case_values

if TYPE_CHECKING:
    import pandas as pd

FASTER, SLOWER, NO_DIFFERENCE = "faster", "slower", "no difference shown"
PERHAPS_FASTER, PERHAPS_SLOWER, TOO_FEW = "perhaps faster", "perhaps slower", "too few runs"
ONLY_A, ONLY_B = "only in the first", "only in the second"
SIGNIFICANCE = 0.05
COLUMNS = (
    *IDENTITY,
    *("n_a", "n_b", "a", "b", "difference", "relative", "relative_low", "relative_high"),
    *("coverage", "p_value", "p_adjusted", "test", "effect_size"),
    *("verdict", "environment", "limit", "limit_verdict", "why", "apart", "unrecorded"),
)


def compare_campaigns(
    a: pd.DataFrame,
    b: pd.DataFrame,
    limit: float | None = None,
    allowed: Collection[str] = (),
) -> pd.DataFrame:
    """One row per case of either tidy frame, in the order of the frames.

    `a` and `b` are the medians of n_a and n_b valid runs. `difference` is how much b is above a
    (Hodges and Lehmann); `relative` is the same as a fraction of a, with its interval and the
    coverage of that. `p_value` is from the `test`, p_adjusted has Holm's adjustment over all cases.
    effect_size is Cliff's delta. `environment` names the differences in environment, and in what is
    `allowed` to differ. `unrecorded` names what neither side knows. `apart` says what keeps a case
    from the nearest one of the other side. With a `limit` (0.03 for 3 %), `limit_verdict` is failed
    if the whole interval is below -limit, passed if the whole interval is above it, else undecided
    with the reason `why`.

    Raises UserError if a limit is given and the sides differ in what a gate needs to be equal.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    compared: list[tuple[dict[str, Any], SampleComparison]] = []
    all_a, all_b = case_values(a), case_values(b)
    check_names(allowed, (*all_a, *all_b))
    found = pairs(list(all_a), list(all_b), allowed)
    if limit is not None:
        refuse_unlike(found, allowed)
    for pair in found:
        values_a, values_b = all_a.get(pair.a or (), []), all_b.get(pair.b or (), [])
        row = {name: pair.case[name] for name in IDENTITY}
        rows.append(row)
        row.update(n_a=len(values_a), n_b=len(values_b))
        row.update({s: median(v) for s, v in (("a", values_a), ("b", values_b)) if v})
        if pair.a is None or pair.b is None:
            row.update(verdict=ONLY_A if pair.b is None else ONLY_B, apart=pair.apart)
            continue
        row["environment"] = ", ".join(map(str, pair.differing)) or None
        row["unrecorded"] = ", ".join(map(label, unrecorded(pair))) or None
        result = compare_samples(values_a, values_b)
        compared.append((row, result))
        row.update(_numbers(result, row["a"]))
    adjusted = holm([result.p_value for _, result in compared])
    for (row, result), p_adjusted in zip(compared, adjusted, strict=True):
        row.update(p_adjusted=p_adjusted, verdict=_verdict(result, p_adjusted))
    if limit is not None:
        for row in rows:
            verdict, why = _against_limit(row, limit)
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


def _numbers(result: SampleComparison, base: float) -> dict[str, Any]:
    interval = result.interval if base > 0 else Interval(math.nan, math.nan, math.nan)
    return {
        "difference": result.difference,
        "relative": result.relative,
        "relative_low": interval.low / base if base > 0 else math.nan,
        "relative_high": interval.high / base if base > 0 else math.nan,
        "coverage": interval.coverage,
        "p_value": result.p_value,
        "test": result.test,
        "effect_size": result.effect_size,
    }


def _verdict(result: SampleComparison, p_adjusted: float) -> str:
    """Faster or slower: significant after Holm's adjustment. Perhaps: significant only for the case
    by itself, which may be chance among many cases."""
    if result.least_p_value >= SIGNIFICANCE:
        return TOO_FEW
    if result.p_value >= SIGNIFICANCE:
        return NO_DIFFERENCE
    if p_adjusted < SIGNIFICANCE:
        return FASTER if result.effect_size > 0 else SLOWER
    return PERHAPS_FASTER if result.effect_size > 0 else PERHAPS_SLOWER


def _against_limit(row: Mapping[str, Any], limit: float) -> tuple[str | None, str | None]:
    if row["verdict"] == ONLY_B:
        return None, None  # a new case has no counterpart
    if row["verdict"] == ONLY_A:
        return UNDECIDED, "it was not measured again"
    low, high = row["relative_low"], row["relative_high"]
    found = limit_verdict(low, high, limit)
    if found != UNDECIDED:
        return found, None
    if math.isnan(low):
        return UNDECIDED, f"{row['n_a']} and {row['n_b']} runs give no interval; more are needed"
    return UNDECIDED, f"the interval crosses {-limit or 0:.1%}; more runs make it narrower"
