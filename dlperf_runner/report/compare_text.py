"""Comparisons for a terminal: mine beside the published, two campaigns, publications."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..compare.verdicts import together
from ..core.identity import GROUP, label
from ..stats.groups import by_group, records, title
from .layout import table_lines
from .numbers import exact_decimals, percent, rate_decimals, ratio
from .tables import Form, cell
from .terminal import Column, columns
from .text import counted, wrapped

if TYPE_CHECKING:
    import pandas as pd

    from ..compare.publications import SideBySide

Record = Mapping[str, Any]
Grid = list[tuple[str, ...]]


def render_published(
    table: pd.DataFrame, tolerance: float, width: int = 80, limit: float | None = None
) -> str:
    """A table per workload and settings with the verdicts, and below each where the numbers stand
    and what differs; then the verdicts counted."""
    width = max(width, 40)
    rows = records(table)
    lines: list[str] = []
    for heading, group in by_group(rows).items():
        lines += [*wrapped(heading, width), ""]
        lines += [*_fitting([_published_grid(group, n, limit) for n in range(3)], width), ""]
        for text, column in (
            ("not comparable because of ", "factors"),
            ("also differs or is not known: ", "noted"),
            ("not stated by the publication: ", "unknown"),
            ("not recorded, and taken as published: ", "assumed"),
        ):
            found = [row for row in group if row[column]]
            if column == "factors":
                lines += _said("not published: ", _unpublished(found), column, group, width)
                found = [row for row in found if row["report"] is not None]
            lines += _said(text, found, column, group, width)
        lines += _said("undecided: ", _having(group, "why"), "why", group, width)
        lines += _cited(group, width)
        lines.append("")
    if not rows:
        return "No run could be counted.\n"
    lines += wrapped(
        f"{_counts([row['verdict'] for row in rows])}. Reproduced is a ratio within "
        f"{1 - tolerance:.2f} to {1 + tolerance:.2f}, all of its interval.",
        width,
    )
    if any(row["ratio"] is not None and row["ratio_low"] is None for row in rows):
        lines += wrapped("Fewer than 3 runs have no interval and are undecided.", width)
    return "\n".join([*lines, *_gate(rows, limit, width)]) + "\n"


def render_campaigns(
    table: pd.DataFrame, names: tuple[str, str], limit: float | None, width: int = 80
) -> str:
    """A table per workload and settings, then what the two ran on where that differs, what is in
    one of them only, and what the limit says."""
    width = max(width, 40)
    rows = records(table)
    if not rows:
        return "No run could be counted.\n"
    lines = [*wrapped(f"a: {names[0]}", width), *wrapped(f"b: {names[1]}", width), ""]
    setting = ("workload", "model", "source", "precision", "batch_size_per_device")
    for key, group in _grouped(rows, setting).items():
        lines += [*wrapped(_setting(dict(zip(setting, key, strict=True))), width), ""]
        lines += [*_fitting([_campaign_grid(group, n, limit) for n in range(3)], width), ""]
        lines += _said("differs in ", _having(group, "environment"), "environment", group, width)
        lines += _said("not paired: ", _having(group, "apart"), "apart", group, width)
        if limit is not None:
            unknown = "not recorded on either side, so it may differ: "
            lines += _said(unknown, _having(group, "unrecorded"), "unrecorded", group, width)
        lines += _said("undecided: ", _having(group, "why"), "why", group, width)
        if lines[-1]:
            lines.append("")
    compared = [row for row in rows if row["p_value"] is not None]
    lines += wrapped(f"{_counts([row['verdict'] for row in rows])}.", width)
    if len(compared) > 1:
        text = (
            f"The intervals of all {len(compared)} cases are right together in 95 % of comparisons."
            " Perhaps faster or slower holds for a case alone, but not among so many."
        )
        lines += wrapped(text, width)
        lines += _together(rows, width)
    return "\n".join([*lines, *_gate(rows, limit, width)]) + "\n"


def _together(rows: Sequence[Record], width: int) -> list[str]:
    found = together(rows)
    if found is None:
        return []
    interval = f"{percent(found.relative_low)} to {percent(found.relative_high)}"
    text = f"Mean of {found.cases} cases: {interval}, {found.verdict}. Single cases may differ."
    return wrapped(text, width)


def render_publications(groups: Sequence[SideBySide], width: int = 80) -> str:
    """Each number with what tells it from the others of its group."""
    from ..compare.publications import values_of

    width = max(width, 40)
    if not groups:
        return "No publications seem to contradict each other.\n"
    lines: list[str] = []
    for group in groups:
        numbers = group.numbers
        heading = f"{group.framework} {group.model} {group.precision}, {group.topology}"
        if len(numbers) > 1:
            heading += f": {counted(len(numbers), 'number')}, {group.spread:.0%} apart"
        lines += wrapped(heading, width)
        shown = exact_decimals(number.samples_per_second for number in numbers)
        wide = max(len(f"{number.samples_per_second:.{shown}f}") for number in numbers)
        for number in numbers:
            values = values_of(number, group.factors)
            text = f"{number.samples_per_second:{wide}.{shown}f}  {number.title}, {number.date}"
            lines += wrapped(text, width, first="  ", rest=" " * (wide + 4))
            named = ", ".join(f"{label(name)} {v}" for name, v in values.items())
            lines += wrapped(named, width, first=" " * (wide + 4), rest=" " * (wide + 4))
        lines.append("")
    return "\n".join(lines)


# ---- pieces


def _grouped(rows: Sequence[Record], columns: Sequence[str]) -> dict[tuple[Any, ...], list[Record]]:
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in columns), []).append(row)
    return groups


def _fitting(grids: Sequence[Grid], width: int) -> list[str]:
    """The first of the tables that is not wider than the terminal; else the last without its
    lines, its verdicts in several lines, or each row as a block of lines."""
    for grid in grids:
        lines = table_lines(grid)
        if len(lines[0]) <= width:
            return lines
    header, *rows = grids[-1]
    named = [Column(name, wraps=name == "verdict") for name in header]
    return columns(named, rows, width).splitlines()


def _published_grid(rows: Sequence[Record], left_out: int, limit: float | None) -> Grid:
    """The whole table, then without the intervals of mine, then without any."""
    shown = rate_decimals(rows[0]["workload"], [row["mine"] for row in rows])
    gate = [f"limit {limit:.1%}"] if limit is not None else []
    header = ("topology", "samples/s", "n", "published", "n", "ratio", "verdict")
    grid: Grid = [(*header, *gate)]
    for row in rows:
        mine, quotient = f"{row['mine']:.{shown}f}", _or_dash(row["ratio"], ratio)
        if left_out < 1:
            mine += _interval(row["mine_low"], row["mine_high"], f".{shown}f")
        if left_out < 2:
            quotient += _interval(row["ratio_low"], row["ratio_high"], ratio)
        numbers = (mine, str(row["repeats"]), _or_dash(row["published"], _as_published))
        repeats = _or_dash(row["published_repeats"], ".0f", absent="?")
        if row["published"] is None:
            repeats = "-"
        limits = [row["limit_verdict"] or "-"] if gate else []
        grid.append((_topology(row), *numbers, repeats, quotient, row["verdict"], *limits))
    return grid


def _campaign_grid(rows: Sequence[Record], left_out: int, limit: float | None) -> Grid:
    """The whole table, then without bound, p-value and effect size, then without the interval."""
    header = ["topology", "a", "n", "b", "n", "difference"]
    tests = ["at worst", "p", "effect"] if left_out < 1 else []
    gate = [f"limit {limit:.1%}"] if limit is not None else []
    grid: Grid = [(*header, *tests, "verdict", *gate)]
    for row in rows:
        shown = rate_decimals(row["workload"], (row["a"], row["b"]))
        change = _or_dash(row["relative"], percent)
        if left_out < 2:
            change += _interval(row["relative_low"], row["relative_high"], percent)
        sides = (
            *(_or_dash(row["a"], f".{shown}f"), str(row["n_a"])),
            *(_or_dash(row["b"], f".{shown}f"), str(row["n_b"])),
        )
        forms: dict[str, Form] = {"at_worst": percent, "p_value": ".2g", "effect_size": "+.2f"}
        statistics = [_or_dash(row[name], form) for name, form in forms.items()]
        limits = [row["limit_verdict"] or "-"] if limit is not None else []
        cells = (*sides, change, *(statistics if tests else []), row["verdict"], *limits)
        grid.append((_topology(row), *cells))
    return grid


def _topology(row: Record) -> str:
    return f"{row['nodes']}n{row['gpus_per_node']}g"


def _or_dash(value: float | None, form: Form, *, absent: str = "-") -> str:
    return absent if value is None else cell(value, form).text


def _as_published(value: float) -> str:
    return f"{value:.{exact_decimals([value])}f}"


def _interval(low: float | None, high: float | None, form: Form) -> str:
    if low is None or high is None:
        return ""
    return f" ({cell(low, form).text} to {cell(high, form).text})"


def _having(rows: Sequence[Record], column: str) -> list[Record]:
    return [row for row in rows if row[column]]


def _unpublished(rows: Sequence[Record]) -> list[Record]:
    return [row for row in rows if row["report"] is None]


def _said(
    label: str, rows: Sequence[Record], column: str, group: Sequence[Record], width: int
) -> list[str]:
    """The texts of a column, each once, with the topologies it is of unless it is of all."""
    texts: dict[str, list[str]] = {}
    for row in rows:
        texts.setdefault(row[column], []).append(_topology(row))
    lines = []
    for text, topologies in texts.items():
        where = "" if len(topologies) == len(group) else f"{', '.join(topologies)}: "
        lines += wrapped(f"{where}{label}{text}", width, first="- ", rest="  ")
    return lines


def _cited(group: Sequence[Record], width: int) -> list[str]:
    sources = dict.fromkeys(
        f"published: {row['published_title']}, {row['published_date']} ({row['published_source']})"
        for row in group
        if row["report"] is not None
    )
    return [line for text in sources for line in wrapped(text, width, first="- ", rest="  ")]


def _setting(row: Record) -> str:
    key = {**dict.fromkeys(GROUP), **row}
    return title(key)


def _gate(rows: Sequence[Record], limit: float | None, width: int) -> list[str]:
    if limit is None:
        return []
    verdicts = [row["limit_verdict"] for row in rows if row["limit_verdict"]]
    return wrapped(f"Not slower by {limit:.1%}: {_counts(verdicts) or 'no case'}.", width)


def _counts(verdicts: Sequence[str]) -> str:
    return ", ".join(f"{number} {verdict}" for verdict, number in Counter(verdicts).items())
