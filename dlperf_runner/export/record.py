"""The record for other programs: the cases of campaigns, with numbers whose names say their
unit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple

from ..core.frame import ENERGY, MFU, POWER, Frame
from ..core.identity import CASE, case_key
from ..core.lists import grouped
from ..core.units import counted_unit, named
from ..history.store import Point, case_id
from ..stats.groups import rates_by_case

# The name of a rate, and what it is a multiple of.
_RATES = {
    "samples": ("samples_per_second", 1.0),
    "tokens": ("tokens_per_second", 1.0),
    "GB": ("bytes_per_second", 1e9),
    "TFLOP": ("flops_per_second", 1e12),
}


class Quantity(NamedTuple):
    """A column of the statistics as other programs have it. The unit of a rate is None: it is that
    of the case."""

    column: str
    name: str
    unit: str | None
    factor: float
    text: str


THROUGHPUT = "throughput"
QUANTITIES = (
    Quantity("samples_per_second_median", THROUGHPUT, None, 1, "Median of the valid runs."),
    Quantity("samples_per_second_ci_low", "throughput_low", None, 1, "Low end of its interval."),
    Quantity("samples_per_second_ci_high", "throughput_high", None, 1, "High end of its interval."),
    Quantity("repeats", "valid_runs", "", 1, "Number of valid runs."),
    Quantity("speedup", "speedup", "ratio", 1, "Throughput, divided by that of the base case."),
    Quantity("scaling_efficiency", "scaling_efficiency", "ratio", 1, "Speed-up per device."),
    Quantity("step_time_median_s", "step_time_median", "seconds", 1, "Median step time."),
    Quantity("step_time_p95_s", "step_time_p95", "seconds", 1, "95th percentile of step times."),
    Quantity("step_time_p99_s", "step_time_p99", "seconds", 1, "99th percentile of step times."),
    Quantity("gpu_memory_mib", "gpu_memory_peak", "bytes", 2**20, "Largest peak of a device."),
    Quantity(MFU, "model_flops_utilization", "ratio", 1, "Share of the peak FLOP/s."),
    Quantity(f"{ENERGY}_j", ENERGY, "joules", 1, "Mean power over throughput."),
    Quantity(f"{POWER}_w", POWER, "watts", 1, "Mean power of the GPUs, or else of the processors."),
)


class Number(NamedTuple):
    """A value, its unit (the end of its name, or empty) and what it is."""

    value: float
    unit: str
    text: str


@dataclass(frozen=True)
class ExportedCase:
    """A case of a campaign. `labels`: what ran, and on what; what is unknown has none. `numbers` by
    name. `rate`: the unit of throughput. `runs`: the throughput of each valid run."""

    name: str
    labels: Mapping[str, str]
    numbers: Mapping[str, Number]
    rate: str
    runs: Sequence[float] = ()


@dataclass(frozen=True)
class ExportedCampaign:
    """A campaign. `place`: the directory or history that it is from. In one place, cases with equal
    labels are the same case at several times. `states`: the number of runs by state, if they are
    known."""

    name: str
    created: datetime
    cases: Sequence[ExportedCase]
    place: str
    tags: Sequence[str] = ()
    notes: str | None = None
    states: Mapping[str, int] = field(default_factory=dict)


def identifier(campaign: ExportedCampaign, case: ExportedCase) -> str:
    """The same for a case of a campaign each time that it is exported."""
    text = json.dumps([campaign.name, campaign.created.isoformat(), {**case.labels}])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def exported_cases(cases: Iterable[Mapping[str, Any]], frame: Frame) -> list[ExportedCase]:
    """Cases of the statistics, with the values of their runs."""
    rates = rates_by_case(frame)
    return [_case(case_id(case), case, rates[case_key(case)].values) for case in cases]


def of_history(points: Iterable[Point], place: str) -> list[ExportedCampaign]:
    """The campaigns of a history, the oldest first."""
    campaigns = grouped(points, itemgetter("created", "campaign"))
    return [
        ExportedCampaign(
            name, datetime.fromisoformat(created), [_case(p["case_id"], p) for p in of_one], place
        )
        for (created, name), of_one in sorted(campaigns.items())
    ]


def _case(name: str, case: Mapping[str, Any], runs: Sequence[float] = ()) -> ExportedCase:
    counted = counted_unit(case["unit"])
    rate, factor = _RATES[counted]
    numbers = {}
    for quantity in QUANTITIES:
        if (value := case.get(quantity.column)) is not None:
            unit = rate if quantity.unit is None else quantity.unit
            scaled = value * (factor if quantity.unit is None else quantity.factor)
            key = named(f"{quantity.name}_{unit}" if unit else quantity.name, counted)
            numbers[key] = Number(scaled, unit, quantity.text)
    labels = {column: str(case[column]) for column in CASE if case[column] not in (None, "")}
    return ExportedCase(name, labels, numbers, rate, [value * factor for value in runs])
