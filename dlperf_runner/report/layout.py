"""The tables of a summary: which cases stand in one table, and how a number is shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..stats.groups import by_group
from .numbers import rate_decimals, speedup
from .tables import Cell, Column, cell, span
from .terminal import PIPE, Screen, table, wrapped

INTERVAL, MEMORY = "interval", "GPU memory (MiB)"
COLUMNS = (
    Column("node_num", True),
    Column("gpu_num", True, stacks=True),
    Column("samples/s", True),
    Column(INTERVAL, True, stacks=True),
    Column("speedup", True),
    Column("efficiency", True, stacks=True),
    Column("n", True),
    Column(MEMORY, True, stacks=True),
)
# Columns that a table has only if one of its cases has them.
_OPTIONAL = {INTERVAL: "samples_per_second_ci_low", MEMORY: "gpu_memory_mib"}

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
    kept = [
        n
        for n, column in enumerate(COLUMNS)
        if (name := _OPTIONAL.get(column.label)) is None
        or any(row[name] is not None for row in rows)
    ]
    made = (_cells(row, rate) for row in rows)
    return [COLUMNS[n] for n in kept], [tuple(cells[n] for n in kept) for cells in made]


def _cells(row: dict[str, Any], rate: str) -> tuple[Cell, ...]:
    """A case in COLUMNS."""
    return (
        cell(row["nodes"]),
        cell(row["world_size"]),
        cell(row["samples_per_second_median"], rate),
        span(row["samples_per_second_ci_low"], row["samples_per_second_ci_high"], rate, "-"),
        cell(row["speedup"], speedup),
        cell(row["scaling_efficiency"], lambda share: f"{100 * share:.0f} %"),
        cell(row["repeats"]),
        cell(row["gpu_memory_mib"], ".0f"),
    )
