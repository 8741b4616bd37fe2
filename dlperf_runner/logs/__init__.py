"""Logs of training programs: bytes in, Step and Header out. One module per format.

Every module of this package with a `FORMAT` is a format; it needs no registration.
"""

from __future__ import annotations

import functools
import importlib
import io
import math
import pkgutil
from collections.abc import Iterator

from .reader import CHUNK, CONTEXT, Candidates, Readable
from .records import Format, Header, Line, LineError, Step

__all__ = [
    "FIRST",
    "Candidates",
    "Format",
    "Header",
    "Line",
    "LineError",
    "Readable",
    "Step",
    "candidates",
    "detect",
    "detect_early",
    "formats",
    "parse_tail",
]

FIRST = 2**13  # most logs print a step early; searching for many markers in more text is slow


@functools.cache
def formats() -> dict[str, Format]:
    """Every known format by name."""
    found: dict[str, Format] = {}
    for module in pkgutil.iter_modules(__path__):
        entry = getattr(importlib.import_module(f"{__name__}.{module.name}"), "FORMAT", None)
        if isinstance(entry, Format):
            found[entry.name] = entry
    return found


def candidates(
    form: Format, stream: Readable, *, chunk: int = CHUNK, context: int = CONTEXT
) -> Candidates:
    """The lines of a log that the parser of its format needs."""
    return Candidates(stream, form.step_markers, form.head_markers, chunk=chunk, context=context)


def detect(stream: Readable) -> Format | None:
    """The format of the first line with a rate; None if no line has a rate."""
    for line in Candidates(stream, _step_markers(), chunk=FIRST):
        if form := _format_of(line):
            return form
    return None


def detect_early(data: bytes) -> Format | None:
    """Detect the format from the beginning of a log; None if that is not conclusive."""
    if not data.isascii() or b"\r" in data:
        return None
    head = data.decode("ascii")
    first = min((at for m in _step_markers() if (at := head.find(m)) >= 0), default=len(head))
    start = head.rfind("\n", 0, first) + 1
    whole_lines = head[start : head.rfind("\n") + 1].split("\n")
    return next((form for line in whole_lines if (form := _format_of((0, line)))), None)


@functools.cache
def _step_markers() -> tuple[str, ...]:
    return tuple(dict.fromkeys(m for form in formats().values() for m in form.step_markers))


def _format_of(line: Line) -> Format | None:
    for form in formats().values():
        if any(marker in line[1] for marker in form.step_markers) and _is_step(form, line):
            return form
    return None


def _is_step(form: Format, line: Line) -> bool:
    try:
        return any(
            isinstance(record, Step) or record.final_samples_per_second is not None
            for record in form.parse([line])
        )
    except LineError:
        return True  # the line has this format, but its rate is not a number


def parse_tail(log_format: str, tail: str) -> float | None:
    """The last rate in a piece of a log, which may begin and end anywhere; None if it has none."""
    form = formats().get(log_format)
    if form is None:
        return None
    rate = None
    # The rate shows that the run is alive; a surrogate or an odd byte must not hide it.
    stream = io.BytesIO(tail.encode("utf-8", "replace"))
    try:
        for record in _records(form, stream):
            if isinstance(record, Step) and 0 < record.samples_per_second < math.inf:
                rate = record.samples_per_second
    except LineError:
        pass
    return rate


def _records(form: Format, stream: Readable) -> Iterator[Step | Header]:
    return form.parse(candidates(form, stream))
