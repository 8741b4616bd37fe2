"""Charts of cases and runs: a specification of Vega-Lite, and what vl-convert draws by it.

The same specification becomes a file and, in the page, a chart to point at. vl-convert has Vega,
Vega-Lite and their fonts' measures built in and needs no network. It starts threads, after which a
process must not fork: see `workers`.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from itertools import pairwise, starmap
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..core.files import read_text, write_whole
from ..core.printable import for_xml
from ..core.processors import processors
from .labels import Labels
from .numbers import as_published, rate_decimals, speedup
from .tables import Form, cell

WIDTH = 480
PLOT_HEIGHT = 250
# vl-convert brings Liberation Sans; Arial and Helvetica are as wide. To measure a text in DejaVu
# Sans takes twice the time, which is most of drawing a chart.
FONTS = "Liberation Sans, Arial, Helvetica, DejaVu Sans, Noto Sans CJK SC, sans-serif"

# Colours on white and on near-black: from Okabe and Ito's palette, which colour-blind people can
# tell apart, each tone with a contrast of at least 3:1 with its background. Pictures have those on
# white; the page's style sheet replaces them where it is dark.
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
    "paper": ("#ffffff", "transparent"),
}
_INK, _SOFT, _GRID, _SHADE = (COLOURS[name][0] for name in ("ink", "soft", "grid", "shade"))
_LOOKS = 6
_MARKS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
_SOLID, _DASHED = [1, 0], [4, 4]
_DASHES = (_SOLID, [7, 3], [2, 3], [9, 3, 2, 3])
_SIZES = {"ideal": 500, "series": 500, "measured": 64, "published": 220}  # pixels, squared
_WIDTHS = {"ideal": 1, "series": 1.25, "measured": 2}
_NUMBER = ",.10~g"

Specification = dict[str, Any]
Scale = Literal["log", "log x", "linear"]


class ChartPoint(NamedTuple):
    """A value with its interval, if it has one, and what is said about it. A tuple, because a
    report has a hundred thousand."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    hint: str = ""


@dataclass(frozen=True)
class Line:
    """Points of one name. `look` chooses colour, mark and dash; `kind` is `measured`, `published`
    (marks alone, hollow and large, so that the measured ones show through), `ideal` (a thin dashed
    line) or `series` (a line alone)."""

    name: str
    points: tuple[ChartPoint, ...]
    look: int = 0
    kind: str = "measured"

    @property
    def colour(self) -> str:
        return COLOURS[f"c{self.look % _LOOKS}"][0] if self.look >= 0 else _SOFT


@dataclass(frozen=True)
class Chart:
    """Lines over two axes. `scale` is `log` (both axes), `log x` (and y from zero) or `linear`;
    `shade` is a span of x and its name."""

    title: str
    subtitle: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    scale: Scale = "log"
    x_ticks: tuple[float, ...] = ()
    y_range: tuple[float, float] | None = None  # what is outside is drawn at the edge
    shade: tuple[float, float, str] | None = None

    @property
    def description(self) -> str:
        """The chart in words, for people who cannot see it."""
        hints = ((line.name, [p.hint for p in line.points if p.hint]) for line in self.lines)
        words_of_lines = "; ".join(f"{name}: " + ", ".join(words) for name, words in hints if words)
        return plain(f"{self.title}; {self.subtitle}. {words_of_lines}")


def plain(text: str) -> str:
    """The text without the characters that no XML can hold."""
    return for_xml(text, "\ufffd")


def vega_lite(chart: Chart) -> Specification:
    """The chart as Vega-Lite: `WIDTH` pixels wide, as high as its legend needs."""
    kinds = {line.kind for line in chart.lines}
    colours, dashes, points = _looks(chart.lines)
    x_domain, y_domain = _domains(chart)
    x_axis: Specification = {"grid": False, "labelOverlap": "greedy", "tickMinStep": 1}
    if chart.x_ticks:
        x_axis["values"] = chart.x_ticks
    y_axis: Specification = {"domain": False, "ticks": False, "tickCount": 5}
    if chart.scale == "log":
        y_axis |= {"values": _decades(*y_domain), "labelOverlap": False}
    y = _axis("y", chart.y_label, chart.scale == "log", y_domain, y_axis)
    y["scale"]["clamp"] = chart.y_range is not None
    return {
        "width": WIDTH,
        "height": PLOT_HEIGHT,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "description": chart.description,
        "title": {"text": plain(chart.title), "subtitle": plain(chart.subtitle)},
        "data": {"values": [_row(part, line) for part, line in enumerate(chart.lines)]},
        "transform": [{"flatten": ["x", "y", "low", "high", "hint"]}],
        "encoding": {
            "x": _axis("x", chart.x_label, chart.scale != "linear", x_domain, x_axis),
            "y": y,
            **colours,
        },
        "layer": [*_shade(chart), *_layers(kinds, dashes, points)],
        "config": _CONFIG,
    }


