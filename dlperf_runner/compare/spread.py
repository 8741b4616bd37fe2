"""The spread between campaigns of the same thing: measured by `aa`, kept in a file, and used when
two campaigns are compared.

results/aa.json   for each case, in its environment: the campaigns and their variance components
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StrictFloat, StrictInt, StrictStr

from ..campaign.directory import RESULTS
from ..catalog.entry import validated
from ..catalog.types import Count, CountOrNone, Entry
from ..core.errors import UserError
from ..core.files import read_json, write_json
from ..core.frame import Frame
from ..core.identity import CaseKey, case_key, columns_of
from ..stats.between_campaigns import (
    LEAST_CAMPAIGNS,
    Spread,
    difference_error,
    difference_half_width,
    estimate,
)
from ..stats.groups import rates_by_case
from ..stats.intervals import LEVEL, ConfidenceInterval
from ..stats.ratios import RelativeDifference, finite_exp

SPREADS = RESULTS / "aa.json"
VERSION = 1
_TEXT = StrictStr | None
_Variance = Annotated[StrictFloat | StrictInt, Field(ge=0, allow_inf_nan=False)]


class RecordedCase(Entry):
    """The columns of a case in a file; None is unknown."""

    framework: StrictStr
    framework_version: _TEXT
    workload: StrictStr
    model: StrictStr
    source: _TEXT
    parameters: _TEXT
    precision: StrictStr
    batch_size_per_device: Annotated[
        StrictInt | StrictFloat | None, Field(gt=0, lt=1e12, allow_inf_nan=False)
    ]
    total_steps: Count | None
    warmup_steps: CountOrNone | None
    directory: _TEXT
    nodes: Count
    gpus_per_node: Count
    world_size: Count
    nvlink_domains: Count | None
    accelerator: _TEXT
    node_gpus: _TEXT
    driver: _TEXT
    stack: _TEXT
    container: _TEXT


class SpreadEntry(Entry):
    """The spread of one case, and the campaigns that it was measured with."""

    case: RecordedCase
    measured_with: Annotated[tuple[StrictStr, ...], Field(min_length=LEAST_CAMPAIGNS)]
    runs: Count
    runs_per_campaign: Annotated[StrictFloat | StrictInt, Field(ge=1)]
    variance_of_means: _Variance
    variance_within: _Variance


class SpreadFile(Entry):
    """The content of results/aa.json."""

    version: Literal[1]
    updated: StrictStr
    cases: tuple[SpreadEntry, ...]


@dataclass(frozen=True)
class MeasuredSpreads:
    """The spread of each case that enough campaigns have, why the others have none,
    and the units of their throughput."""

    spreads: dict[CaseKey, Spread]
    measured_with: dict[CaseKey, tuple[str, ...]]
    without: dict[CaseKey, str]
    units: dict[CaseKey, str]


def measure(campaigns: Mapping[str, Frame]) -> MeasuredSpreads:
    """The spread of each case, equal in identity and environment, over the long frames of several
    campaigns, by their names."""
    samples: dict[CaseKey, dict[str, list[float]]] = {}
    units: dict[CaseKey, str] = {}
    for name, frame in campaigns.items():
        for key, rates in rates_by_case(frame).items():
            units[key] = rates.unit
            samples.setdefault(key, {})[name] = rates.values
    measured = MeasuredSpreads({}, {}, {}, units)
    for key, by_campaign in samples.items():
        spread = estimate(list(by_campaign.values()))
        if spread is not None:
            measured.spreads[key] = spread
            measured.measured_with[key] = tuple(by_campaign)
        elif len(by_campaign) < LEAST_CAMPAIGNS:
            measured.without[key] = (
                f"valid runs in {len(by_campaign)} of {len(campaigns)} campaigns;"
                f" at least {LEAST_CAMPAIGNS} are needed"
            )
        else:
            measured.without[key] = "no campaign has two valid runs of it"
    return measured


def save_spreads(
    measured: MeasuredSpreads, path: Path = SPREADS, now: datetime | None = None
) -> Path:
    """Write the spreads into the file. Those of other cases stay."""
    kept = _read(path).model_dump(mode="json")["cases"] if path.exists() else []
    entries = [
        {
            "case": columns_of(key),
            "measured_with": measured.measured_with[key],
            **{name: value for name, value in asdict(spread).items() if name != "campaigns"},
        }
        for key, spread in measured.spreads.items()
    ]
    replaced = [entry["case"] for entry in entries]
    document = {
        "version": VERSION,
        "updated": (now or datetime.now(UTC)).isoformat(timespec="seconds"),
        "cases": [
            *(entry for entry in kept if entry["case"] not in replaced),
            *entries,
        ],
    }
    return write_json(path, document)


def read_spreads(path: Path = SPREADS) -> dict[CaseKey, Spread]:
    """The known spreads by case; none if there is no file. Raises UserError if it is invalid."""
    if not path.exists():
        return {}
    return {
        case_key(entry.case.model_dump()): Spread(
            campaigns=len(entry.measured_with),
            **entry.model_dump(exclude={"case", "measured_with"}),
        )
        for entry in _read(path).cases
    }


def spread_of(spreads: Mapping[CaseKey, Spread], a: CaseKey, b: CaseKey) -> Spread | None:
    """The spread for a case of two campaigns, in either of their environments: the larger one if
    it is known in both, None if in neither."""
    measured = [spreads[key] for key in (a, b) if key in spreads]
    return max(measured, key=lambda spread: spread.variance_of_means, default=None)


def widened(
    difference: RelativeDifference, spread: Spread | None, row: Mapping[str, Any], cases: int = 1
) -> RelativeDifference:
    """The difference with an interval, a bound and an error that are at least as wide as the spread
    between campaigns makes them. `row` has the numbers of runs; the interval is one of `cases`.
    What is unknown stays unknown."""
    if spread is None or math.isnan(difference.interval.low):
        return difference
    n_a, n_b, ratio = row["n_a"], row["n_b"], 1 + difference.relative
    level = 1 - (1 - LEVEL) / cases
    reach = difference_half_width(spread, n_a, n_b, level)
    low, high = ratio * finite_exp(-reach) - 1, ratio * finite_exp(reach) - 1
    interval = difference.interval
    if low < interval.low or high > interval.high:
        interval = ConfidenceInterval(min(low, interval.low), max(high, interval.high), level)
    one_sided = difference_half_width(spread, n_a, n_b, 1 - 2 * (1 - LEVEL))
    error = difference_error(spread, n_a, n_b)
    logs = difference.log_ratio
    if not error <= logs.error:
        logs = replace(logs, error=error, freedom=spread.campaigns - 1)
    at_worst = min(difference.at_worst, ratio * finite_exp(-one_sided) - 1)
    return replace(difference, interval=interval, at_worst=at_worst, log_ratio=logs)


def refuse_copies(campaigns: Iterable[tuple[str, Mapping[str, str]]]) -> None:
    """Raise UserError if two campaigns, by their names, have a log in common. Their logs are paths
    by what only copies have in common (see results/load.py)."""
    seen: dict[str, tuple[str, str]] = {}
    for name, logs in campaigns:
        for content, path in logs.items():
            if content in seen:
                raise UserError(
                    "two campaigns have the same log, so one is a copy",
                    where=name,
                    expected="campaigns that were run one after the other",
                    found=f"{path}, which is {' of '.join(seen[content])}"
                    f" (same {content.partition(':')[0]})",
                )
        seen |= {content: (path, name) for content, path in logs.items()}


def _read(path: Path) -> SpreadFile:
    problem = "invalid file of the spread between campaigns"
    hint = "delete it and measure again: dlperf aa CAMPAIGN CAMPAIGN CAMPAIGN"
    return validated(read_json(path), SpreadFile, str(path), problem, hint)
