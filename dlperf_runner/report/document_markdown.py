"""report.md: the document for repositories and mails. Everything from logs is escaped."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .html import environment
from .markdown import table_lines, text
from .tables import Table

if TYPE_CHECKING:
    from .document import Document


def render(document: Document) -> str:
    """The whole file."""
    templates = environment()
    templates.filters.update(text=text, grid=grid, code=code)
    made = templates.get_template("report.md.j2").render(document=document, t=document.labels)
    return re.sub(r"\n{3,}", "\n\n", made).strip() + "\n"


def grid(table: Table) -> str:
    """The table as the published reports print it."""
    header = tuple(text(column.label) for column in table.columns)
    rows = [tuple(text(cell.text) for cell in row) for row in table.rows]
    return "\n".join(table_lines([header, *rows]))


def code(value: str) -> str:
    """A block of code, between as many ticks as it needs."""
    ticks = max((len(run) for run in re.findall("`+", value)), default=0)
    fence = "`" * max(3, ticks + 1)
    return f"{fence}\n{value}\n{fence}"
