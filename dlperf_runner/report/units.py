"""Rates with the name and the unit of their workload: samples/s or tokens/s (see core.units)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..catalog.reader import unit_of
from ..core.frame import SAMPLES_PER_SECOND
from ..core.units import SAMPLES, named, per_second

if TYPE_CHECKING:
    import pandas as pd


def rate_unit(workload: str | None) -> str:
    """The unit of a workload's rates."""
    return per_second(unit_of(workload))


def common_unit(workloads: Iterable[str | None]) -> str | None:
    """The unit of all their rates; None if they have several."""
    units = {rate_unit(workload) for workload in workloads}
    return units.pop() if len(units) == 1 else None


def named_record(case: Mapping[str, Any]) -> dict[str, Any]:
    """A case with its rates under the names of its unit, tokens also per device."""
    unit = unit_of(case["workload"])
    record = {named(name, unit): value for name, value in case.items()}
    return record if unit == SAMPLES else record | {_column(unit): per_device(case)}


def per_device(case: Mapping[str, Any]) -> float | None:
    """The tokens/s/device of a case; None for samples, whose reports have no such number."""
    median: float | None = case[f"{SAMPLES_PER_SECOND}_median"]
    if median is None or unit_of(case["workload"]) == SAMPLES:
        return None
    return median / int(case["world_size"])


def named_table(table: pd.DataFrame) -> pd.DataFrame:
    """A table of cases or a tidy frame, as `named_record` names its rows. Rates of another unit
    are missing in a row."""
    of_workload = {workload: unit_of(workload) for workload in table["workload"].unique()}
    others = sorted({*of_workload.values()} - {SAMPLES})
    if not others:
        return table
    units = table["workload"].map(of_workload)
    if "metric" in table:
        metrics = zip(table["metric"], units, strict=True)
        return table.assign(metric=[named(metric, unit) for metric, unit in metrics])
    rates = [str(name) for name in table if str(name).startswith(SAMPLES_PER_SECOND)]
    for unit in others:
        of = units == unit
        for name in rates:
            table = table.assign(**{named(name, unit): table[name].where(of)})
        medians = table[named(f"{SAMPLES_PER_SECOND}_median", unit)]
        table = table.assign(**{_column(unit): medians / table["world_size"]})
    if SAMPLES not in of_workload.values():
        return table.drop(columns=rates)
    return table.assign(**{name: table[name].where(units == SAMPLES) for name in rates})


def _column(unit: str) -> str:
    return f"{unit}_per_second_per_device"
