"""The calculation rule: how to compute one number from the log of a run."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import model_validator

from .types import Count, CountOrNone, Entry, Name, entry_error


class Rule(Entry):
    """How a publication computes one number from a run's log.

    Steps count from 1. The first `warmup_steps` of `total_steps` are not measured.
    `log_every`: the log has a line every n steps, unless the log itself states another interval.
    `rates_are_per`: what a printed rate refers to. Per step, it is the number of steps per second.
    A built-in log format has its own default.
    `drop_first_values`: the number of printed rates to drop in addition to the warm-up.
    `round_rates_to`: the digits to which each rate is rounded before use.
    `final_value_from_world_size`: with at least this many devices, the rate that the program
    prints at its end is the result.
    `published_estimator`: the estimator of the published numbers, if the workload's own is another.
    `surplus_steps`: lines that a program prints beyond `total_steps` before it stops.
    `round_value_to`: the decimals of the published result. Statistics use all digits.
    """

    total_steps: Count
    warmup_steps: CountOrNone
    estimator: Name
    log_every: Count = 1
    rates_are_per: Literal["world", "node", "device", "step"] = "world"
    drop_first_values: CountOrNone = 0
    round_rates_to: CountOrNone | None = None
    final_value_from_world_size: Count | None = None
    published_estimator: Literal["mean_of_lines"] | None = None
    surplus_steps: CountOrNone = 0
    round_value_to: CountOrNone = 2

    def warmup_of(self, total_steps: int) -> int:
        """The warm-up of a run with so many steps: the same share, rounded up to a line of the log,
        so that each line is either warm-up or measured."""
        lines = math.ceil(self.warmup_steps * total_steps / self.total_steps / self.log_every)
        return min(lines * self.log_every, total_steps - 1)

    def last_step(self, before: int) -> int:
        """The last step of a window that begins after step `before`. It is total_steps. Lines that
        do not end with the warm-up leave steps out at the beginning: then as many of the surplus
        steps belong to the window."""
        surplus = before - self.warmup_steps
        return self.total_steps + max(0, min(surplus, self.surplus_steps))

    @model_validator(mode="after")
    def _something_is_measured(self) -> Rule:
        if self.warmup_steps >= self.total_steps:
            raise entry_error(
                "no steps remain to be measured",
                f"fewer warm-up steps than total_steps, {self.total_steps}",
                self.warmup_steps,
                "warmup_steps",
            )
        return self


class RuleChange(Entry):
    """The changes that a matrix makes to its workload's rule."""

    total_steps: Count | None = None
    warmup_steps: CountOrNone | None = None
    log_every: Count | None = None
    drop_first_values: CountOrNone | None = None