def _row(part: int, line: Line) -> Specification:
    """The points by columns, which are half as long as rows; those without content are empty."""
    xs, ys, lows, highs, hints = zip(*line.points, strict=True)
    ends = any(low is not None for low in lows)
    return {
        "line": plain(line.name),
        "kind": line.kind,
        "part": part,
        "colour": line.colour,
        "x": xs,
        "y": [float(f"{y:.7g}") for y in ys],
        "low": lows if ends else [],
        "high": highs if ends else [],
        "hint": [plain(f"{line.name}: {hint}") for hint in hints] if any(hints) else [],
    }


def _axis(
    field: str, title: str, log: bool, domain: tuple[float, float], axis: Specification
) -> Specification:
    axis = {"title": title, "format": _NUMBER, **axis}
    scale: Specification = {"type": "log"} if log else {"type": "linear", "zero": False}
    scale |= {"nice": False, "domain": domain}
    return {"field": field, "type": "quantitative", "scale": scale, "axis": axis}


def _looks(
    lines: Sequence[Line],
) -> tuple[Specification, Specification, Specification]:
    """The colour of each name, its dash, and how its points look: one legend has them all."""
    named = {plain(line.name): line for line in reversed(lines) if line.name}
    named = dict(reversed(named.items()))
    columns = max(1, 64 // (max(map(len, named), default=0) + 6))
    legend = {"columns": columns, "labelLimit": WIDTH // columns - 48}

    def scaled(values: Iterable[Any]) -> Specification:
        scale = {"type": "ordinal", "domain": list(named), "range": list(values)}
        return {"field": "line", "type": "nominal", "scale": scale, "legend": legend}

    all_lines = named.values()
    colours = (_SOFT if line.kind == "ideal" else line.colour for line in all_lines)
    inside = (line.colour if line.kind == "measured" else "transparent" for line in all_lines)
    return (
        {"stroke": scaled(colours)},
        {"strokeDash": scaled(map(_dash, all_lines))},
        {
            "fill": scaled(inside),
            "shape": scaled(map(_mark, all_lines)),
            "size": {**scaled(_SIZES[line.kind] for line in all_lines), "type": "ordinal"},
        },
    )


def _mark(line: Line) -> str:
    if line.kind in ("ideal", "series"):
        return "stroke"
    return "diamond" if line.kind == "published" else _MARKS[line.look % len(_MARKS)]


def _dash(line: Line) -> list[int]:
    if line.kind == "ideal":
        return _DASHED
    return _DASHES[line.look // _LOOKS % len(_DASHES)] if line.kind == "measured" else _SOLID


# ---- layers, the later above the earlier


def _layers(
    kinds: set[str], dashes: Specification, points: Specification
) -> Iterator[Specification]:
    """Those of the kinds of lines that there are. `dashes` is how lines look, `points` how points
    do; Vega-Lite would add points to a line that had a shape."""
    points = {**points, "tooltip": {"field": "hint", "type": "nominal"}}
    if "ideal" in kinds:
        stroke = {"stroke": {"field": "colour", "type": "nominal", "scale": None}}
        yield _line("ideal", {**dashes, **stroke})
    if "series" in kinds:
        yield _line("series", dashes)
        hint = {
            "calculate": "datum.line+', '+datum.x+': '+format(datum.y,datum.y<10?'.3g':',.2f')",
            "as": "hint",
        }
        unseen = {"type": "point", "strokeOpacity": 0, "strokeWidth": 10}
        yield _layer("series", unseen, points, hint)
    if "measured" in kinds:
        with_interval = {"filter": "isValid(datum.low)"}
        low, high = ({"field": end, "type": "quantitative"} for end in ("low", "high"))
        whole = {"y": low, "y2": {"field": "high"}}
        yield _layer("measured", {"type": "rule", "strokeWidth": 1.5}, whole, with_interval)
        for end in (low, high):
            cap = {"type": "point", "shape": "stroke", "size": 100, "strokeWidth": 1.5}
            yield _layer("measured", cap, {"y": end}, with_interval)
        yield _line("measured", dashes)
        yield _layer("measured", {"type": "point", "strokeWidth": 0}, points)
    if "published" in kinds:
        yield _layer("published", {"type": "point", "strokeWidth": 1.75}, points)


def _line(kind: str, encoding: Specification) -> Specification:
    """A line through its points in their order, which is that of x, then of nodes."""
    mark = {"type": "line", "strokeWidth": _WIDTHS[kind]}
    return _layer(kind, mark, {"detail": {"field": "part"}, "order": {"value": None}, **encoding})


def _layer(
    kind: str, mark: Specification, encoding: Specification, *more: Specification
) -> Specification:
    chosen = [{"filter": {"field": "kind", "equal": kind}}, *more]
    return {"transform": chosen, "mark": mark, "encoding": encoding}


def _shade(chart: Chart) -> Iterator[Specification]:
    if not chart.shade:
        return
    start, end, name = chart.shade
    none = {key: {"value": None} for key in ("stroke", "y")}
    data = {"values": [{"start": start, "end": end}]}
    left = {"field": "start", "type": "quantitative"}
    encoding = {**none, "x": left, "x2": {"field": "end"}, "fill": {"value": _SHADE}}
    yield {"data": data, "mark": "rect", "encoding": encoding}
    (low, high), _ = _domains(chart)
    if 8 * len(name) + 8 < (end - start) / (high - low) * (WIDTH - 80):
        mark = {"type": "text", "align": "left", "dx": 4, "text": plain(name)}
        encoding = {**none, "x": left, "y": {"value": 12}, "fill": {"value": _SOFT}}
        yield {"data": data, "mark": mark, "encoding": encoding}


# ---- axes


def _domains(chart: Chart) -> tuple[tuple[float, float], tuple[float, float]]:
    """From where to where the axes go."""
    points = [point for line in chart.lines for point in line.points]
    xs = [point.x for point in points]
    if chart.shade:
        xs += chart.shade[:2]
    ys = [y for p in points for y in (p.y, p.low, p.high) if y is not None]
    low, high = chart.y_range or (min(ys), max(ys))
    if chart.scale != "linear":
        y_domain = (low / 1.25, high * 1.25) if chart.scale == "log" else (0.0, high * 1.06)
        return (min(xs) / 1.15, max(xs) * 1.15), y_domain
    room = (high - low) * 0.06 or abs(high) * 0.05 or 1
    return (min(xs), max(*xs, min(xs) + 1)), (low - room, high + room)


def _decades(low: float, high: float) -> list[float]:
    """Powers of 2 where few are enough, else as many of 1, 2, 5 and their like in each power of ten
    as give at least 4 ticks."""
    powers = [2.0**n for n in range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)]
    if low < 1 < high and 4 <= len(powers) <= 11:
        return powers
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
        ticks = [float(f"{d}e{n}") for n in exponents for d in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= 4:
            break
    return ticks


_TEXT = {"labelColor": _SOFT, "labelFontSize": 13, "titleColor": _SOFT, "titleFontSize": 13}
_CONFIG = {
    "aria": False,  # the description says it all, at a tenth of the length
    "background": COLOURS["paper"][0],
    "font": FONTS,
    "view": {"stroke": None},
    "padding": 8,
    "axis": {**_TEXT, "titleFontWeight": "normal", "titlePadding": 8, "gridColor": _GRID},
    "axisX": {"domainColor": _SOFT, "tickColor": _SOFT},
    "legend": {
        "orient": "bottom",
        "direction": "horizontal",
        "title": None,
        "labelColor": _INK,
        "labelFontSize": 13,
        "columnPadding": 14,
        "symbolStrokeWidth": 1.75,
        "symbolOpacity": 1,
        "symbolStrokeOpacity": 1,
    },
    "point": {"opacity": 1},
    "text": {"fontSize": 13},
    "title": {
        "anchor": "start",
        "frame": "bounds",
        "color": _INK,
        "fontSize": 15,
        "offset": 14,
        "subtitleColor": _SOFT,
        "subtitleFontSize": 13,
        "limit": WIDTH - 16,
    },
}


_SCALE = 1.5  # pixels of a PNG for one of the chart
_PICTURES_PER_WORKER = 16  # to start a worker costs as much as to draw nine


class Picture(NamedTuple):
    """One chart: text for a page or a file, and the same as pixels and for papers."""

    svg: str
    png: bytes
    pdf: bytes


def draw(chart: Chart) -> Picture:
    """The chart on white. The same chart always gives the same bytes on one machine."""
    import vl_convert

    head, shapes = vl_convert.vegalite_to_svg(vega_lite(chart)).split(">", 1)
    texts = f"<title>{escape(chart.title)}</title><desc>{escape(chart.description)}</desc>"
    svg = f'{head} role="img">{texts}{shapes}'
    return Picture(svg, vl_convert.svg_to_png(svg, scale=_SCALE), vl_convert.svg_to_pdf(svg))


def look_different(one: str = "\u6bd4", other: str = "\u901f") -> bool:
    """True if two letters are different pictures in the fonts of charts. Chinese ones look alike
    on a machine without a font for them."""
    import vl_convert

    text = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">'
    text += f'<text y="16" font-family="{FONTS}">{{}}</text></svg>'
    first, second = (vl_convert.svg_to_png(text.format(letter)) for letter in (one, other))
    return bool(first != second)


def program() -> str:
    """Vega and Vega-Lite as one script, which defines `vegaEmbed`. Putting it together takes two
    seconds, so the user's cache keeps it if it can be written."""
    import vl_convert

    # RuntimeError: the user has no home.
    with suppress(OSError, RuntimeError, UnicodeDecodeError):
        return read_text(_cache())
    script = vl_convert.javascript_bundle("window.vegaEmbed=vegaEmbed")
    with suppress(OSError, RuntimeError):
        write_whole(_cache(), script)
    return script


def _cache() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return folder / "dlperf_runner" / f"vega-{version('vl-convert-python')}.js"


@contextmanager
def workers(pictures: int) -> Iterator[ProcessPoolExecutor]:
    """New processes that draw so many pictures while this one goes on. They are not forks of this
    one, which may have threads of vl-convert."""
    most = min(processors(), 8)
    wanted = min(most, 1 + pictures // _PICTURES_PER_WORKER)
    with ProcessPoolExecutor(wanted, mp_context=get_context("spawn")) as pool:
        yield pool


Record = Mapping[str, Any]
_EDGE = 0.05  # room above and below a run's window, as part of its middle


def scaling(
    title: str,
    lines: Mapping[str, Sequence[Record]],
    published: Sequence[Record],
    unit: str,
    t: Labels,
) -> Iterator[tuple[str, Chart]]:
    """Throughput, throughput per device and speed-up, each with its name, of cases that may stand
    in one chart, by the name of their line; none where no line has two points. `published` are
    points with the `line` they belong to; `unit` is that of all rates."""
    if all(len({record["world_size"] for record in cases}) < 2 for cases in lines.values()):
        return
    all_cases = [case for cases in lines.values() for case in cases]
    ticks = tuple(sorted({float(case["world_size"]) for case in all_cases}))
    scales = any(case["speedup"] is not None for case in all_cases)
    for metric in ("throughput", "per_device", "speedup") if scales else ("throughput",):
        label = {"throughput": unit, "per_device": f"{unit}/{t('device')}", "speedup": t(metric)}
        drawn = [*_ideal(lines, metric, ticks[-1], t)]
        for look, (name, cases) in enumerate(lines.items()):
            if points := _chart_points(cases, metric, t):
                drawn.append(Line(name, points, look))
            drawn += _published_lines(name, look, published, metric, t)
        yield (
            metric.replace("_", "-"),
            Chart(
                t(metric),
                title,
                t("devices"),
                label[metric],
                tuple(drawn),
                scale="log x" if metric == "per_device" else "log",
                x_ticks=ticks,
            ),
        )


def _ideal(
    lines: Mapping[str, Sequence[Record]], metric: str, most: float, t: Labels
) -> Iterator[Line]:
    """A line from each base: the throughput grows as the devices do, or stays per device. Speed-ups
    over as many devices share one."""
    drawn = set()
    for look, cases in enumerate(lines.values()):
        base = min(cases, key=lambda case: (case["world_size"], case["nodes"]))
        start, end = base["world_size"], max(case["world_size"] for case in cases)
        end = most if metric == "speedup" else end
        if base["speedup"] is None or end <= start:
            continue
        first, _, _ = _values(base, metric)
        last = first if metric == "per_device" else first * end / start
        ends = (ChartPoint(start, first), ChartPoint(end, last))
        if ends not in drawn:
            yield Line(t("ideal"), ends, -1 if metric == "speedup" else look, "ideal")
        drawn.add(ends)


def _values(case: Record, metric: str) -> tuple[Any, Any, Any]:
    """A case's number and the ends of its interval, None if it has none."""
    if metric == "speedup":
        return case["speedup"], case.get("speedup_ci_low"), case.get("speedup_ci_high")
    names = (f"samples_per_second_{name}" for name in ("median", "ci_low", "ci_high"))
    devices = case["world_size"] if metric == "per_device" else 1
    median, low, high = (None if (v := case.get(name)) is None else v / devices for name in names)
    return median, low, high


def _chart_points(cases: Sequence[Record], metric: str, t: Labels) -> tuple[ChartPoint, ...]:
    points = []
    for case in sorted(cases, key=lambda case: (case["world_size"], case["nodes"])):
        value, low, high = _values(case, metric)
        if value is None or not value > 0:
            continue  # has no place on a logarithmic axis
        positive = low is not None and high is not None and low > 0
        key = f"point_{metric}_interval" if positive else f"point_{metric}"
        form: Form = f",.{rate_decimals(case['workload'], [value])}f"
        form = speedup if metric == "speedup" else form
        numbers = {"value": value, "low": low, "high": high}
        texts = {name: cell(number, form).text for name, number in numbers.items()}
        hint = t(key, devices=case["world_size"], unit=case["unit"], **texts)
        low, high = (low, high) if positive else (None, None)
        points.append(ChartPoint(case["world_size"], value, low, high, hint))
    return tuple(points)


def _published_lines(
    name: str, look: int, published: Sequence[Record], metric: str, t: Labels
) -> list[Line]:
    """The published points of a line, all under one name: there may be many publications."""
    column = "speedup" if metric == "speedup" else "value"
    placed = [
        (point, round(value / point["world_size"], 4) if metric == "per_device" else value)
        for point in published
        if point["line"] == name and (value := point.get(column)) is not None and value > 0
    ]
    if not placed:
        return []
    points = tuple(ChartPoint(p["world_size"], value, hint=_cited(value, p)) for p, value in placed)
    # On paper nothing else says that an A100 is no V100.
    on = sorted({_product(str(point.get("factors") or "")) for point, _ in placed} - {""})
    label = t("published_line", name=name)
    return [Line(f"{label} ({', '.join(on)})" if on else label, points, look, "published")]


def _product(factors: str) -> str:
    """V100 of `V100-SXM2-32GB, tensorflow 1.15.4, XLA, real data`."""
    return factors.split(",")[0].split("-")[0]


def _cited(value: float, point: Record) -> str:
    where = (point.get("published_title"), point.get("published_date"), point.get("factors"))
    return ", ".join(filter(None, (as_published(value), *where)))


# ---- speed over iterations


def over_iterations(
    title: str,
    subtitle: str,
    series: Iterable[Any],
    left_out: set[int],
    budget: int,
    unit: str,
    t: Labels,
) -> Chart | None:
    """The speed of each run of a case, its warm-up shaded; None where there is nothing to draw.

    `left_out` are the repeats that are not counted; each line gets at most `budget` points.
    """
    lines: list[Line] = []
    window: list[float] = []
    everything: list[float] = []
    warmup = 0.0
    for one in sorted(series, key=lambda item: item.run.repeat):
        pairs = list(zip(one.steps, one.samples_per_second, strict=True))
        if not pairs:
            continue
        repeat = one.run.repeat
        warmup = max(warmup, float(one.warmup_steps))
        everything += one.samples_per_second
        window += one.samples_per_second[bisect_right(one.steps, one.warmup_steps) :]
        name = t("repeat_not_counted" if repeat in left_out else "repeat", repeat=repeat)
        points = tuple(starmap(ChartPoint, thinned(pairs, budget)))
        lines.append(Line(name, points, len(lines), "series"))
    if not lines or len(everything) < 2:
        return None
    low, high = min(window or everything), max(window or everything)
    room = max((high - low) * 0.5, abs(high) * _EDGE)
    return Chart(
        title,
        subtitle,
        t("iteration"),
        unit,
        tuple(lines),
        scale="linear",
        y_range=(max(low - room, min(everything)), min(high + room, max(everything))),
        shade=(0.0, warmup, t("warmup")) if warmup else None,
    )


def thinned(pairs: Sequence[tuple[int, float]], most: int) -> Sequence[tuple[int, float]]:
    """At most so many of the pairs, the lowest and the highest of each stretch: what sticks out
    stays."""
    if len(pairs) <= most:
        return pairs
    stretches = max(1, most // 2)
    rates = [rate for _, rate in pairs]
    ends = [number * len(pairs) // stretches for number in range(stretches + 1)]
    kept: list[tuple[int, float]] = []
    for start, end in pairwise(ends):
        stretch = rates[start:end]
        low, high = stretch.index(min(stretch)), stretch.index(max(stretch))
        kept.append(pairs[start + min(low, high)])
        if low != high:
            kept.append(pairs[start + max(low, high)])
    return kept
