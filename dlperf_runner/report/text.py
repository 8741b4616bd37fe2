"""The table that a terminal shows."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .layout import groups, table_lines

if TYPE_CHECKING:
    import pandas as pd


def render(table: pd.DataFrame, notes: Sequence[str], width: int = 80) -> str:
    """Tables by workload, precision and batch size, then the notes; no line is wider than `width`
    unless a word or a table is."""
    width = max(width, 40)
    lines: list[str] = []
    for title, rows in groups(table):
        lines += [*_wrapped(title, width), "", *table_lines(rows), ""]
    if not lines:
        lines = ["No run could be counted.", ""]
    for note in notes:
        lines += _wrapped(note, width, first="- ", rest="  ")
    return "\n".join(lines).rstrip("\n") + "\n"


def _wrapped(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
