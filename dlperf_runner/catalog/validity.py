"""The causes of failed runs, by patterns in their logs, each with a category and one line of advice
(errors.yml); and the rules by which a successful run is a valid measurement (validity.yml)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ..core.case import Run
from .entry import CATALOG, load_entry, validated
from .types import CountOrNone, Entry, Name, Regex, fill, placeholders, refuse_unknown

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
    most_cores_beside: Share
    dcgm_health: tuple[Literal["Failure", "Warning"], ...]
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


# ---- failed runs


class Pattern(Entry):
    """A regular expression, a line that it recognises, and where that line is from."""

    pattern: Regex
    example: Annotated[str, Field(min_length=1)]
    source: Annotated[str, Field(min_length=1)]


class Cause(Entry):
    """A cause of a run's failure: one of the `reasons` of its end, or one of the `patterns` in its
    texts."""

    category: str
    advice: Annotated[str, Field(pattern=r"^[^\n]+$")]
    reasons: tuple[str, ...] = ()
    patterns: tuple[Pattern, ...] = ()

    @model_validator(mode="after")
    def _advice_names_keys_of_a_run(self) -> Cause:
        for name in placeholders(self.advice):
            refuse_unknown("unknown key of a run", name, Run.__dataclass_fields__, "advice")
        return self

    def found_in(self, text: str) -> str | None:
        """The line that the first fitting pattern recognises; "" for one that fits everything."""
        for each in self.patterns:
            if match := re.search(each.pattern, text, re.MULTILINE):
                if not match[0]:
                    return ""
                begin = text.rfind("\n", 0, match.start()) + 1
                return text[begin:].partition("\n")[0].strip()
        return None

    def advice_for(self, run: Mapping[str, Any]) -> str:
        words = {}
        for name in placeholders(self.advice):
            value = run.get(name, "unknown")
            words[name] = ", ".join(map(str, value)) if isinstance(value, list) else value
        return fill([self.advice], words)[0]


class Errors(Entry):
    name: Name
    causes: Annotated[tuple[Cause, ...], Field(min_length=1)]


@cache
def causes() -> tuple[Cause, ...]:
    return load_entry(CATALOG / "errors.yml", Errors).causes


def cause_of(reason: str, message: str, texts: Sequence[str]) -> tuple[Cause, str]:
    """The first cause that fits, and the line of the texts that shows it; "" if none does. The last
    cause of the catalogue fits everything."""
    for cause in causes():
        line = next((line for text in texts if (line := cause.found_in(text)) is not None), None)
        if line is not None or reason in cause.reasons or cause.found_in(message) is not None:
            return cause, line or ""
    raise AssertionError("the last cause fits everything")
