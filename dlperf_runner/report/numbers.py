"""Numbers as shown: as many decimals as published, enough significant digits, and rates with the
name and the unit that their runs had (see core.units). A case has it in its column `unit`.

Statistics are computed with all digits; only what people read is rounded, here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import cache
from typing import Any

from ..catalog.reader import own_workloads
from ..core.frame import SAMPLES_PER_SECOND, Frame
from ..core.units import BANDWIDTH, SAMPLES, TOKENS, counted_unit, named, per_one, per_second

PUBLISHED = 2  # decimals of rates and speed-ups in the published tables
SIGNIFICANT = 3  # digits of the smallest rate of a table
_MOST = 12


def decimals(
    values: Iterable[float | None], least: int = PUBLISHED, significant: int = SIGNIFICANT
) -> int:
    """The decimals for a column of values: `least`, or more if the smallest one would have fewer
    significant digits. 384.19 and 0.155, not 0.15. Zero and missing values do not count."""
    sizes = [abs(v) for v in values if v is not None and math.isfinite(v) and v]
    if not sizes:
        return least
    return min(_MOST, max(least, significant - 1 - math.floor(math.log10(min(sizes)))))


def rate_decimals(workload: str, values: Iterable[float | None]) -> int:
    """The decimals for rates of a workload: those of its published rule, or more if needed."""
    return decimals(values, max(PUBLISHED, _published().get(workload, PUBLISHED)))


def exact_decimals(values: Iterable[float]) -> int:
    """The most decimals that one of the values has, at least 2: for numbers as published."""
    exponents = (Decimal(repr(float(value))).normalize().as_tuple().exponent for value in values)
    return max([PUBLISHED, *(-number for number in exponents if isinstance(number, int))])


def as_published(value: float) -> str:
    """A number with all its decimals: 12,671.90."""
    return f"{value:,.{exact_decimals([value])}f}"


def _rounded(least: int, significant: int) -> Callable[[float], str]:
    """A form with at least so many decimals, and more if a value has too few significant digits."""
    return lambda value: f"{value:.{decimals([value], least, significant)}f}"


speedup = _rounded(PUBLISHED, 2)  # as published: 24.94, but 0.0041
tflops = _rounded(1, 2)  # model TFLOP/s: 333.7, but 0.0021
joules = _rounded(0, 3)  # the energy of a sample: 0.731, 12.4
seconds = _rounded(3, 3)  # a step time: 1.042, but 0.00312
ratio = _rounded(3, 3)  # to a published number: 1.003


def percent(value: float) -> str:
    """A relative difference: -7.0%, but -0.04%."""
    places = decimals([100 * value], 1, 1)
    return f"{value:+.{min(places, 3)}%}"


@cache
def _published() -> dict[str, int]:
    return {name: workload.rule.round_value_to for name, workload in own_workloads().items()}


# ---- units


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


def with_named_metrics(frame: Frame) -> Frame:
    """The long frame, as `named_record` names its metrics: each by its own unit."""
    names = {}
    for metric, unit in frame[["metric", "unit"]].drop_duplicates().itertuples(index=False):
        # Of tokens/s and of J/token, tokens.
        rate = f"{unit.removeprefix('J/')}s" if unit.startswith("J/") else unit
        names[metric, unit] = named(metric, counted_unit(rate))
    pairs = zip(frame["metric"], frame["unit"], strict=True)
    return frame.assign(metric=[*map(names.__getitem__, pairs)])


def step_time(case: Mapping[str, Any], percentile: str) -> float | None:
    """The median or a percentile of a case's step times; None for a workload with a published
    report, whose tables have none."""
    entry = own_workloads().get(case["workload"])
    if entry is not None and entry.published is not None:
        return None
    value: float | None = case.get(f"step_time_{percentile}_s")
    return value
