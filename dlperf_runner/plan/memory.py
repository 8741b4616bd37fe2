"""Warnings about planned batches that the GPUs' memory may not hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..catalog.workload import Workload
    from ..core.case import Run

_MEMORY = re.compile(r"(\d+) ?G[Bi]", re.ASCII)


def memory_warnings(runs: Iterable[Run], workloads: Mapping[str, Workload]) -> list[str]:
    """A line for each batch that was published on GPUs with more memory than those of its runs.
    The memory of a GPU is that in its name."""
    lines: dict[str, None] = {}
    for run in runs:
        memory = _MEMORY.search(run.accelerator)
        published = _published(run, workloads)
        if memory and published and int(memory[1]) < published:
            lines[
                f"warning: {run.workload} with batch {run.batch_size_per_device} in"
                f" {run.precision} was published on GPUs with {published} GB; on"
                f" {run.accelerator} it may end without memory (--batch-size takes another)"
            ] = None
    return list(lines)


def _published(run: Run, workloads: Mapping[str, Workload]) -> int | None:
    key = run.precision, run.batch_size_per_device
    workload = workloads[run.workload]
    found = (
        entry.published_gpu_memory_gb
        for matrix in workload.matrices.values()
        for entry in matrix.batches
        if (entry.precision, entry.batch_size_per_device) == key
    )
    return next((memory for memory in found if memory), None)
