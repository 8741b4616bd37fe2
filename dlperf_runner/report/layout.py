"""The tables of a summary: which cases stand in one table, and how a number is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..stats.groups import by_group
from .numbers import rate_decimals, speedup
from .tables import Cell, Column, cell, span
from .terminal import PIPE, Screen, table, wrapped
from .units import is_bandwidth, per_device, rate_unit

PER_DEVICE, INTERVAL, MEMORY = "per device", "interval", "GPU memory (MiB)"
COLUMNS = (
    Column("node_num", True),
    Column("gpu_num", True, stacks=True),
    Column("samples/s", True),
    Column(PER_DEVICE, True, stacks=True),
    Column(INTERVAL, True, stacks=True),
    Column("speedup", True),
    Column("efficiency", True, stacks=True),
    Column("n", True),
    Column(MEMORY, True, stacks=True),
)
_SCALING = ("speedup", "efficiency")
# Columns that a table has only if one of its cases has them.
_OPTIONAL: dict[str, Callable[[dict[str, Any]], object]] = {
    PER_DEVICE: per_device,
    INTERVAL: lambda row: row["samples_per_second_ci_low"],
    MEMORY: lambda row: row["gpu_memory_mib"],
}

Grid = tuple[list[Column], list[tuple[Cell, ...]]]


def render(cases: Sequence[dict[str, Any]], notes: Sequence[str], screen: Screen = PIPE) -> str:
    """Tables by workload, precision and batch size, then the notes."""
    lines: list[str] = []
    for heading, (columns, rows) in groups(cases):
        lines += [*wrapped(heading, screen.prose), "", table(columns, rows, screen)]
    lines = lines or ["No run could be counted.", ""]
    for note in notes:
        lines += wrapped(note, screen.prose, first="- ", rest="  ")
    return "\n".join(lines).rstrip("\n") + "\n"


def groups(cases: Sequence[dict[str, Any]]) -> Iterator[tuple[str, Grid]]:
    """Title, columns and cells of each table, in the order of the cases."""
    for heading, rows in by_group(cases).items():
        yield heading, _grid(rows)


def _grid(rows: list[dict[str, Any]]) -> Grid:
    medians = [row["samples_per_second_median"] for row in rows]
    rate = f".{rate_decimals(rows[0]['workload'], medians)}f"
    left_out = _SCALING if is_bandwidth(rows[0]["workload"]) else ()
    kept = [
        n
        for n, column in enumerate(COLUMNS)
        if column.label not in left_out
        and (
            (value := _OPTIONAL.get(column.label)) is None
            or any(value(row) is not None for row in rows)
        )
    ]
    made = (_cells(row, rate) for row in rows)
    unit = rate_unit(rows[0]["workload"])
    names = {"samples/s": unit, PER_DEVICE: f"{unit}/device"}
    columns = [replace(column, label=names.get(column.label, column.label)) for column in COLUMNS]
    return [columns[n] for n in kept], [tuple(cells[n] for n in kept) for cells in made]


def _cells(row: dict[str, Any], rate: str) -> tuple[Cell, ...]:
    """A case in COLUMNS."""
    return (
        cell(row["nodes"]),
        cell(row["world_size"]),
        cell(row["samples_per_second_median"], rate),
        cell(per_device(row), rate),
        span(row["samples_per_second_ci_low"], row["samples_per_second_ci_high"], rate, "-"),
        cell(row["speedup"], speedup),
        cell(row["scaling_efficiency"], lambda share: f"{100 * share:.0f} %"),
        cell(row["repeats"]),
        cell(row["gpu_memory_mib"], ".0f"),
    )
