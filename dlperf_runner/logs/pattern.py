"""A format that a regular expression of a user describes: see docs/own-workload.md.

The expression is searched in each line. Its groups are those of Format.entry; `step_time` in place
of `rate` is the duration of a step. Guards: a line of more than LONGEST bytes is not searched; a
rate that the end of the log cuts, or that was wrapped, is refused as in every other format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from . import text
from .records import CUT, Format

LONGEST = 2**12  # bytes; a line with a rate has about 100
DURATION = "step_time"
GROUPS = ("step", "rate", DURATION, "loss")
_STEP = re.compile(rb"\d{1,12}")
_LINE = re.compile(rb"[^\r\n]+")
# The rest of a number at which an expression stops too early: more digits, or the mark of a cut.
_REST = re.compile(rb"(?:[\d.]*\d)?(?:%s|%s)?" % (CUT.encode(), text.WRAPPED))
_NUMBER = rb"(?:\d{1,3}(?:,\d{3})++|\d++)(?:\.\d++)?+(?:[eE][-+]?\d{1,3})?+"


class Lines:
    """An expression that matches inside a line. It has the methods of a pattern that formats
    use."""

    def __init__(self, expression: str) -> None:
        renamed = expression.replace(f"(?P<{DURATION}>", "(?P<rate>")
        self._pattern = re.compile(renamed.encode(), re.MULTILINE)
        self.groupindex = self._pattern.groupindex

    def finditer(self, data: bytes) -> Iterator[re.Match[bytes]]:
        """The first match of each line, if its step is a number."""
        for line in _LINE.finditer(data):
            start, end = line.span()
            if end - start > LONGEST:
                continue
            match = self._pattern.search(data, start, end)
            if match and _STEP.fullmatch(match["step"] or b""):
                yield match

    def findall(self, data: bytes) -> list[tuple[bytes, ...]]:
        """The groups of each match, each with all that belongs to its number."""
        return [tuple(self._groups(data, match)) for match in self.finditer(data)]

    def _groups(self, data: bytes, match: re.Match[bytes]) -> Iterator[bytes]:
        for name in self.groupindex:
            found = match[name] or b""
            rest = _REST.match(data, match.end(name)) if found and name != "step" else None
            # A newline separates numbers; one inside of a number shows that it was wrapped.
            yield found + (b" ".join(rest[0].split(b"\n")) if rest else b"")


def of_pattern(
    name: str, expression: str, sample: str, *, zero_based: bool = False, seconds: float = 1.0
) -> Format:
    """The format of an expression. `seconds`: the unit of its durations."""
    return Format(
        name=name,
        sample=sample or expression,
        marker=b"",
        entry=Lines(expression),
        rate=_NUMBER,
        statements=(),
        zero_based=zero_based,
        seconds=seconds if f"(?P<{DURATION}>" in expression else None,
        is_own=True,
    )
