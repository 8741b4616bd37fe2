"""Percentages as options take them: `3%`, `0.5 %`."""

from __future__ import annotations

import re

from .errors import UserError

_PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?%", re.ASCII)


def fraction(text: str, where: str) -> float:
    """The percentage as a fraction: 0.03 for `3%`. Raises UserError unless it is below 100 %."""
    match = _PERCENT.fullmatch(text.strip())
    value = float(match[1]) / 100 if match else 1.0
    if not value < 1:
        raise UserError(
            "invalid percentage",
            where=where,
            expected="a percentage below 100, like 3%",
            found=text,
        )
    return value
