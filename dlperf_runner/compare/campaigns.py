"""Compare two campaigns case by case: DataFrames in, DataFrame out.

Cases match if their identity is equal (see core/identity.py and pairing.py). Their environment may
differ; a difference is named. docs/comparing.md defines the verdicts and the limit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from statistics import median
from typing import TYPE_CHECKING, Any

from ..core.errors import UserError
from ..core.identity import IDENTITY, CaseKey, label, topology_text
from ..stats.groups import CaseRates, rates_by_case
from ..stats.intervals import SampleComparison, compare_samples
from ..stats.ratios import RelativeDifference, relative_difference
from .outlook import to_decide
from .pairing import Pair, check_names, distinctions, pairs, refuse_unlike, unrecorded_conditions
from .spread import spread_of, widened
from .verdicts import ONLY_A, ONLY_B, against_limit, case_verdict, too_few

if TYPE_CHECKING:
    import pandas as pd

    from ..stats.between_campaigns import Spread

COLUMNS = (
    *(*IDENTITY, "unit", "distinction"),
    *("n_a", "n_b", "a", "b", "difference", "relative", "relative_low", "relative_high"),
    *("coverage", "at_worst", "log_ratio", "log_ratio_error", "log_ratio_freedom"),
    *("p_value", "test", "effect_size", "between_campaigns", "between_campaigns_of"),
    *(
        "verdict",
        "environment",
        "limit",
        "limit_verdict",
        "why",
        "apart",
        "unrecorded",
        "stated_a",
        "stated_b",
    ),
)


def compare_campaigns(
    a: pd.DataFrame,
    b: pd.DataFrame,
    limit: float | None = None,
    allowed: Collection[str] = (),
    spreads: Mapping[CaseKey, Spread] | None = None,
) -> pd.DataFrame:
    """One row per case of either tidy frame, in the order of the frames.

    `a` and `b` are the medians of n_a and n_b valid runs. `difference` is how much b is above a
    (Hodges and Lehmann); `relative` is the same as a fraction of a. Its interval holds together
    with those of all cases, on which the `verdict` rests; `coverage` is that of the interval alone,
    and `at_worst` the lower bound of the case alone. log_ratio, its error and its degrees of
    freedom are for `together`. `p_value` is from the `test` of this case alone. effect_size is
    Cliff's delta. `environment` names the differences in environment, and in what is `allowed` to
    differ. `distinction` tells the case from others of the same identity. `unrecorded` names what
    neither side knows, `stated_a` and `stated_b` what no log of that side confirms. `apart` says
    what keeps a case from the nearest one of the other side. With a `limit` (0.03 for 3 %), see
    `against_limit` for `limit_verdict` and `why`.

    `spreads` are the known spreads between campaigns. They widen the interval, and a difference
    that the wider interval does not show is not called one. `between_campaigns` is the standard
    deviation, a fraction of the throughput, from so many campaigns; missing where it is unknown.

    Raises UserError if a pair has rates of two units, or if a limit is given and the sides differ
    in what a gate needs to be equal.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    compared = []
    all_a, all_b = rates_by_case(a), rates_by_case(b)
    check_names(allowed, (*all_a, *all_b))
    paired = pairs(list(all_a), list(all_b), allowed)
    if limit is not None:
        refuse_unlike(paired, allowed)
    for pair, distinction in zip(paired, distinctions(paired), strict=True):
        sides = {"a": all_a.get(pair.a or ()), "b": all_b.get(pair.b or ())}
        known = {side: rates for side, rates in sides.items() if rates}
        row: dict[str, Any] = {name: pair.case[name] for name in IDENTITY}
        row |= {"unit": _unit(pair, known.values()), "distinction": distinction}
        row |= {f"stated_{side}": rates.stated for side, rates in known.items()}
        row |= {f"n_{side}": len(rates.values) if rates else 0 for side, rates in sides.items()}
        row |= {side: median(rates.values) for side, rates in known.items()}
        rows.append(row)
        if pair.a is None or pair.b is None:
            row.update(verdict=ONLY_A if pair.b is None else ONLY_B, apart=pair.apart)
            continue
        row["environment"] = ", ".join(map(str, pair.differing)) or None
        row["unrecorded"] = ", ".join(map(label, unrecorded_conditions(pair))) or None
        values_a, values_b = all_a[pair.a].values, all_b[pair.b].values
        result = compare_samples(values_a, values_b)
        spread = spread_of(spreads or {}, pair.a, pair.b)
        compared.append((row, result, spread, values_a, values_b))
    cases = sum(not too_few(result) for _, result, *_ in compared) or 1
    for row, result, spread, values_a, values_b in compared:
        found = widened(relative_difference(values_a, values_b, cases), spread, row, cases)
        row.update(_numbers(result, found), verdict=case_verdict(result, found, spread))
        if spread is not None:
            row.update(between_campaigns=spread.between, between_campaigns_of=spread.campaigns)
        if limit is not None:
            row["outlook"] = to_decide(values_a, values_b, limit, cases, spread)
    if limit is not None:
        for row in rows:
            verdict, why = against_limit(row, limit)
            row.update(limit=limit, limit_verdict=verdict, why=why)
    table = pd.DataFrame(
        [{name: row.get(name) for name in COLUMNS} for row in rows], columns=COLUMNS
    )
    return table.astype({"between_campaigns_of": "Int64"})  # may be missing


def _unit(pair: Pair, sides: Iterable[CaseRates]) -> str:
    """The unit of the rates of a pair. Raises UserError if its sides have different ones."""
    units = [side.unit for side in sides]
    if len(set(units)) > 1:
        raise UserError(
            "the two sides count different things, so their rates cannot be compared",
            where=f"{pair.case['workload']} {topology_text(pair.case)}",
            expected=f"{units[0]}, as on the first side",
            found=units[1],
            hint="read both with the same catalogue entry: dlperf --catalog DIR",
        )
    return units[0]


def without_effect(a: pd.DataFrame, b: pd.DataFrame, allowed: Collection[str]) -> list[str]:
    """The names of `allowed` in which no pair of cases of the two frames differs."""
    paired = pairs(list(rates_by_case(a)), list(rates_by_case(b)), allowed)
    differing = [item for pair in paired if pair.a and pair.b for item in pair.differing]
    names = {name for item in differing for name in (item.name, item.column)}
    return [name for name in dict.fromkeys(allowed) if name not in names]


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
