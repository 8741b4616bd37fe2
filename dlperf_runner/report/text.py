"""What a terminal shows: the tables of a summary, and the pieces of other listings."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .layout import fitted, groups, table_lines

if TYPE_CHECKING:
    import pandas as pd


def render(table: pd.DataFrame, notes: Sequence[str], width: int = 80) -> str:
    """Tables by workload, precision and batch size, then the notes; no line is wider than `width`
    unless a word is, or a table that has only its most important columns left."""
    width = max(width, 40)
    lines: list[str] = []
    dropped: dict[str, None] = {}
    for title, rows in groups(table):
        shown, names = fitted(rows, width)
        dropped |= dict.fromkeys(names)
        lines += [*wrapped(title, width), "", *table_lines(shown), ""]
    if not lines:
        lines = ["No run could be counted.", ""]
    if dropped:
        notes = [*notes, f"{width} columns do not hold: {', '.join(dropped)}; summary.csv does"]
    for note in notes:
        lines += wrapped(note, width, first="- ", rest="  ")
    return "\n".join(lines).rstrip("\n") + "\n"


def counted(number: int, thing: str, things: str | None = None) -> str:
    """`1 run`, `2 runs`; `things` where the plural is another."""
    return f"{number} {thing if number == 1 else things or thing + 's'}"


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A title, and aligned columns below it."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [title]
    for row in (header, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  " + "  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def wrapped(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    """The lines of a text; none is wider than `width` unless a word is."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
