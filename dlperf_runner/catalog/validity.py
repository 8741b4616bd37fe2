"""The validity rules: when a successful run is not a valid measurement. See validity.yml."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from .entry import CATALOG, load_entry, validated
from .types import CountOrNone, Entry

Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ValidityRules(Entry):
    """The thresholds in catalog/validity.yml. Comments in that file explain each one."""

    name: str
    busy_percent: Share
    throttle_reasons: tuple[str, ...]
    most_throttled: Share
    least_clock: Share
    most_ecc_uncorrected: CountOrNone
    xids: tuple[int, ...]
    most_foreign_processes: CountOrNone
    most_cores_beside: Share | None = None  # campaigns of older versions do not set it, nor:
    dcgm_health: tuple[Literal["Failure", "Warning"], ...] = ()
    most_loss_rise: Share
    wrong_interfaces: tuple[str, ...]


@cache
def catalogued_rules() -> ValidityRules:
    """The current rules in the catalogue."""
    return load_entry(CATALOG / "validity.yml", ValidityRules)


def rules_of(document: Mapping[str, Any], where: Path) -> ValidityRules | None:
    """The rules stored in a campaign.json. None if it has no rules."""
    if "validity" not in document:
        return None
    problem = "invalid validity rules in the campaign"
    return validated(document["validity"], ValidityRules, f"{where}: validity", problem)
