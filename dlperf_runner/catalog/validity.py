"""The rules of validity: when a run that ended well is no measurement. See validity.yml."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from ..core.errors import UserError
from .reader import CATALOG, load_entry
from .types import CountOrNone, Entry

Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ValidityRules(Entry):
    """The thresholds of catalog/validity.yml, which says what each means."""

    name: str
    busy_percent: Share
    throttle_reasons: tuple[str, ...]
    most_throttled: Share
    least_clock: Share
    most_ecc_uncorrected: CountOrNone
    xids: tuple[int, ...]
    most_foreign_processes: CountOrNone
    most_cores_beside: Share | None = None  # campaigns of older versions fix none
    most_loss_rise: Share
    wrong_interfaces: tuple[str, ...]


@cache
def catalogued_rules() -> ValidityRules:
    """The rules as they stand in the catalogue now."""
    return load_entry(CATALOG / "validity.yml", ValidityRules)


def rules_of(document: Mapping[str, Any], where: Path) -> ValidityRules | None:
    """The rules that a campaign.json fixes; None where it fixes none."""
    if "validity" not in document:
        return None
    try:
        return ValidityRules.model_validate(document["validity"])
    except ValidationError as error:
        first = error.errors()[0]
        keys = ".".join(["validity", *map(str, first["loc"])])
        raise UserError(
            "the campaign's rules of validity cannot be used",
            where=f"{where}: {keys}",
            found=first["msg"],
        ) from None
