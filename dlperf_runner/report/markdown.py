"""Markdown: summary.md, and report.md for repositories and mails."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .case_tables import summary_tables
from .html import environment
from .tables import Table

if TYPE_CHECKING:
    from .document import Document

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~#$])")
_ENTITIES = re.compile(r"&(?=#?\w+;)")
_LEADS = re.compile(r"^(\s*)([-+=]|\d+[.)])(?=\s|$|[-+=])")
_HOW = """\
{rate} is the median of the n runs, each run computed by the published rule of its workload, and
interval the distribution-free confidence interval of that median. speedup is that median divided by
the median of the base case: the 1-device runs that are otherwise equal, or, where there are none,
those on the fewest devices, which a note names.
efficiency is speedup divided by how many times more devices there are than in the base case;
gpu_num is the number of devices in all. Every number with its estimator stands in measurements.csv,
every statistic with its interval in summary.csv.
"""


def render(cases: Sequence[dict[str, Any]], notes: Sequence[str], problems: Sequence[str]) -> str:
    """summary.md: the tables, how they were computed, and what was left out."""
    units = dict.fromkeys(case["unit"] for case in cases)
    parts = ["# Results\n"]
    for made in summary_tables(cases):
        table = table_lines([made.labels, *([cell.text for cell in row] for row in made.rows)])
        parts.append("\n".join([f"## {text(made.title)}\n", *table, ""]))
    parts.append(
        _HOW.format(rate=" or ".join(units)) if len(parts) > 1 else "No run could be counted.\n"
    )
    for heading, texts in (("Notes", notes), ("Not counted", problems)):
        if texts:
            lines = ("\n  ".join(map(_line, item.split("\n"))) for item in texts)
            items = "\n".join(f"- {line}" for line in lines)
            parts.append(f"## {heading}\n\n{items}\n")
    return "\n".join(parts)


def _line(value: str) -> str:
    return " " * (len(value) - len(value.lstrip(" "))) + text(value)


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown, its header first, as the published reports print it."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = ["-" * width for width in widths]
    return [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
        for row in (rows[0], rule, *rows[1:])
    ]


def text(value: str) -> str:
    """One line in which no letter has a meaning to Markdown or HTML. An underscore inside a word
    has none anyway, and stays as it is."""
    words = _ENTITIES.sub("&amp;", " ".join(value.split()))
    words = _SPECIAL.sub(lambda match: _escaped(match, words), words)
    return _LEADS.sub(r"\1\\\2", words)


def _escaped(match: re.Match[str], words: str) -> str:
    sign, place = match.group(), match.start()
    if (
        sign == "_"
        and words[place - 1 : place].isalnum()
        and words[place + 1 : place + 2].isalnum()
    ):
        return sign
    return {"<": "&lt;", ">": "&gt;"}.get(sign, "\\" + sign)


def render_report(document: Document) -> str:
    """report.md: the document for repositories and mails. Everything from logs is escaped."""
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
