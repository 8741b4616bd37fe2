"""What the written reports share: which cases stand in one table, and how a number is shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..stats.groups import by_group, records
from .numbers import PUBLISHED, rate_decimals, speedup

if TYPE_CHECKING:
    import pandas as pd

HEADER = ("node_num", "gpu_num", "samples/s", "speedup", "efficiency", "n")
INTERVAL_HEADER = "interval"
_INTERVAL_AT = 3  # beside the rate
MEMORY_HEADER = "GPU memory (MiB)"
# What is left out first where a table is too wide; a program finds it in summary.csv.
_SPARED = (MEMORY_HEADER, "efficiency", INTERVAL_HEADER)


def groups(table: pd.DataFrame) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """Title and cells of each table, its header first, in the order of the rows. The interval of
    the median is there where a case has several runs, GPU memory where it was measured."""
    for title, rows in by_group(records(table)).items():
        yield title, _grid(rows)


def _grid(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    medians = [row["samples_per_second_median"] for row in rows]
    shown = rate_decimals(rows[0]["workload"], medians)
    columns = [
        list(column) for column in zip(HEADER, *(cells(r, shown) for r in rows), strict=True)
    ]
    if any(row["samples_per_second_ci_low"] is not None for row in rows):
        intervals = (interval_cell(row, shown) for row in rows)
        columns.insert(_INTERVAL_AT, [INTERVAL_HEADER, *intervals])
    if any(row["gpu_memory_mib"] is not None for row in rows):
        memory = ("-" if (mib := row["gpu_memory_mib"]) is None else f"{mib:.0f}" for row in rows)
        columns.append([MEMORY_HEADER, *memory])
    return list(zip(*columns, strict=True))


def interval_cell(row: dict[str, Any], shown: int = PUBLISHED) -> str:
    """The interval of the median as it is printed: `383.80-385.37`."""
    low, high = row["samples_per_second_ci_low"], row["samples_per_second_ci_high"]
    return "-" if low is None else f"{low:.{shown}f}-{high:.{shown}f}"


def fitted(rows: list[tuple[str, ...]], width: int) -> tuple[list[tuple[str, ...]], list[str]]:
    """A table without the columns that matter least, so that it fits the width, and those."""
    dropped: list[str] = []
    for name in _SPARED:
        if len(table_lines(rows)[0]) > width and name in rows[0]:
            place = rows[0].index(name)
            rows = [(*row[:place], *row[place + 1 :]) for row in rows]
            dropped.append(name)
    return rows, dropped


def cells(row: dict[str, Any], shown: int = PUBLISHED) -> tuple[str, ...]:
    """A case as it is printed, its rate with so many digits; `-` is what there is none of."""
    efficiency = row["scaling_efficiency"]
    return (
        str(row["nodes"]),
        str(row["world_size"]),
        f"{row['samples_per_second_median']:.{shown}f}",
        "-" if row["speedup"] is None else speedup(row["speedup"]),
        "-" if efficiency is None else f"{100 * efficiency:.0f} %",
        str(row["repeats"]),
    )


def table_lines(rows: list[tuple[str, ...]]) -> list[str]:
    """A table, its header first, as the published reports print it, which is Markdown too."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = tuple("-" * width for width in widths)
    return [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
        for row in (rows[0], rule, *rows[1:])
    ]
