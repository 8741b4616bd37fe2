"""Parse a whole log in memory at once: the same result as line by line, in a fraction of the time.

Only regular logs are parsed here. Irregular ones are left to the line reader, which knows the line
number of each problem.
"""

from __future__ import annotations

from . import text
from .reader import CONTEXT
from .records import Columns, Format, Header, LineError, Step

_NO_LINE = 0


def take(form: Format, data: bytes) -> tuple[list[Header], Columns] | None:
    """The headers before the first step of a log, and all of its steps; None if the log must be
    read line by line. The headers have no line numbers."""
    if form.columns is None or not data.endswith(b"\n"):
        return None  # without a final newline, the last number may be incomplete
    try:
        whole = data.decode()
    except UnicodeDecodeError:
        return None
    lines = _with_one_of(form.step_markers, whole)
    if not lines:
        return None
    heads = _with_one_of(form.head_markers, whole[: whole.index(lines[0])])
    steps, head = "\n".join(lines), "\n".join(heads)
    if max(map(len, lines + heads)) > CONTEXT or "\r" in steps or "\r" in head:
        return None
    if any(marker in steps for marker in form.head_markers):
        return None
    untagged = _untagged(steps) if "<std" in steps else steps
    headers = _headers(form, head)
    if untagged is None or headers is None:
        return None
    columns = form.columns(untagged)
    return None if columns is None else (headers, columns)


def _with_one_of(markers: tuple[str, ...], whole: str) -> list[str]:
    """The lines that contain one of the markers."""
    present = [m for m in markers if m in whole] if len(markers) > 1 else list(markers)
    lines = whole.split("\n") if present else []
    match present:
        case [only]:
            return [line for line in lines if only in line]
        case [one, other]:  # `any` is several times slower
            return [line for line in lines if one in line or other in line]
    return [line for line in lines if any(marker in line for marker in present)]


def _untagged(lines: str) -> str | None:
    """The lines without mpirun's tags; None if several ranks wrote them."""
    texts, ranks = [], set()
    for _, line, rank in text.by_rank((_NO_LINE, line) for line in lines.split("\n")):
        texts.append(line)
        ranks.add(rank)
    return "\n".join(texts) if len(ranks) == 1 else None


def _headers(form: Format, head: str) -> list[Header] | None:
    try:
        records = list(form.parse((_NO_LINE, line) for line in head.split("\n")))
    except LineError:
        return None
    headers = [record for record in records if not isinstance(record, Step)]
    return headers if len(headers) == len(records) else None
