"""The tables of a summary: which cases stand in one table, and how a number is shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..stats.groups import GROUP, records, title
from ..stats.summary import DIGITS, digits
from .tables import Column
from .terminal import PIPE, Screen, table, wrapped

if TYPE_CHECKING:
    import pandas as pd

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

Grid = tuple[list[Column], list[tuple[str, ...]]]


def render(summary: pd.DataFrame, notes: Sequence[str], screen: Screen = PIPE) -> str:
    """Tables by workload, precision and batch size, then the notes."""
    lines: list[str] = []
    for heading, (columns, rows) in groups(summary):
        lines += [*wrapped(heading, screen.prose), "", table(columns, rows, screen)]
    lines = lines or ["No run could be counted.", ""]
    for note in notes:
        lines += wrapped(note, screen.prose, first="- ", rest="  ")
    return "\n".join(lines).rstrip("\n") + "\n"


def groups(summary: pd.DataFrame) -> Iterator[tuple[str, Grid]]:
    """Title, columns and cells of each table, in the order of the rows."""
    by_group: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in records(summary):
        by_group.setdefault(tuple(row[name] for name in GROUP), []).append(row)
    for key, rows in by_group.items():
        yield title(dict(zip(GROUP, key, strict=True))), _grid(rows)


def _grid(rows: list[dict[str, Any]]) -> Grid:
    shown = digits(row["samples_per_second_median"] for row in rows)
    kept = [
        n
        for n, column in enumerate(COLUMNS)
        if (name := _OPTIONAL.get(column.label)) is None
        or any(row[name] is not None for row in rows)
    ]
    texts = (cells(row, shown) for row in rows)
    return [COLUMNS[n] for n in kept], [tuple(row[n] for n in kept) for row in texts]


def cells(row: dict[str, Any], shown: int = DIGITS) -> tuple[str, ...]:
    """The texts of a case in COLUMNS, its rate with this number of digits; `-` is absent."""
    low, high = row["samples_per_second_ci_low"], row["samples_per_second_ci_high"]
    speedup, efficiency, memory = row["speedup"], row["scaling_efficiency"], row["gpu_memory_mib"]
    return (
        str(row["nodes"]),
        str(row["world_size"]),
        f"{row['samples_per_second_median']:.{shown}f}",
        "-" if low is None else f"{low:.{shown}f}-{high:.{shown}f}",
        "-" if speedup is None else f"{speedup:.2f}",
        "-" if efficiency is None else f"{100 * efficiency:.0f} %",
        str(row["repeats"]),
        "-" if memory is None else f"{memory:.0f}",
    )
