"""Why runs fail: patterns in logs, each with a category and one line of advice. See errors.yml."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import Field, model_validator

from ..core.case import Run
from ..core.template import fill, placeholders
from .entry import CATALOG, load_entry
from .types import Entry, Name, Regex, entry_error, listed


class Pattern(Entry):
    """A regular expression, a line that it recognises, and where that line is from."""

    pattern: Regex
    example: Annotated[str, Field(min_length=1)]
    source: Annotated[str, Field(min_length=1)]


class Cause(Entry):
    """Why a run failed: one of the `reasons` of its end, or one of the `patterns` in its texts."""

    category: str
    advice: Annotated[str, Field(pattern=r"^[^\n]+$")]
    reasons: tuple[str, ...] = ()
    patterns: tuple[Pattern, ...] = ()

    @model_validator(mode="after")
    def _advice_names_keys_of_a_run(self) -> Cause:
        known = Run.__dataclass_fields__
        for name in placeholders(self.advice):
            if name not in known:
                raise entry_error("unknown key of a run", f"one of {listed(known)}", name, "advice")
        return self

    def fits(self, reason: str, texts: Iterable[str]) -> bool:
        return reason in self.reasons or any(
            re.search(each.pattern, text, re.MULTILINE) for each in self.patterns for text in texts
        )

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


def cause_of(reason: str, texts: Iterable[str]) -> Cause:
    """The first cause that fits. The last one of the catalogue fits everything."""
    texts = list(texts)
    return next(cause for cause in causes() if cause.fits(reason, texts))
