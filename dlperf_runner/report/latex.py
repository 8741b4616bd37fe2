"""results.tex: the tables of cases and of the comparison, each as a `tabular` for a paper."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..core.printable import for_xml
from .document import Document
from .tables import Table

_SIGNS = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_SIGNS |= {sign: f"\\{sign}" for sign in "&%$#_{}"}
_SIGNS |= {"<": r"\textless{}", ">": r"\textgreater{}", "\u2013": "--", "\xa0": "~"}
_HEAD = "% Copy a table into a document with \\usepackage{booktabs}.\n"


def render(document: Document) -> str:
    """All tables of numbers. Everything from logs is escaped."""
    tables = [section.table for section in document.sections]
    tables += (*document.sweeps, *document.time, *document.side_by_side, *document.comparison)
    return _HEAD + "\n".join(map(_table, tables))


def _table(table: Table) -> str:
    form = "".join("r" if column.number else "l" for column in table.columns)
    head, *body = (_row(row) for row in (table.labels, *([c.text for c in r] for r in table.rows)))
    lines = [f"% {_line(table.title)}", rf"\begin{{tabular}}{{{form}}}", r"\toprule", head]
    return "\n".join([*lines, r"\midrule", *body, r"\bottomrule", r"\end{tabular}", ""])


def _row(texts: Sequence[str]) -> str:
    return " & ".join(map(_text, texts)) + r" \\"


def _line(value: str) -> str:
    return " ".join(for_xml(value, " ").splitlines())


def _text(value: str) -> str:
    return re.sub(f"[{re.escape(''.join(_SIGNS))}]", lambda sign: _SIGNS[sign[0]], _line(value))
