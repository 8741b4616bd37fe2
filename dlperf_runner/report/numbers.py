"""Numbers as shown: as many decimals as published, and enough significant digits.

Statistics are computed with all digits; only what people read is rounded, here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import cache

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
    from ..catalog.reader import own_workloads

    return {name: workload.rule.round_value_to for name, workload in own_workloads().items()}
