"""The HTML of a report as a browser would see it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

# The published report: node_num, gpu_num, samples/s, speedup of MXNet ResNet50-v1b.
PUBLISHED = [
    ["1", "1", "384.19", "1.00"],
    ["1", "2", "749.04", "1.95"],
    ["1", "4", "1,494.58", "3.89"],
    ["1", "8", "2,556.03", "6.65"],
    ["2", "16", "4,855.34", "12.64"],
    ["4", "32", "9,579.74", "24.93"],
]
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """What a browser would see: elements with their attributes, texts by element, tables."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.stack: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.texts: dict[str, list[str]] = {}
        self._table = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "table":
            self._table = str(dict(attrs)["id"])
            self.tables[self._table] = []
        if tag == "tr":
            self.tables[self._table].append([])
        if tag in ("td", "th"):
            self.tables[self._table][-1].append("")
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.stack:
            self.texts.setdefault(self.stack[-1], []).append(data)
        if {"td", "th"} & set(self.stack):
            self.tables[self._table][-1][-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def live_charts(directory: Path) -> list[dict[str, Any]]:
    """The specifications of the page's charts, as its script puts them together."""
    html = (directory / "report.html").read_text(encoding="utf-8")
    (data,) = re.findall('<script type="application/json" id="charts">(.*?)</script>', html)
    known = json.loads(data)
    return [{k: known["parts"][n] for k, n in chart.items()} for chart in known["charts"]]


def page_of(directory: Path) -> Page:
    return Page((directory / "report.html").read_text(encoding="utf-8"))
