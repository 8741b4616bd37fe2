"""The tables of a summary: which cases stand in one table, and how a number is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..core.frame import ENERGY, MODEL_TFLOPS, POWER
from ..stats.groups import by_group
from .numbers import joules, rate_decimals, seconds, speedup, tflops
from .tables import Cell, Column, cell, span
from .terminal import PIPE, Screen, table, wrapped
from .units import energy_unit, is_bandwidth, per_device, rate_unit, step_time

PER_DEVICE, INTERVAL, MEMORY = "per device", "interval", "GPU memory (MiB)"
TFLOPS, MFU, LOG_MEMORY = "TFLOP/s/device", "MFU", "memory (MiB)"
JOULES, WATTS = "J/sample", "W"
P95, P99 = "step p95 (s)", "step p99 (s)"
COLUMNS = (
    Column("node_num", True),
    Column("gpu_num", True, stacks=True),
    Column("samples/s", True),
    Column(PER_DEVICE, True, stacks=True),
    Column(INTERVAL, True, stacks=True),
    Column(TFLOPS, True, stacks=True),
    Column(MFU, True, stacks=True),
    Column("speedup", True),
    Column("efficiency", True, stacks=True),
    Column("n", True),
    Column(P95, True, stacks=True),
    Column(P99, True, stacks=True),
    Column(LOG_MEMORY, True, stacks=True),
    Column(MEMORY, True, stacks=True),
    Column(JOULES, True, stacks=True),
    Column(WATTS, True, stacks=True),
)
_SCALING = ("speedup", "efficiency")


def _step_time(row: dict[str, Any], percentile: str) -> float | None:
    """A percentile of the step times; None for means of steps, which hide single slow steps."""
    return step_time(row, percentile) if row["step_time_estimator"] == "single_steps" else None


def _log_memory(row: dict[str, Any]) -> float | None:
    """The memory that the program prints, where no sampler saw more."""
    value: float | None = row["log_memory_mib"]
    return value if row["gpu_memory_mib"] is None else None


# Columns that a table has only if one of its cases has them.
_OPTIONAL: dict[str, Callable[[dict[str, Any]], object]] = {
    PER_DEVICE: per_device,
    INTERVAL: lambda row: row["samples_per_second_ci_low"],
    TFLOPS: lambda row: row[MODEL_TFLOPS],
    MFU: lambda row: row["mfu"],
    P95: lambda row: _step_time(row, "p95"),
    P99: lambda row: _step_time(row, "p99"),
    LOG_MEMORY: _log_memory,
    MEMORY: lambda row: row["gpu_memory_mib"],
    JOULES: lambda row: row[f"{ENERGY}_j"],
    WATTS: lambda row: row[f"{POWER}_w"],
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
    formula = next((row["flops_formula"] for row in rows if row["flops_formula"]), "")
    names = {
        "samples/s": unit,
        PER_DEVICE: f"{unit}/device",
        JOULES: energy_unit(rows[0]["workload"]),
        MFU: f"{MFU} ({formula.partition(' ')[0]})",
    }
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
