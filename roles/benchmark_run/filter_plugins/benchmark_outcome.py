"""Combine the results of a run's launches into one outcome."""

from __future__ import annotations

from typing import Any

from dlperf_runner.campaign.outcome import outcome_of

DOCUMENTATION = """
name: benchmark_outcome
short_description: One outcome from the results of a run's launches, by host
options:
  _input: {description: Registered results of benchmark_launch by host., type: dict, required: true}
"""


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"benchmark_outcome": outcome_of}
