"""What the written reports share: which cases stand in one table, and how a number is shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..stats import DIGITS, digits

if TYPE_CHECKING:
    import pandas as pd

# Cases that agree in these stand in one table, as in the published reports.
GROUP = (
    "workload",
    "model",
    "source",
    "precision",
    "batch_size_per_device",
    "framework_version",
    "accelerator",
    "driver",
    "stack",
    "container",
)
HEADER = ("node_num", "gpu_num", "samples/s", "speedup", "efficiency", "n")
INTERVAL_HEADER = "interval"
_INTERVAL_AT = 3  # beside the rate
MEMORY_HEADER = "GPU memory (MiB)"
# What is left out first where a table is too wide; a program finds it in summary.csv.
_SPARED = (MEMORY_HEADER, "efficiency", INTERVAL_HEADER)
_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]+")


def groups(table: pd.DataFrame) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """Title and cells of each table, its header first, in the order of the rows. The interval of
    the median is there where a case has several runs, GPU memory where it was measured."""
    by_group: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in records(table):
        by_group.setdefault(tuple(row[name] for name in GROUP), []).append(row)
    for key, rows in by_group.items():
        yield title(dict(zip(GROUP, key, strict=True))), _grid(rows)


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as dictionaries; what is absent is None."""
    import pandas as pd

    return [
        {str(key): None if pd.isna(value) else value for key, value in row.items()}
        for row in table.to_dict(orient="records")
    ]


def title(key: dict[str, Any]) -> str:
    """What a table is about: `mxnet-resnet50v1b builtin, fp32, batch size 128 per device, cpu`."""
    name = " ".join(filter(None, (key["workload"], key["source"])))
    if key["model"] not in name:
        name += f" ({key['model']})"
    parts = [name, key["precision"], f"batch size {key['batch_size_per_device']} per device"]
    if key["framework_version"]:
        parts.append(f"version {key['framework_version']}")
    # A stack is mostly named after its accelerator; say it once.
    parts += dict.fromkeys(filter(None, (key["accelerator"], key["stack"])))
    if key["driver"]:
        parts.append(f"driver {key['driver']}")
    if key["container"]:
        parts.append("in " + _DIGEST.sub(r"\1", key["container"]))
    return ", ".join(parts)


def _grid(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    shown = digits(row["samples_per_second_median"] for row in rows)
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


def interval_cell(row: dict[str, Any], shown: int = DIGITS) -> str:
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


def cells(row: dict[str, Any], shown: int = DIGITS) -> tuple[str, ...]:
    """A case as it is printed, its rate with so many digits; `-` is what there is none of."""
    speedup, efficiency = row["speedup"], row["scaling_efficiency"]
    return (
        str(row["nodes"]),
        str(row["world_size"]),
        f"{row['samples_per_second_median']:.{shown}f}",
        "-" if speedup is None else f"{speedup:.2f}",
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
