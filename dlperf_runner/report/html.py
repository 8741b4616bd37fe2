"""report.html: one file that needs no other and no network, for screens, phones and paper.

Everything that came out of logs is escaped by the template. The page forbids itself every
request and every script and style but its own, by their digests, so that what is planted in a
log cannot run even where the escaping failed.
"""

from __future__ import annotations

import base64
import hashlib
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from . import svg
from .charts import COLOURS, Drawing

if TYPE_CHECKING:
    from jinja2 import Environment

    from .document import Document

TEMPLATES = Path(__file__).parent / "templates"


def render(document: Document, files: tuple[str, ...] = ()) -> str:
    """The page; `files` are the others beside it."""
    from markupsafe import Markup

    numbers = count(1)

    def inline(drawing: Drawing) -> Markup:
        # Made by `svg`, which escapes; named apart, so that each title is of its own drawing.
        return Markup(svg.inline(drawing, f"p{next(numbers)}"))  # noqa: S704

    colours = {name: f"light-dark({light},{dark})" for name, (light, dark) in COLOURS.items()}
    style = _text("report.css") + svg.rules(colours)
    script = _text("report.js")
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            document=document,
            t=document.labels,
            contents=_contents(document),
            inline=inline,
            files=files,
            version=__version__,
            policy=_policy(style, script),
            style=Markup(style),  # noqa: S704 - this project's own
            script=Markup(script),  # noqa: S704
        )
        + "\n"
    )


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
        ("beside", "side_by_side", document.side_by_side),
        ("published", "comparison", document.comparison),
        ("lost", "not_counted", document.not_counted or document.problems),
        ("environment", "environment_heading", True),
        ("reproduce", "reproduce", True),
        ("methods", "methods", True),
        ("notes", "notes", document.notes),
    ]
    return [(name, t(label)) for name, label, is_there in sections if is_there]


def _policy(style: str, script: str) -> str:
    """Nothing is loaded; of the page's own, one style sheet and one script. Attributes that hold
    styles or scripts are none of them."""
    return (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}';"
        f" script-src '{_digest(script)}'; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")
