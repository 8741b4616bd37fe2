"""report.html: one file that needs no other and no network, for screens, phones and paper.

Everything that came out of logs is escaped by the template. The page forbids itself every
request and every script and style but its own, by their digests, so that what is planted in a
log cannot run even where the escaping failed.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..core.files import read_text
from .charts import COLOURS, Chart, vega_lite

if TYPE_CHECKING:
    from jinja2 import Environment

    from .document import Document

TEMPLATES = Path(__file__).parent / "templates"


def render(
    document: Document, pictures: Mapping[str, str], program: str, files: tuple[str, ...] = ()
) -> str:
    """The page. `pictures` are the SVG of the figures by their names, `program` what makes charts
    of the page live, `files` the others beside it."""
    from markupsafe import Markup

    live = _Live()
    style = _text("report.css") + _colours()
    script = f"{program}\n{_text('report.js')}"
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            document=document,
            t=document.labels,
            contents=_contents(document),
            pictures={name: Markup(svg) for name, svg in pictures.items()},  # noqa: S704 - escaped
            live=live,
            files=files,
            version=__version__,
            policy=policy(style, script),
            licenses=Markup(_text("vega-licenses.txt")),  # noqa: S704 - a file of this folder
            style=Markup(style),  # noqa: S704 - this project's own
            script=Markup(script),  # noqa: S704
        )
        + "\n"
    )


class _Live:
    """The charts of the page as JSON. Most parts of their specifications are alike: each stands
    there once, and a chart is a number for each of its parts."""

    def __init__(self) -> None:
        self.charts: list[dict[str, int]] = []
        self._parts: dict[str, int] = {}

    def add(self, chart: Chart) -> int:
        """The number by which the page's script finds the chart."""
        texts = {key: _json(value) for key, value in vega_lite(chart).items()}
        parts = {k: self._parts.setdefault(t, len(self._parts)) for k, t in texts.items()}
        self.charts.append(parts)
        return len(self.charts) - 1

    def json(self) -> str:
        """All that were added. No letter of it ends the element that it stands in."""
        text = f'{{"parts":[{",".join(self._parts)}],"charts":{_json(self.charts)}}}'
        return text.replace("<", "\\u003c")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _colours() -> str:
    """Rules that replace the colours of pictures, which are those on white, where it is dark."""
    rules = []
    for light, dark in COLOURS.values():
        new = "none" if dark == "transparent" else f"light-dark({light},{dark})"
        rules += [f'.plot [{kind}="{light}"]{{{kind}:{new}}}' for kind in ("fill", "stroke")]
    return "".join(rules)


def environment() -> Environment:
    """Templates of this folder; those of HTML escape what they are given."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(("html.j2",), default_for_string=True),
        undefined=StrictUndefined,
        keep_trailing_newline=False,
    )


def _contents(document: Document) -> list[tuple[str, str]]:
    t = document.labels
    sections: list[tuple[str, str, Any]] = [
        ("plots", "plots", document.figures),
        ("results", "results", True),
        ("sweeps", "sweeps", document.sweeps),
        ("time", "time_heading", document.time),
        ("beside", "side_by_side", document.side_by_side),
        ("published", "comparison", document.comparison),
        ("lost", "not_counted", document.not_counted or document.problems),
        ("environment", "environment_heading", True),
        ("reproduce", "reproduce", True),
        ("methods", "methods", True),
        ("notes", "notes", document.notes),
    ]
    return [(name, t(label)) for name, label, is_there in sections if is_there]


def policy(style: str, script: str = "") -> str:
    """Nothing is loaded; of the page's own, one style sheet and one script. Attributes that hold
    styles or scripts are none of them."""
    return (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}';"
        f" script-src '{_digest(script)}'; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _text(name: str) -> str:
    return read_text(TEMPLATES / name)
