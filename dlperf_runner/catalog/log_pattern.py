"""The schema of a user's own log format: a regular expression, in the file of its workload."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import model_validator

from ..logs import Format
from ..logs.pattern import DURATION, GROUPS, of_pattern
from .types import Entry, Regex, entry_error

_SECONDS = {"s": 1.0, "ms": 0.001}


class LogPattern(Entry):
    """The lines with a rate, as a regular expression with the groups `step`, `rate` or `step_time`,
    and optionally `loss`.

    `sample`: such a line; it is checked, and messages show it. `first_step`: the number that the
    program gives the first step. `step_time_unit`: the unit of `step_time`.
    """

    regex: Regex
    sample: str = ""
    first_step: Literal[0, 1] = 1
    step_time_unit: Literal["s", "ms"] = "s"

    @model_validator(mode="after")
    def _has_groups(self) -> LogPattern:
        found = set(re.compile(self.regex).groupindex)
        expected = "the groups step, rate or step_time, and perhaps loss, such as (?P<rate>[0-9.]+)"
        is_one = len(found & {"rate", DURATION}) == 1
        if "step" not in found or not is_one or not found <= set(GROUPS):
            raise entry_error("wrong groups", expected, ", ".join(sorted(found)) or "none", "regex")
        form = self.format_named("sample")
        if self.sample and not any(form.entry.finditer(self.sample.encode())):
            raise entry_error(
                "the expression does not match its sample", self.regex, self.sample, "sample"
            )
        return self

    def format_named(self, name: str) -> Format:
        """The format that it describes."""
        return of_pattern(
            name,
            self.regex,
            self.sample,
            zero_based=self.first_step == 0,
            seconds=_SECONDS[self.step_time_unit],
        )
