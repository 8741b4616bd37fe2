"""Rows of the frame of one case on a V100, as comparisons need them."""

from collections.abc import Mapping, Sequence
from typing import Any

import frame_rows
from frame_rows import Row, frame

from dlperf_runner.catalog.reader import unit_of
from dlperf_runner.compare.published import COLUMNS, compare_published
from dlperf_runner.core.units import per_second
from dlperf_runner.stats.groups import rates_by_case

RUNS = [385.23, 384.16, 384.19, 385.31, 384.04]  # of the report, on one GPU
V100 = {
    "accelerator": "V100-SXM2-16GB",
    "data": "real",
    "image_size": 224,
    "xla": False,
    "steps": "20 warm-up of 120",
    "implementation": "dmlc/gluon-cv f9a8a284",
    "cuda": "10.2",
    "cudnn": "7.6.5",
    "nccl": "2.7.3",
}

CASE: dict[str, Any] = {
    "framework": "mxnet",
    "framework_version": "1.6.0",
    "workload": "mxnet-resnet50v1b",
    "model": "resnet50v1b",
    "source": "upstream",
    "parameters": "data=real image_size=224",
    "precision": "fp32",
    "batch_size_per_device": 128,
    "total_steps": 120,
    "warmup_steps": 20,
    "directory": None,
    "nodes": 1,
    "gpus_per_node": 1,
    "world_size": 1,
    "accelerator": "V100-SXM2-16GB",
    "node_gpus": "8",
    "driver": "440.33.01",
    "stack": "v100-cuda10.2",
    "container": None,
}


def row(value: float | None, repeat: int = 1, **changes: Any) -> Row:
    case = {**CASE, **changes}
    world_size = case["nodes"] * case["gpus_per_node"]
    case |= {"world_size": world_size}
    case |= {"global_batch_size": case["batch_size_per_device"] * world_size}
    case.setdefault("unit", per_second(unit_of(case["workload"])))
    case |= {"valid": value is not None, "why_invalid": None if value is not None else "failed"}
    return frame_rows.row(value, repeat=repeat, **case)


def rows(values: Sequence[float], **changes: Any) -> list[Row]:
    return [row(value, repeat, **changes) for repeat, value in enumerate(values, start=1)]


def published_table(
    rows: Sequence[Row], conditions: Mapping[str, Any] | None = None, **options: Any
) -> list[dict[str, Any]]:
    """The rows beside what is published, all under these conditions: those of the report."""
    form = frame(rows)
    known = V100 if conditions is None else conditions
    table = compare_published(form, dict.fromkeys(rates_by_case(form), known), **options)
    assert all(tuple(row) == COLUMNS for row in table)
    return table


def compared(
    rows: Sequence[Row], conditions: Mapping[str, Any] | None = None, **options: Any
) -> list[dict[str, Any]]:
    return published_table(rows, conditions, **options)
