"""The history as a table of cases, as a table of one case over time, and as its chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Any

from ..core.identity import ENVIRONMENT, label, value_text
from ..core.lists import grouped
from ..history.store import Point
from ..stats.change_points import CORRELATION, LEVEL, ChangePoint, change_points
from .charts import Chart, ChartPoint, Line
from .numbers import common_unit, named_record, rate_decimals
from .tables import Column, cell, span
from .terminal import PIPE, Screen, table, wrapped


def by_case(points: Sequence[Point]) -> dict[str, list[Point]]:
    """The points of each case, in the order of time. What counted something else at another time is
    another case."""
    units: dict[str, set[str]] = {}
    for point in points:
        units.setdefault(point["case_id"], set()).add(point["unit"])

    def name(point: Point) -> str:
        case: str = point["case_id"]
        return case if len(units[case]) == 1 else f"{case} in {point['unit']}"

    return grouped(points, name)


def document(
    cases: Mapping[str, Sequence[Point]], changes: Mapping[str, Sequence[ExplainedChange]]
) -> list[dict[str, Any]]:
    """The document of `history --json`."""
    return [
        {
            "case_id": name,
            "points": [named_record(point) for point in points],
            "change_points": [
                {
                    **asdict(change),
                    "campaign": points[change.index]["campaign"],
                    "created": points[change.index]["created"],
                }
                for change in changes[name]
            ],
        }
        for name, points in cases.items()
    ]


@dataclass(frozen=True)
class ExplainedChange(ChangePoint):
    """A change point, with what differs between the campaigns before and after it: the values of
    each column, those of several campaigns joined. `unrecorded` is unknown throughout."""

    differs: Mapping[str, tuple[str, str]]
    unrecorded: tuple[str, ...]

    @property
    def causes(self) -> list[str]:
        """Possible causes of the change, in words."""
        unknown = ", ".join(map(label, self.unrecorded))
        return [*_differing(self.differs), *([f"not recorded: {unknown}"] if unknown else [])]


def explained(points: Sequence[Point]) -> list[ExplainedChange]:
    """The change points with everything in which the campaigns on their two sides, up to the next
    change points, differ."""
    changes = change_points([point["samples_per_second_median"] for point in points])
    ends = [0, *(change.index for change in changes), len(points)]
    return [
        ExplainedChange(**asdict(change), **_between(points[start : change.index], points[at:end]))
        for change, start, at, end in zip(changes, ends, ends[1:], ends[2:], strict=False)
    ]


def _between(before: Sequence[Point], after: Sequence[Point]) -> dict[str, Any]:
    """The differences between two sequences of campaigns, and what is unknown in both."""
    differs, unrecorded = {}, []
    cpu = all(point["accelerator"] == "cpu" for point in before)
    for name in ENVIRONMENT:
        sides = [dict.fromkeys(point[name] for point in side) for side in (before, after)]
        if {*sides[0]} != {*sides[1]}:
            differs[name] = tuple(" or ".join(map(value_text, side)) for side in sides)
        elif [*sides[0]] == [None] and not (cpu and name in ("driver", "node_gpus")):
            unrecorded.append(name)
    return {"differs": differs, "unrecorded": tuple(unrecorded)}


def _differing(differs: Mapping[str, tuple[str, str]]) -> list[str]:
    return [f"{label(name)} {old} -> {new}" for name, (old, new) in differs.items()]


def cases_table(
    cases: Mapping[str, Sequence[Point]],
    changes: Mapping[str, Sequence[ExplainedChange]],
    screen: Screen = PIPE,
) -> str:
    """A row for each case: where it changed, and its latest median."""
    rows = []
    unit = common_unit(points[0]["unit"] for points in cases.values())
    for name, points in cases.items():
        last, changed = points[-1], ""
        if changes[name]:
            change = changes[name][-1]
            place = points[change.index]
            changed = f"{_change(change)} since {place['created'][:10]} {place['campaign']}"
            changed = "; ".join([changed, *change.causes])
        rate = _rates(last)[0] if unit else f"{_rates(last)[0]} {last['unit']}"
        rows.append((name, changed, str(len(points)), last["created"][:10], rate))
    columns = (
        *(Column("case"), Column("changed", stacks=True, wraps=True)),
        *(Column("n", True), Column("latest"), Column(unit or "throughput", True, stacks=True)),
    )
    return table(columns, rows, screen)


def since(
    points: Sequence[Point], changes: Sequence[ExplainedChange], start: datetime | None
) -> tuple[list[Point], list[ExplainedChange]]:
    """The points and changes from then on. Change points are those among all campaigns, because the
    last few alone are too few."""
    if start is None:
        return list(points), list(changes)
    shown = [point for point in points if datetime.fromisoformat(point["created"]) >= start]
    before = len(points) - len(shown)
    kept = [replace(c, index=c.index - before) for c in changes if c.index >= before]
    return shown, kept


def case_table(
    points: Sequence[Point], changes: Sequence[ExplainedChange], screen: Screen = PIPE
) -> str:
    """A row for each campaign of one case; the first of a new level is marked."""
    marked = {change.index: change for change in changes}
    rows = []
    for index, point in enumerate(points):
        words = []
        if change := marked.get(index):
            words = [f"changed by {_change(change)} (p = {change.p_value:.3g})", *change.causes]
        elif index:
            words = _differing(_between([points[index - 1]], [point])["differs"])
        rows.append(
            (
                point["created"][:16].replace("T", " "),
                point["campaign"],
                *_rates(point),
                str(point["repeats"]),
                "; ".join(words),
            )
        )
    columns = (
        *(Column("created"), Column("campaign", stacks=True)),
        Column(points[0]["unit"], True),
        *(Column("interval", True, stacks=True), Column("n", True)),
        Column("what changed", wraps=True),
    )
    return table(columns, rows, screen)


def about_changes(changes: Mapping[str, Sequence[ChangePoint]], screen: Screen = PIPE) -> str:
    """The rate of false change points, in words; empty if no change is shown."""
    if not any(changes.values()):
        return ""
    text = (
        f"A case that never changed has a chance below {LEVEL:.0%} of being marked within 100"
        f" campaigns, if neighbouring campaigns correlate by at most {CORRELATION}; more if they"
        " correlate more."
    )
    return "".join(f"{line}\n" for line in ["", *wrapped(text, screen.prose)])


def _change(change: ChangePoint) -> str:
    return f"{100 * (change.after / change.before - 1):+.1f} %"


def _rates(point: Point) -> tuple[str, str]:
    """Median and interval, with the decimals of the median."""
    rate, low, high = (point[f"samples_per_second_{n}"] for n in ("median", "ci_low", "ci_high"))
    form = f".{rate_decimals(point['workload'], [rate])}f"
    return cell(rate, form).text, span(low, high, form, "-").text


def chart(name: str, points: Sequence[Point], changes: Sequence[ChangePoint]) -> Chart:
    """A case over its campaigns, the oldest at 1: medians with their intervals, the level between
    change points, and a line at each of these."""
    rates = [point["samples_per_second_median"] for point in points]
    marks = tuple(
        ChartPoint(
            place,
            point["samples_per_second_median"],
            point["samples_per_second_ci_low"],
            point["samples_per_second_ci_high"],
            f"{point['created'][:10]} {point['campaign']}: {_rates(point)[0]}",
        )
        for place, point in enumerate(points, start=1)
    )
    values = [y for mark in marks for y in (mark.y, mark.low, mark.high) if y is not None]
    lines = [Line("median and its interval", marks)]
    for change in changes:
        at = change.index + 0.5
        ends = (ChartPoint(at, min(values)), ChartPoint(at, max(values)))
        lines.append(Line("change point", ends, -1, "ideal"))
    places = [0, *(change.index for change in changes), len(points)]
    for start, end in pairwise(places) if changes else ():
        if start == end:  # it changed with the first that is shown
            continue
        level = median(rates[start:end])
        ends = (ChartPoint(start + 0.6, level), ChartPoint(end + 0.4, level))
        lines.append(Line("level", ends, 1, "series"))
    dates = f"{points[0]['created'][:10]} to {points[-1]['created'][:10]}"
    ticks = tuple(float(n) for n in range(1, len(points) + 1, max(1, len(points) // 12)))
    return Chart(
        name,
        dates,
        "campaign, the oldest first",
        points[0]["unit"],
        tuple(lines),
        scale="linear",
        x_ticks=ticks,
    )
