"""A table as all documents have it: cells that know both how they are shown and what they are."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

# A spreadsheet takes a text that begins so for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")

Value = str | int | float | None
Name = TypeVar("Name", str, int)


@dataclass(frozen=True)
class Column:
    """`number` columns stand to the right; `format` is a spreadsheet's number format, `hint` says
    more of the column than its label. On a narrow terminal, the texts of a column that `wraps` take
    several lines, and a column that `stacks` stands below the one on its left."""

    label: str
    number: bool = False
    format: str = "General"
    hint: str = ""
    stacks: bool = False
    wraps: bool = False


@dataclass(frozen=True)
class Cell:
    """`value` is what the cell is sorted by and what a spreadsheet holds; None is absent. `mark` is
    a verdict that pages show in its colour."""

    text: str
    value: Value
    mark: str = ""


@dataclass(frozen=True)
class Table:
    """`name` is its sheet and its anchor; `notes` stand below it."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def labels(self) -> list[str]:
        return [column.label for column in self.columns]


Form = str | Callable[[float], str]  # one of Python's formats, or a function of report.numbers


def cell(value: Value, form: Form = "", absent: str = "-") -> Cell:
    """A cell of a value; `absent` if there is none."""
    if value is None:
        return Cell(absent, None)
    if isinstance(form, str):
        return Cell(format(value, form), value)
    return Cell(form(float(value)), value)


def span(low: float | None, high: float | None, form: Form, between: str = " – ") -> Cell:
    """An interval, sorted by its lower end."""
    if low is None or high is None:
        return Cell("-", None)
    return Cell(f"{cell(low, form).text}{between}{cell(high, form).text}", low)


def composed(
    columns: Mapping[Name, Column],
    rows: Sequence[Mapping[Name, Cell]],
    names: Iterable[Name],
    keep: Container[Name] = (),
) -> tuple[tuple[Column, ...], tuple[tuple[Cell, ...], ...]]:
    """The columns of these names, and the cells of each row. Columns that are absent in all rows
    are left out, but for those in `keep`."""
    shown = [n for n in names if n in keep or any(row[n].value is not None for row in rows)]
    return tuple(columns[n] for n in shown), tuple(tuple(row[n] for n in shown) for row in rows)


def without_empty(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], keep: int
) -> tuple[tuple[Column, ...], tuple[tuple[Cell, ...], ...]]:
    """The same by place, the first `keep` columns in any case."""
    cells = [dict(enumerate(row)) for row in rows]
    return composed(dict(enumerate(columns)), cells, range(len(columns)), range(keep))
