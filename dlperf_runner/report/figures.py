"""From cases and runs to charts: how throughput scales, and speed over iterations."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
            if points := _points(cases, metric, t):
                drawn.append(Line(name, points, look))
            drawn += _published(name, look, published, metric, t)
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


def _points(cases: Sequence[Record], metric: str, t: Labels) -> tuple[ChartPoint, ...]:
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


def _published(
    name: str, look: int, published: Sequence[Record], metric: str, t: Labels
) -> list[Line]:
    """The published points of a line, all under one name: there may be many publications."""
    column = "speedup" if metric == "speedup" else "value"
    mine = [
        (point, round(value / point["world_size"], 4) if metric == "per_device" else value)
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
