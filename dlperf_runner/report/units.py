"""Rates with the name and the unit of their workload: samples/s or tokens/s (see core.units)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..catalog.reader import own_workloads, unit_of
from ..core.frame import SAMPLES_PER_SECOND, Row
from ..core.units import BANDWIDTH, SAMPLES, TOKENS, named, per_one, per_second


def rate_unit(workload: str | None) -> str:
    """The unit of a workload's rates."""
    return per_second(unit_of(workload))


def energy_unit(workload: str | None) -> str:
    """The unit of a workload's energy: J/token."""
    return f"J/{per_one(unit_of(workload))}"


def is_bandwidth(workload: str | None) -> bool:
    """Whether the rates of a workload do not grow with the number of devices."""
    return unit_of(workload) == BANDWIDTH


def common_unit(workloads: Iterable[str | None]) -> str | None:
    """The unit of all their rates; None if they have several."""
    units = {rate_unit(workload) for workload in workloads}
    return units.pop() if len(units) == 1 else None


def named_record(case: Mapping[str, Any]) -> dict[str, Any]:
    """A case with its rates under the names of its unit, tokens also per device."""
    unit = unit_of(case["workload"])
    if unit == SAMPLES:
        return dict(case)
    record = {named(name, unit): value for name, value in case.items()}
    if unit == TOKENS:
        record[f"{unit}_per_second_per_device"] = per_device(case)
    return record


def per_device(case: Mapping[str, Any]) -> float | None:
    """The tokens/s/device of a case; None for other units, whose reports have no such number."""
    median: float | None = case[f"{SAMPLES_PER_SECOND}_median"]
    if median is None or unit_of(case["workload"]) != TOKENS:
        return None
    return median / int(case["world_size"])


def named_rows(rows: Sequence[Row]) -> list[Row]:
    """Rows of the tidy frame, as `named_record` names their metrics."""
    units = {workload: unit_of(workload) for workload in {row.workload for row in rows}}
    if set(units.values()) <= {SAMPLES}:
        return list(rows)
    return [row._replace(metric=named(row.metric, units[row.workload])) for row in rows]


def step_time(case: Mapping[str, Any], percentile: str) -> float | None:
    """The median or a percentile of a case's step times; None for a workload with a published
    report, whose tables have none."""
    entry = own_workloads().get(case["workload"])
    if entry is not None and entry.published is not None:
        return None
    value: float | None = case.get(f"step_time_{percentile}_s")
    return value


def named_cases(
    cases: Sequence[Mapping[str, Any]], columns: Sequence[str]
) -> tuple[Sequence[str], list[list[Any]]]:
    """The columns and rows of a table of cases. Rates of another unit are missing in a row.
    `columns`: those of a table without cases."""
    records = [named_record(case) for case in cases]
    names = list(dict.fromkeys(name for record in records for name in record)) or columns
    return names, [[record.get(name) for name in names] for record in records]
