"""report.md: the document for repositories and mails. Everything from logs is escaped."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .html import environment
from .markdown import table_lines
from .tables import Table

if TYPE_CHECKING:
    from .document import Document

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~#$])")
_ENTITIES = re.compile(r"&(?=#?\w+;)")
_LEADS = re.compile(r"^(\s*)([-+=]|\d+[.)])(?=\s|$|[-+=])")


def render(document: Document) -> str:
    """The whole file."""
    templates = environment()
    templates.filters.update(text=text, grid=grid, code=code)
    made = templates.get_template("report.md.j2").render(document=document, t=document.labels)
    return re.sub(r"\n{3,}", "\n\n", made).strip() + "\n"


def text(value: str) -> str:
    """One line in which no letter has a meaning to Markdown or HTML. An underscore inside a word
    has none anyway, and stays as it is."""
    words = _ENTITIES.sub("&amp;", " ".join(value.split()))
    words = _SPECIAL.sub(lambda found: _escaped(found, words), words)
    return _LEADS.sub(r"\1\\\2", words)


def _escaped(found: re.Match[str], words: str) -> str:
    sign, place = found.group(), found.start()
    if (
        sign == "_"
        and words[place - 1 : place].isalnum()
        and words[place + 1 : place + 2].isalnum()
    ):
        return sign
    return {"<": "&lt;", ">": "&gt;"}.get(sign, "\\" + sign)


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
