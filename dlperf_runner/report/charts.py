"""What the charts look like: from measured points to lines, marks and texts at places.

A drawing knows nothing of its file format: `svg` and `png` write it. All lengths are pixels of
the drawing, y grows downwards.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

WIDTH = 480
PLOT_HEIGHT = 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 16, 54, 48  # left of the axis: its name, and 100,000
_SMALL, _NORMAL = 13, 15
_LOOKS = 6
_ROW = 19  # height of a line of the legend

# Colours on white and on near-black: of Okabe and Ito's palette, which colour-blind people can
# tell apart, each tone chosen for a contrast of at least 3:1 with its background.
COLOURS = {
    "c0": ("#0072b2", "#56b4e9"),
    "c1": ("#d55e00", "#ff8f45"),
    "c2": ("#007a59", "#34cf9f"),
    "c3": ("#a8457f", "#e79bc6"),
    "c4": ("#8a6a00", "#f0c341"),
    "c5": ("#333333", "#dddddd"),
    "ink": ("#1b1f24", "#e8eaed"),
    "soft": ("#57606a", "#a8b0b8"),
    "grid": ("#e3e6ea", "#33383e"),
    "shade": ("#f0e6d2", "#3a3426"),
}
MARKS = ("circle", "square", "up", "diamond", "down", "cross")
DASHES = ("", "7 3", "2 3", "9 3 2 3")


class Point(NamedTuple):
    """A value with its interval, where it has one, and what is said about it. A tuple, because a
    report has a hundred thousand."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    hint: str = ""


@dataclass(frozen=True)
class Line:
    """Points of one name. `look` chooses colour, mark and dash; `kind` is `measured`, `published`
    (marks alone, hollow and large: the measured ones show through), `ideal` (a thin dashed line)
    or `series` (a line alone)."""

    name: str
    points: tuple[Point, ...]
    look: int = 0
    kind: str = "measured"


@dataclass(frozen=True)
class Chart:
    """Lines over two axes. `log` holds for both axes; `shade` is a span of x and its name."""

    title: str
    subtitle: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    log: bool = True
    from_zero: bool = False  # both axes, where they are not logarithmic
    x_ticks: tuple[float, ...] = ()
    y_range: tuple[float, float] | None = None  # what is outside is drawn at the edge
    shade: tuple[float, float, str] | None = None


# ---- what a drawing is made of


@dataclass(frozen=True)
class Stroke:
    points: tuple[tuple[float, float], ...]
    colour: str
    width: float = 1
    dash: str = ""


@dataclass(frozen=True)
class Box:
    x: float
    y: float
    width: float
    height: float
    colour: str


@dataclass(frozen=True)
class Mark:
    x: float
    y: float
    shape: str
    colour: str
    filled: bool
    hint: str = ""


@dataclass(frozen=True)
class Text:
    x: float
    y: float
    text: str
    colour: str = "ink"
    size: int = _SMALL
    anchor: str = "start"
    upright: bool = False  # turned by 90 degrees, read from below
    bold: bool = False


Shape = Stroke | Box | Mark | Text


@dataclass(frozen=True)
class Drawing:
    """Shapes, the later above the earlier; `description` says them in words."""

    width: int
    height: int
    title: str
    description: str
    shapes: tuple[Shape, ...] = field(repr=False)


