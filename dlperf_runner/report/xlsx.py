"""results.xlsx: one sheet per table, numbers as numbers, texts as texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any

from ..core.frame import POWER
from ..core.printable import for_xml
from .document import Document
from .tables import FORMULA, Cell, Column, Table, Value

if TYPE_CHECKING:
    from xlsxwriter.format import Format
    from xlsxwriter.worksheet import Worksheet


_LONGEST = 32_767  # letters of a cell
_HEAD, _QUOTED = "head", "quoted"  # formats beside those of numbers
_FORMATS = {
    "scaling_efficiency": "0.0%",
    "repeats": "0",
    "speedup": "0.00",
    "gpu_memory_mib": "#,##0",
    "log_memory_mib": "#,##0",
    "mfu": "0.0%",
    f"{POWER}_w": "#,##0",
}


def render(document: Document) -> bytes:
    """The workbook. Its first sheet has all cases with all that was computed of them."""
    from xlsxwriter import Workbook

    buffer = BytesIO()
    with Workbook(buffer, {"in_memory": True}) as book:
        # Not when it was written: the same results give the same file.
        book.set_properties({"author": "dlperf_runner", "created": datetime(2000, 1, 1)})
        formats = {_HEAD: book.add_format({"bold": True})}
        formats[_QUOTED] = book.add_format({"quote_prefix": True})
        tables, used = list(_tables(document)), set[str]()
        for form in dict.fromkeys(column.format for table in tables for column in table.columns):
            formats[form] = book.add_format({"num_format": form})
        for table in tables:
            _fill(book.add_worksheet(sheet_name(table.title, used)), table, formats)
    return buffer.getvalue()


def _tables(document: Document) -> Iterator[Table]:
    t = document.labels
    yield all_cases(t("results"), document.cases)
    yield from (*document.sweeps, *document.time, *document.side_by_side)
    if document.compared.rows:
        yield document.compared
    if document.not_counted:
        yield document.not_counted
    yield from document.environment
    if document.differences:
        yield document.differences
    texts = [*map(str, document.answers), *document.methods, *document.notes, *document.problems]
    rows = tuple((Cell(text, text),) for text in texts)
    yield Table("notes", t("notes"), (Column(t("notes")),), rows)


def all_cases(title: str, cases: Sequence[Mapping[str, Any]]) -> Table:
    """All cases with the names of columns that results.csv has."""
    names = list(dict.fromkeys(name for case in cases for name in case))
    rows = tuple(tuple(Cell("", case.get(name)) for name in names) for case in cases)
    columns = []
    for place, name in enumerate(names):
        number = any(isinstance(row[place].value, int | float) for row in rows)
        columns.append(Column(name, number, _format(name)))
    return Table("cases", title, tuple(columns), rows)


def _format(name: str) -> str:
    for ending, form in _FORMATS.items():
        if name.startswith(ending):
            return form
    return "#,##0.00" if "_per_second" in name else "General"


def sheet_name(title: str, used: set[str]) -> str:
    """The title as a sheet can be called: 31 letters, some not, and no name twice."""
    name = re.sub(r"[\[\]:*?/\\']", " ", for_xml(title))[:31].strip() or "-"
    number, chosen = 2, name
    while chosen.lower() in used:
        chosen = f"{name[: 30 - len(str(number))]} {number}"
        number += 1
    used.add(chosen.lower())
    return chosen


def _fill(sheet: Worksheet, table: Table, formats: Mapping[str, Format]) -> None:
    sheet.freeze_panes(1, 0)
    widths = [len(column.label) for column in table.columns]
    for row in table.rows[:200]:
        for place, cell in enumerate(row):
            widths[place] = max(widths[place], len(_shown(cell)))
    for place, (width, column) in enumerate(zip(widths, table.columns, strict=True)):
        sheet.set_column(place, place, min(max(width + 2, 8), 60))
        sheet.write_string(0, place, _text(column.label), formats[_HEAD])
        for line, row in enumerate(table.rows, start=1):
            value = _held(row[place], column)
            if isinstance(value, str):
                # Whatever it begins with.
                quoted = formats[_QUOTED] if value.startswith(FORMULA) else None
                sheet.write_string(line, place, _text(value), quoted)
            elif value is not None:
                sheet.write_number(line, place, value, formats[column.format])


def _text(value: str) -> str:
    return for_xml(value, "�")[:_LONGEST]


def _held(cell: Cell, column: Column) -> Value:
    """The value of a cell in a sheet: a number, or the text of an interval."""
    if column.format == "General" and cell.text:
        return None if cell.value is None else cell.text
    return cell.value


def _shown(cell: Cell) -> str:
    return cell.text or ("" if cell.value is None else str(cell.value)[:12])
