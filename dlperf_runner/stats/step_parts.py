"""Parts of a step's time: computation, waiting for the slowest rank, communication."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.frame import NCCL_KERNELS

NOTABLE = 0.02  # a smaller share of waiting names no straggler


@dataclass(frozen=True)
class StepParts:
    """The seconds of a step, of which the parts are the whole. `computation` is that of the mean
    rank, measured after the run, so that it may seem longer than the step, which it then fills;
    `waiting` is how much longer the slowest rank computes; `communication` is the rest, which no
    computation hides."""

    step: float
    computation: float
    waiting: float
    communication: float
    slowest_rank: int | None

    @property
    def has_straggler(self) -> bool:
        """True if one rank is the slowest of all runs, and others wait for it notably."""
        return self.slowest_rank is not None and self.waiting >= NOTABLE * self.step


def nccl_share(case: Mapping[str, Any]) -> float | None:
    """For how much of a step the kernels of NCCL run; None if the logs do not say it. Kernels of
    NCCL run beside computation and beside each other, and each waits for the slowest rank, so this
    is no part of the step, and may be more than 1."""
    step, kernels = case["step_time_median_s"], case.get(f"{NCCL_KERNELS}_s")
    return kernels / step if step and kernels else None


def step_parts(case: Mapping[str, Any]) -> StepParts | None:
    """The parts of a case's step; None if its logs do not say them. A single device computes all
    the time."""
    step = case["step_time_median_s"]
    if step is None:
        return None
    if case["world_size"] == 1:
        return StepParts(step, step, 0.0, 0.0, None)
    mean, longest, rank = (case[n] for n in ("alone_mean_s", "alone_longest_s", "slowest_rank"))
    if mean is None or longest is None:
        return None
    communication = max(0.0, step - longest)
    waiting = min(longest - mean, max(0.0, step - mean))
    return StepParts(
        step, min(mean, step), waiting, communication, None if rank is None else int(rank)
    )
