"""From cases and runs to charts: throughput and speed-up over devices, speed over iterations."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, starmap
from typing import Any

from .charts import Chart, ChartPoint, Line
from .labels import Labels
from .numbers import as_published, rate_decimals, speedup
from .tables import Form, cell

Record = Mapping[str, Any]
_EDGE = 0.05  # room above and below a run's window, as part of its middle


def scaling(
    title: str,
    lines: Mapping[str, Sequence[Record]],
    published: Sequence[Record],
    unit: str,
    t: Labels,
) -> list[Chart]:
    """Throughput and speed-up of cases that may stand in one chart, by the name of their line;
    none where no line has two points. `published` are points with the `line` they belong to; `unit`
    is that of all rates."""
    if all(len({record["world_size"] for record in cases}) < 2 for cases in lines.values()):
        return []
    all_cases = [case for cases in lines.values() for case in cases]
    ticks = tuple(sorted({float(case["world_size"]) for case in all_cases}))
    drawn = _throughput(lines, published, t)
    charts = [Chart(t("throughput"), title, t("devices"), unit, drawn, x_ticks=ticks)]
    if any(case["speedup"] is not None for case in all_cases):
        drawn = _speedup(lines, published, ticks[-1], t)
        names = (t("speedup"), title, t("devices"), t("speedup"))
        charts.append(Chart(*names, drawn, log=False, from_zero=True, x_ticks=ticks))
    return charts


def _throughput(
    lines: Mapping[str, Sequence[Record]], published: Sequence[Record], t: Labels
) -> tuple[Line, ...]:
    drawn: list[Line] = []
    for look, cases in enumerate(lines.values()):
        base, end = _base(cases), max(case["world_size"] for case in cases)
        if base is not None and end > base["world_size"]:
            rate, devices = base["samples_per_second_median"], base["world_size"]
            ends = (ChartPoint(devices, rate), ChartPoint(end, rate / devices * end))
            drawn.append(Line(t("ideal"), ends, look, "ideal"))
    for look, (name, cases) in enumerate(lines.items()):
        drawn.append(Line(name, _points(cases, "samples_per_second", t), look))
        drawn += _published(name, look, published, "value", t)
    return tuple(drawn)


def _speedup(
    lines: Mapping[str, Sequence[Record]], published: Sequence[Record], most: float, t: Labels
) -> tuple[Line, ...]:
    drawn: list[Line] = []
    bases = {base["world_size"] for cases in lines.values() if (base := _base(cases)) is not None}
    for devices in sorted(bases):
        ends = (ChartPoint(devices, 1), ChartPoint(most, most / devices))
        drawn.append(Line(t("ideal"), ends, -1, "ideal"))
    for look, (name, cases) in enumerate(lines.items()):
        points = _points([case for case in cases if case["speedup"] is not None], "speedup", t)
        if points:
            drawn.append(Line(name, points, look))
        drawn += _published(name, look, published, "speedup", t)
    return tuple(drawn)


def _base(cases: Sequence[Record]) -> Record | None:
    """The case that the speed-ups are relative to."""
    smallest = min(cases, key=lambda case: (case["world_size"], case["nodes"]))
    return smallest if smallest["speedup"] is not None else None


def _points(cases: Sequence[Record], metric: str, t: Labels) -> tuple[ChartPoint, ...]:
    value = "samples_per_second_median" if metric == "samples_per_second" else metric
    found = []
    for case in sorted(cases, key=lambda case: (case["world_size"], case["nodes"])):
        low, high = case.get(f"{metric}_ci_low"), case.get(f"{metric}_ci_high")
        if not case[value] > 0:
            continue  # has no place on a logarithmic axis
        positive = low is not None and high is not None and low > 0
        key = f"point_{metric}_interval" if positive else f"point_{metric}"
        form = _form(case, metric)
        numbers = {"value": case[value], "low": low, "high": high}
        texts = {name: cell(number, form).text for name, number in numbers.items()}
        hint = t(key, devices=case["world_size"], unit=case["unit"], **texts)
        ends = (low, high) if positive else (None, None)
        found.append(ChartPoint(case["world_size"], case[value], *ends, hint))
    return tuple(found)


def _form(case: Record, metric: str) -> Form:
    if metric == "speedup":
        return speedup
    return f",.{rate_decimals(case['workload'], [case['samples_per_second_median']])}f"


def _published(
    name: str, look: int, published: Sequence[Record], column: str, t: Labels
) -> list[Line]:
    """The published points of a line, all under one name: there may be many publications."""
    mine = [
        (point, value)
        for point in published
        if point["line"] == name and (value := point.get(column)) is not None and value > 0
    ]
    if not mine:
        return []
    points = tuple(ChartPoint(p["world_size"], value, hint=_cited(value, p)) for p, value in mine)
    # On paper nothing else says that an A100 is no V100.
    on = sorted({_product(str(point.get("factors") or "")) for point, _ in mine} - {""})
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
        log=False,
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
