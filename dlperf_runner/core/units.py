"""The units of throughput. A workload counts samples, tokens or, for a bandwidth, gigabytes (`unit`
in its catalogue entry).

Inside the program, the throughput of every workload is the metric `samples_per_second`, and its
statistics are columns with that beginning. Whatever people or other programs read has the name and
the unit of the workload: `tokens_per_second_median`, tokens/s.
"""

from __future__ import annotations

from typing import Literal, cast

from .frame import ENERGY, SAMPLES_PER_SECOND

# Publications also state the speed of arithmetic.
Unit = Literal["samples", "tokens", "GB", "TFLOP"]
SAMPLES: Unit = "samples"
TOKENS: Unit = "tokens"
# Its rate is that of a link, so it does not grow with the number of devices: it has no speed-up.
BANDWIDTH: Unit = "GB"


def per_second(unit: Unit) -> str:
    """The unit of a rate: `tokens/s`."""
    return f"{unit}/s"


def counted_unit(rate: str) -> Unit:
    """The unit that a rate counts: the reverse of `per_second`."""
    return cast(Unit, rate.removesuffix("/s"))


def named(name: str, unit: Unit) -> str:
    """The name of a metric or column in files: `tokens_per_second_median`."""
    name = name.replace(SAMPLES_PER_SECOND, f"{unit}_per_second")
    return name.replace(ENERGY, f"energy_per_{per_one(unit)}")


def per_one(unit: Unit) -> str:
    """The singular of a unit: `token`."""
    return unit.removesuffix("s")
