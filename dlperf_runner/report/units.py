"""Rates with the name and the unit that their runs had: samples/s or tokens/s (see core.units). A
case has it in its column `unit`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..catalog.reader import own_workloads
from ..core.frame import SAMPLES_PER_SECOND
from ..core.units import BANDWIDTH, SAMPLES, TOKENS, Unit, counted_unit, named, per_one, per_second

if TYPE_CHECKING:
    import pandas as pd


def energy_unit(case: Mapping[str, Any]) -> str:
    """The unit of a case's energy: J/token."""
    return f"J/{per_one(counted_unit(case['unit']))}"


def is_bandwidth(case: Mapping[str, Any]) -> bool:
    """True if the rate of a case does not grow with the number of devices."""
    return bool(case["unit"] == per_second(BANDWIDTH))


def common_unit(units: Iterable[str]) -> str | None:
    """The unit that all of them are; None if there are several."""
    several = set(units)
    return several.pop() if len(several) == 1 else None


def named_record(case: Mapping[str, Any]) -> dict[str, Any]:
    """A case with its rates under the names of its unit, tokens also per device."""
    unit = counted_unit(case["unit"])
    if unit == SAMPLES:
        return dict(case)
    record = {named(name, unit): value for name, value in case.items()}
    if unit == TOKENS:
        record[f"{unit}_per_second_per_device"] = per_device(case)
    return record


def per_device(case: Mapping[str, Any]) -> float | None:
    """The tokens/s/device of a case; None for other units, whose reports have no such number."""
    median: float | None = case[f"{SAMPLES_PER_SECOND}_median"]
    if median is None or case["unit"] != per_second(TOKENS):
        return None
    return median / int(case["world_size"])


def with_named_metrics(frame: pd.DataFrame) -> pd.DataFrame:
    """The long frame, as `named_record` names its metrics: each by its own unit."""
    names = {
        (metric, unit): named(metric, _counted_in(unit))
        for metric, unit in frame[["metric", "unit"]].drop_duplicates().itertuples(index=False)
    }
    pairs = zip(frame["metric"], frame["unit"], strict=True)
    return frame.assign(metric=[*map(names.__getitem__, pairs)])


def _counted_in(unit: str) -> Unit:
    """The unit that a rate or an energy counts: of tokens/s and of J/token, tokens."""
    return counted_unit(f"{unit.removeprefix('J/')}s" if unit.startswith("J/") else unit)


def step_time(case: Mapping[str, Any], percentile: str) -> float | None:
    """The median or a percentile of a case's step times; None for a workload with a published
    report, whose tables have none."""
    entry = own_workloads().get(case["workload"])
    if entry is not None and entry.published is not None:
        return None
    value: float | None = case.get(f"step_time_{percentile}_s")
    return value
