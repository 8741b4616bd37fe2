"""The one printer of tables and paragraphs, for terminals and pipes. Rich draws the tables."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from ..core.errors import UserError
from ..core.printable import printable
from .tables import Cell, Column

if TYPE_CHECKING:
    from rich.table import Table


_STYLES = {
    **dict.fromkeys(("slower", "failed"), "red"),
    **dict.fromkeys(("faster", "reproduced", "passed"), "green"),
    **dict.fromkeys(("undecided", "not comparable", "perhaps slower", "cut off"), "yellow"),
}
_UNLIMITED = 100_000  # columns, of a pipe and to measure how wide a table would be
_WRAPPED = 16  # columns that a text that wraps gets at least


@dataclass(frozen=True)
class Screen:
    """A terminal or a pipe. Only a terminal has a width, and perhaps colours."""

    width: int | None = None
    colours: bool = False

    @classmethod
    def from_stream(cls, stream: TextIO) -> Screen:
        """The screen of a stream. Its colours follow no-color.org."""
        if not stream.isatty():
            return cls()
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        return cls(shutil.get_terminal_size().columns, not plain)

    @property
    def prose(self) -> int:
        """The width of paragraphs."""
        return max(self.width or 80, 40)


PIPE = Screen()


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[str | Cell]], screen: Screen = PIPE
) -> str:
    """A table of printable texts, without columns that wrap and are empty. No cell is ever cut.

    In a pipe, each row is one line. If a terminal is too narrow, texts of columns that wrap take
    several lines; then cells of columns that stack stand below the cell on their left; then each
    row becomes a block of lines.
    """
    from rich.console import Console

    whole = ([Cell(c, c) if isinstance(c, str) else c for c in row] for row in rows)
    cells = [[replace(cell, text=printable(cell.text)) for cell in row] for row in whole]
    single = [
        [n] for n, c in enumerate(columns) if not c.wraps or any(row[n].text for row in cells)
    ]
    stacked: list[list[int]] = []
    for group in single:
        if columns[group[0]].stacks and stacked:
            stacked[-1] += group
        else:
            stacked.append([*group])
    console = Console(
        width=_UNLIMITED,
        force_terminal=screen.colours,
        color_system="standard" if screen.colours else None,
    )
    for groups in (single, stacked):
        made = _table(columns, cells, groups)
        if screen.width is None or console.measure(made).minimum <= screen.width:
            with console.capture() as captured:
                console.print(made, width=screen.width or _UNLIMITED)
            # The frame of Markdown has an empty line above and below.
            return "".join(f"{line}\n" for line in captured.get().splitlines() if line.strip())
    return "".join(_block(columns, row, stacked, screen) for row in cells)


def _table(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], groups: Sequence[Sequence[int]]
) -> Table:
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.MARKDOWN)
    for group in groups:
        texts = [columns[n].label for n in group] + [row[n].text for row in rows for n in group]
        widest = max(map(cell_len, texts))
        wraps = any(columns[n].wraps for n in group)
        made.add_column(
            Text("\n".join(texts[: len(group)])),
            justify="right" if columns[group[0]].number else "left",
            width=None if wraps else widest,
            min_width=min(widest, _WRAPPED),
        )
    for row in rows:
        made.add_row(
            *(
                Text("\n").join(Text(row[n].text, _STYLES.get(row[n].mark, "")) for n in group)
                for group in groups
            )
        )
    return made


def _block(
    columns: Sequence[Column],
    row: Sequence[Cell],
    groups: Sequence[Sequence[int]],
    screen: Screen,
) -> str:
    """A line for each group of columns. The first needs no name if it is one column."""
    lines: list[str] = []
    for group in groups:
        cells = [(f"{columns[n].label} ", row[n].text) for n in group if row[n].text]
        text = ", ".join(map("".join, cells)) if lines or len(cells) > 1 else cells[0][1]
        indent = "  " if lines else ""
        lines += wrapped(text, screen.prose, first=indent, rest=f"{indent}  ")
    return "".join(f"{line}\n" for line in lines)


def titled(
    title: str, columns: Sequence[Column], rows: Iterable[Sequence[str | Cell]], screen: Screen
) -> list[str]:
    """A table below its title."""
    return [*wrapped(title, screen.prose), "", table(columns, rows, screen)]


def listed(texts: Iterable[str], screen: Screen) -> list[str]:
    """Each text as an item of a list."""
    return [line for text in texts for line in wrapped(text, screen.prose, first="- ", rest="  ")]


def wrapped(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    """The printable lines of a text. None is wider than `width`, unless a single word is."""
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [*map(printable, lines)]


class View(NamedTuple):
    """`document`: its content for JSON. `is_negative`: a result is missing or wrong."""

    name: str
    render: Callable[[Screen], str]
    document: Any
    problems: Sequence[UserError]
    is_negative: bool