def draw(chart: Chart) -> Drawing:
    """The chart, as high as its legend needs."""
    x_axis, y_axis = _axes(chart)
    right, bottom = WIDTH - _RIGHT, _TOP + PLOT_HEIGHT
    shapes: list[Shape] = []
    if chart.shade:
        start, end, name = chart.shade
        left, width = x_axis.at(start), x_axis.at(end) - x_axis.at(start)
        shapes.append(Box(left, _TOP, width, PLOT_HEIGHT, "shade"))
        if text_width(name, _SMALL) + 8 < width:
            shapes.append(Text(left + 4, _TOP + 14, name, "soft"))
    for tick, label in y_axis.ticks:
        y = y_axis.at(tick)
        shapes.append(Stroke(((_LEFT, y), (right, y)), "grid"))
        shapes.append(Text(_LEFT - 6, y + 4, label, "soft", anchor="end"))
    for tick, label in x_axis.ticks:
        x = x_axis.at(tick)
        shapes.append(Stroke(((x, bottom), (x, bottom + 4)), "soft"))
        shapes.append(Text(x, bottom + 17, label, "soft", anchor="middle"))
    shapes.append(Stroke(((_LEFT, bottom), (right, bottom)), "soft"))
    shapes.append(Text((_LEFT + right) / 2, bottom + 36, chart.x_label, "soft", anchor="middle"))
    shapes.append(
        Text(14, _TOP + PLOT_HEIGHT / 2, chart.y_label, "soft", anchor="middle", upright=True)
    )
    shapes.append(Text(8, 19, fit(chart.title, WIDTH - 16, _NORMAL), "ink", _NORMAL, bold=True))
    shapes.append(Text(8, 37, fit(chart.subtitle, WIDTH - 16, _SMALL), "soft"))
    for line in chart.lines:
        shapes += _line(line, x_axis, y_axis)
    legend, height = _legend(chart.lines, bottom + _BOTTOM)
    hints = [(line.name, [p.hint for p in line.points if p.hint]) for line in chart.lines]
    described = f"{chart.title}; {chart.subtitle}. " + "; ".join(
        f"{name}: " + ", ".join(said) for name, said in hints if said
    )
    return Drawing(WIDTH, height, chart.title, described, (*shapes, *legend))


def text_width(text: str, size: int) -> float:
    """About as wide as the text will be in DejaVu Sans, which is wider than most fonts."""
    return size * sum(map(_letter_width, text))


@cache
def _letter_width(letter: str) -> float:
    if unicodedata.east_asian_width(letter) in "WF":  # Chinese letters are as wide as high
        return 1.0
    if letter in "mwMW":
        return 0.9
    if letter in " ,.:;'|!ijl-()":
        return 0.36
    return 0.66 if letter.isdigit() or letter.isupper() else 0.6


def fit(text: str, width: float, size: int) -> str:
    """The text, its end cut off where it is too wide."""
    if text_width(text, size) <= width:
        return text
    while text and text_width(text + "…", size) > width:
        text = text[:-1]
    return text.rstrip(" ,") + "…"


def colour_of(look: int) -> str:
    return f"c{look % _LOOKS}"


# ---- axes


@dataclass(frozen=True)
class _Axis:
    """From values to places."""

    low: float
    high: float
    start: float
    end: float
    log: bool
    ticks: tuple[tuple[float, str], ...]

    def at(self, value: float) -> float:
        return self.all_at((value,))[0]

    def all_at(self, values: Iterable[float]) -> list[float]:
        low, high, start, length = self.low, self.high, self.start, self.end - self.start
        values = list(values)
        if values and (min(values) < low or max(values) > high):
            values = [min(max(value, low), high) for value in values]
        if self.log:
            low, high, values = math.log(low), math.log(high), list(map(math.log, values))
        return [start + length * (value - low) / (high - low) for value in values]


def _axes(chart: Chart) -> tuple[_Axis, _Axis]:
    points = [point for line in chart.lines for point in line.points]
    xs = [point.x for point in points]
    if chart.shade:
        xs += chart.shade[:2]
    if chart.y_range:
        low, high = chart.y_range
    else:
        ys = [y for p in points for y in (p.y, p.low, p.high) if y is not None]
        low, high = min(ys), max(ys)
    if chart.log:
        x_low, x_high = min(xs) / 1.15, max(xs) * 1.15
        low, high = low / 1.25, high * 1.25
        y_ticks = _decades(low, high)
    elif chart.from_zero:
        # The ideal line is a diagonal, and what is missing of it at many devices is seen.
        x_low, x_high, low, high = 0.0, max(xs) * 1.04, 0.0, high * 1.04
        y_ticks = _steps(low, high, 6)
    else:
        x_low, x_high = min(xs), max(*xs, min(xs) + 1)
        room = (high - low) * 0.06 or abs(high) * 0.05 or 1
        low, high = low - room, high + room
        y_ticks = _steps(low, high, 5)
    x_ticks = chart.x_ticks or tuple(v for v in _steps(x_low, x_high, 7) if v == int(v))
    horizontal = _Axis(x_low, x_high, _LEFT, WIDTH - _RIGHT, chart.log, _named(x_ticks))
    vertical = _Axis(low, high, _TOP + PLOT_HEIGHT, _TOP, chart.log, _named(y_ticks))
    return _uncrowded(horizontal), vertical


