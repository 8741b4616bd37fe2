"""What a terminal can show: columns that fit its width, and colour where it is wanted."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TextIO

COLOURS = {"red": "31", "green": "32", "yellow": "33", "bold": "1"}
_VERDICTS = {
    **dict.fromkeys(("slower", "failed"), "red"),
    **dict.fromkeys(("faster", "reproduced", "passed"), "green"),
    **dict.fromkeys(("undecided", "not comparable", "perhaps slower"), "yellow"),
}
# A whole cell of a table, or what stands behind its name in a block of lines.
_VERDICT = re.compile(
    rf"(?:(?<=\| )|(?<=  )|(?<=: ))({'|'.join(_VERDICTS)})(?= +\||  |$)", re.MULTILINE
)
_GAP = 2
_NARROWEST = 12  # of a column that may shrink


@dataclass(frozen=True)
class Column:
    """A column's name; `shrinks` where its texts may be shortened in their middle, `wraps` where
    they may go on in the next line."""

    name: str
    right: bool = False
    shrinks: bool = False
    wraps: bool = False


def columns(header: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> str:
    """Aligned columns below their names, in lines no wider than `width`; without columns that
    may give way and are empty. Where that is not enough, each row becomes a block of lines,
    `name: text`."""
    shown = [n for n, c in enumerate(header) if not _gives(c) or any(row[n] for row in rows)]
    header = [header[n] for n in shown]
    cells = [[row[n] for n in shown] for row in rows]
    widths = [max(len(c.name), *(len(row[n]) for row in cells), 0) for n, c in enumerate(header)]
    room = width - _GAP * (len(header) - 1)
    while sum(widths) > room:
        wide = [n for n, c in enumerate(header) if _gives(c) and widths[n] > _NARROWEST]
        if not wide:
            return _stacked(header, cells, width)
        widest = max(widths[n] for n in wide)
        widths[next(n for n in wide if widths[n] == widest)] -= 1
    lines = []
    for row in ([c.name for c in header], *cells):
        pieces = [_pieces(t, c, s) for t, c, s in zip(row, header, widths, strict=True)]
        for texts in zip_longest(*pieces, fillvalue=""):
            parts = [
                text.rjust(size) if column.right else text.ljust(size)
                for text, column, size in zip(texts, header, widths, strict=True)
            ]
            lines.append((" " * _GAP).join(parts).rstrip())
    return "\n".join(lines) + "\n"


def _gives(column: Column) -> bool:
    return column.shrinks or column.wraps


def _pieces(text: str, column: Column, width: int) -> list[str]:
    """The lines of a cell."""
    return (textwrap.wrap(text, width) or [""]) if column.wraps else [shortened(text, width)]


def _stacked(header: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> str:
    blocks = []
    for row in rows:
        lines: list[str] = []
        for column, text in zip(header, row, strict=True):
            room = max(width - 2 * bool(lines), _NARROWEST)
            whole = f"{column.name}: {text}"
            pieces = textwrap.wrap(whole, room) if column.wraps else [shortened(whole, room)]
            lines += [f"  {piece}" if lines else piece for piece in pieces if text]
        blocks.append("\n".join(lines))
    return "\n".join(blocks) + "\n"


def shortened(text: str, width: int) -> str:
    """The text, with … in its middle where it is too long: names differ at both ends."""
    if len(text) <= width:
        return text
    behind = (width - 1) // 2
    return text[: width - 1 - behind] + "…" + (text[-behind:] if behind else "")


def coloured(text: str, colour: str, stream: TextIO) -> str:
    """The text in a colour where the stream is a terminal that wants it (no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty():
        return text
    return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m"


def with_verdicts(text: str, stream: TextIO) -> str:
    """A comparison with the verdicts in its tables coloured, where the stream wants it."""
    return _VERDICT.sub(lambda match: coloured(match[1], _VERDICTS[match[1]], stream), text)
