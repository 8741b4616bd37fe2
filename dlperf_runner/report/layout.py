"""The tables of a summary: which cases stand in one table, and how a number is shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..core.frame import ENERGY, MODEL_TFLOPS, POWER
from ..stats.groups import by_group
from .numbers import joules, rate_decimals, seconds, speedup, tflops
from .tables import Cell, Column, cell, span
from .terminal import PIPE, Screen, table, wrapped
from .units import energy_unit, is_bandwidth, per_device, step_time

MEMORY = "GPU memory (MiB)"
_MEDIAN = "samples_per_second_median"
# Columns that a table has even if none of its cases has a value; a bandwidth does not scale.
_ALWAYS = ("node_num", "gpu_num", "n")
_SCALING = ("speedup", "efficiency")


def _step_time(row: dict[str, Any], percentile: str) -> float | None:
    """A percentile of the step times; None for means of steps, which hide single slow steps."""
    return step_time(row, percentile) if row["step_time_estimator"] == "single_steps" else None


def _log_memory(row: dict[str, Any]) -> float | None:
    """The memory that the program prints, where no sampler saw more."""
    value: float | None = row["log_memory_mib"]
    return value if row["gpu_memory_mib"] is None else None


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
    workload = rows[0]["workload"]
    unit, decimals = rows[0]["unit"], rate_decimals(workload, [row[_MEDIAN] for row in rows])
    formula = next((row["flops_formula"] for row in rows if row["flops_formula"]), "")
    columns = (
        Column("node_num", True),
        Column("gpu_num", True, stacks=True),
        Column(unit, True),
        Column(f"{unit}/device", True, stacks=True),
        Column("interval", True, stacks=True),
        Column("TFLOP/s/device", True, stacks=True),
        Column(f"MFU ({formula.partition(' ')[0]})", True, stacks=True),
        Column("speedup", True),
        Column("efficiency", True, stacks=True),
        Column("n", True),
        Column("step p95 (s)", True, stacks=True),
        Column("step p99 (s)", True, stacks=True),
        Column("memory (MiB)", True, stacks=True),
        Column(MEMORY, True, stacks=True),
        Column(energy_unit(rows[0]), True, stacks=True),
        Column("W", True, stacks=True),
    )
    cells = [_cells(row, f".{decimals}f") for row in rows]
    always = (*_ALWAYS, unit, *(() if is_bandwidth(rows[0]) else _SCALING))
    kept = [
        n
        for n, column in enumerate(columns)
        if column.label in always or any(row[n].value is not None for row in cells)
    ]
    return [columns[n] for n in kept], [tuple(row[n] for n in kept) for row in cells]


def _cells(row: dict[str, Any], rate: str) -> tuple[Cell, ...]:
    """A case in the columns of `_grid`."""
    return (
        cell(row["nodes"]),
        cell(row["world_size"]),
        cell(row[_MEDIAN], rate),
        cell(per_device(row), rate),
        span(row["samples_per_second_ci_low"], row["samples_per_second_ci_high"], rate, "-"),
        cell(row[MODEL_TFLOPS], tflops),
        cell(row["mfu"], ".1%"),
        cell(row["speedup"], speedup),
        cell(row["scaling_efficiency"], lambda share: f"{100 * share:.0f} %"),
        cell(row["repeats"]),
        cell(_step_time(row, "p95"), seconds),
        cell(_step_time(row, "p99"), seconds),
        cell(_log_memory(row), ".0f"),
        cell(row["gpu_memory_mib"], ".0f"),
        cell(row[f"{ENERGY}_j"], joules),
        cell(row[f"{POWER}_w"], ".0f"),
    )