def _uncrowded(axis: _Axis) -> _Axis:
    """Without the labels that would run into the one before."""
    kept: list[tuple[float, str]] = []
    end = -math.inf
    for tick, label in axis.ticks:
        half = text_width(label, _SMALL) / 2
        if axis.at(tick) - half > end + 3:
            kept.append((tick, label))
            end = axis.at(tick) + half
    return _Axis(axis.low, axis.high, axis.start, axis.end, axis.log, tuple(kept))


def _named(ticks: Iterable[float]) -> tuple[tuple[float, str], ...]:
    return tuple((tick, f"{tick:,.10g}") for tick in ticks)


def _decades(low: float, high: float) -> list[float]:
    """As many of 1, 2, 5 and their like in each power of ten as give between 3 and 8 ticks."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: list[float] = []
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
        found = [float(f"{d}e{n}") for n in exponents for d in digits]
        found = [tick for tick in found if low <= tick <= high]
        if len(found) >= 4:
            return found
    return found if len(found) > 1 else _steps(low, high, 4)


def _steps(low: float, high: float, wanted: int) -> list[float]:
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(n * power for n in (1, 2, 5, 10) if n * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    # Rounded, so that 3 * 0.1 is written 0.3.
    digits = max(0, -math.floor(math.log10(step)))
    return [round(n * step, digits) for n in range(first, math.floor(high / step + 1e-9) + 1)]


# ---- lines and their legend


def _line(line: Line, x_axis: _Axis, y_axis: _Axis) -> Iterator[Shape]:
    colour = colour_of(line.look)
    xs, ys = (p.x for p in line.points), (p.y for p in line.points)
    places = tuple(zip(x_axis.all_at(xs), y_axis.all_at(ys), strict=True))
    if line.kind == "ideal":
        yield Stroke(places, colour if line.look >= 0 else "soft", 1, "4 4")
        return
    if line.kind == "series":
        yield Stroke(places, colour, 1.25)
        return
    for point, (x, _) in zip(line.points, places, strict=True):
        if point.low is not None and point.high is not None and line.kind == "measured":
            low, high = y_axis.at(point.low), y_axis.at(point.high)
            yield Stroke(((x, low), (x, high)), colour, 1.5)
            for y in (low, high):
                yield Stroke(((x - 5, y), (x + 5, y)), colour, 1.5)
    measured = line.kind == "measured"
    if measured and len(places) > 1:
        yield Stroke(places, colour, 2, DASHES[line.look // _LOOKS % len(DASHES)])
    for point, (x, y) in zip(line.points, places, strict=True):
        hint = f"{line.name}: {point.hint}" if point.hint else ""
        yield Mark(x, y, mark_of(line), colour, measured, hint)


def mark_of(line: Line) -> str:
    return "published" if line.kind == "published" else MARKS[line.look % len(MARKS)]


def _legend(lines: Sequence[Line], top: float) -> tuple[list[Shape], int]:
    """The names of the lines, each once, in as many rows as they need."""
    shapes: list[Shape] = []
    x, y = 8.0, top + 12
    seen: set[tuple[str, str]] = set()
    for line in lines:
        if not line.name or (line.name, line.kind) in seen:
            continue
        seen.add((line.name, line.kind))
        name = fit(line.name, WIDTH - 60, _SMALL)
        width = 32 + text_width(name, _SMALL) + 12
        if x > 8 and x + width > WIDTH - 8:
            x, y = 8.0, y + _ROW
        colour = "soft" if line.kind == "ideal" else colour_of(line.look)
        if line.kind != "published":
            dash = "4 4" if line.kind == "ideal" else DASHES[line.look // _LOOKS % len(DASHES)]
            width_of_line = 1 if line.kind == "ideal" else 2
            shapes.append(Stroke(((x, y - 4), (x + 26, y - 4)), colour, width_of_line, dash))
        if line.kind in ("measured", "published"):
            filled = line.kind == "measured"
            shapes.append(Mark(x + 13, y - 4, mark_of(line), colour, filled))
        shapes.append(Text(x + 32, y, name))
        x += width
    return shapes, math.ceil(y + 12)
