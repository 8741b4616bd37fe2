"""A drawing as SVG: inside a page, coloured by the page's style sheet, or as a file of its own.

The same drawing always gives the same text. Nothing in it has a style attribute, which a page
that forbids inline styles would ignore, and its ids begin with the name it is given, so that
several fit into one page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import chain

from .charts import COLOURS, Box, Drawing, Mark, Shape, Stroke, Text

_FONTS = "system-ui, 'DejaVu Sans', 'Noto Sans', 'Noto Sans CJK SC', sans-serif"
# What XML cannot hold, however it is written.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def inline(drawing: Drawing, name: str) -> str:
    """For a page: colours are the classes that `rules` gives a meaning."""
    return _document(drawing, f'class="plot" role="img" aria-labelledby="{name}-t {name}-d"', name)


def file(drawing: Drawing) -> str:
    """A file of its own: white, as documents are."""
    size = f'width="{drawing.width}" height="{drawing.height}" role="img"'
    rules_ = rules({name: light for name, (light, _) in COLOURS.items()})
    style = f"<style>{rules_}</style>"
    ground = f'<rect width="{drawing.width}" height="{drawing.height}" fill="#ffffff"/>'
    attributes = f'xmlns="http://www.w3.org/2000/svg" {size} aria-labelledby="p-t p-d"'
    return _document(drawing, attributes, "p", style + ground) + "\n"


def rules(colours: dict[str, str]) -> str:
    """The style rules of a drawing's classes: s strokes, f fills, h is hollow."""
    lines = [f"text{{font:13px {_FONTS}}}", "text.big{font-size:15px}text.b{font-weight:600}"]
    for name, colour in colours.items():
        lines.append(f".s-{name}{{stroke:{colour};fill:none}}.f-{name}{{fill:{colour}}}")
        lines.append(f".h-{name}{{stroke:{colour};stroke-width:1.75;fill:none}}")
    return "".join(lines)


def _document(drawing: Drawing, attributes: str, name: str, head: str = "") -> str:
    body = "".join(_written(shape) for shape in drawing.shapes)
    return (
        f'<svg {attributes} viewBox="0 0 {drawing.width} {drawing.height}">'
        f'<title id="{name}-t">{_text(drawing.title)}</title>'
        f'<desc id="{name}-d">{_text(drawing.description)}</desc>{head}{body}</svg>'
    )


def _written(shape: Shape) -> str:
    match shape:
        case Stroke():
            width = f' stroke-width="{_number(shape.width)}"' if shape.width != 1 else ""
            dash = f' stroke-dasharray="{shape.dash}"' if shape.dash else ""
            return f'<path class="s-{shape.colour}"{width}{dash} d="{_path(shape.points)}"/>'
        case Box():
            place = f'x="{_number(shape.x)}" y="{_number(shape.y)}"'
            size = f'width="{_number(shape.width)}" height="{_number(shape.height)}"'
            return f'<rect class="f-{shape.colour}" {place} {size}/>'
        case Mark():
            return _mark(shape)
        case Text():
            x, y = _number(shape.x), _number(shape.y)
            words = [f"f-{shape.colour}", *_classes(shape)]
            anchor = f' text-anchor="{shape.anchor}"' if shape.anchor != "start" else ""
            turn = f' transform="rotate(-90 {x} {y})"' if shape.upright else ""
            start = f'<text class="{" ".join(words)}" x="{x}" y="{y}"{anchor}{turn}>'
            return f"{start}{_text(shape.text)}</text>"


def _path(points: Sequence[tuple[float, float]]) -> str:
    """All numbers at once, as `_number` writes each."""
    more = len(points) - 1
    written = "M%.1f %.1f " + ("L" + "%.1f %.1f " * more if more else "h0 ")
    text = written % tuple(chain.from_iterable(points))
    return text.replace(".0 ", " ").replace(" L", "L").replace(" h", "h").rstrip()


def _classes(text: Text) -> Iterator[str]:
    if text.size > 13:
        yield "big"
    if text.bold:
        yield "b"


def _mark(mark: Mark) -> str:
    look = f'class="{"f" if mark.filled else "h"}-{mark.colour}"'
    title = f"<title>{_text(mark.hint)}</title>" if mark.hint else ""
    if mark.shape == "circle":
        tag, place = "circle", f'cx="{_number(mark.x)}" cy="{_number(mark.y)}" r="4.5"'
    else:
        corners = (f"{_number(mark.x + x)},{_number(mark.y + y)}" for x, y in OUTLINES[mark.shape])
        tag, place = "polygon", f'points="{" ".join(corners)}"'
    return f"<{tag} {look} {place}>{title}</{tag}>" if title else f"<{tag} {look} {place}/>"


OUTLINES = {
    "square": ((-4, -4), (4, -4), (4, 4), (-4, 4)),
    "up": ((0, -5.5), (5, 4), (-5, 4)),
    "down": ((0, 5.5), (5, -4), (-5, -4)),
    "diamond": ((0, -5.5), (5.5, 0), (0, 5.5), (-5.5, 0)),
    "published": ((0, -8), (8, 0), (0, 8), (-8, 0)),
    "cross": (
        *((-2, -5), (2, -5), (2, -2), (5, -2), (5, 2), (2, 2)),
        *((2, 5), (-2, 5), (-2, 2), (-5, 2), (-5, -2), (-2, -2)),
    ),
}


def _number(value: float) -> str:
    """As few digits as do not show: a tenth of a pixel."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def _text(value: str) -> str:
    return escape(_FORBIDDEN.sub("�", value))
