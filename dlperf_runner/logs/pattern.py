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
_GOES_ON = {*(b"%c" % byte for byte in b"0123456789.\r\n"), CUT.encode()[:1]}
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
        named = [(number, name != "step") for name, number in self.groupindex.items()]
        return [
            tuple(
                _whole(data, match[n], match.end(n)) if is_number else match[n]
                for n, is_number in named
            )
            for match in self.finditer(data)
        ]


def _whole(data: bytes, found: bytes | None, end: int) -> bytes:
    """What a group matched, which ends there, with the rest of its number."""
    if not found or data[end : end + 1] not in _GOES_ON:
        return found or b""
    rest = _REST.match(data, end)
    # A newline separates numbers; one inside of a number shows that it was wrapped.
    return found + (b" ".join(rest[0].split(b"\n")) if rest else b"")


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
    )
