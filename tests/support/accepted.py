"""Campaigns of the parts of a cluster whose speeds are known, for `accept`."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from make_logs import campaign_run, gluoncv

SUITE = """\
name: rack 7
nodes: [node1, node2, node3]
items:
  - workload: mxnet-resnet50v1b
    parts: each node
    target: 100 samples/s
"""


def started(minute: int) -> str:
    """A start, as records have it."""
    return (datetime(2026, 11, 2, 10, tzinfo=UTC) + timedelta(minutes=minute)).isoformat()


def speeds(level: float, number: int, seed: int, cv: float = 0.005) -> list[float]:
    """Normally distributed speeds, rounded as the logs print them."""
    numbers = random.Random(seed)  # noqa: S311  not for secrets
    return [round(numbers.gauss(level, cv * level), 2) for _ in range(number)]


def campaigns(
    folder: Path,
    of_parts: Mapping[str, Sequence[float]],
    *,
    second: bool = False,
    **changes: object,
) -> dict[str, Path]:
    """A campaign for each part (`node1`, `node1+node2`) with a run for each speed, in turns with a
    campaign that is `second` or not."""
    for part, rates in of_parts.items():
        hosts = part.split("+")
        topology = f"{len(hosts)}n1g"
        for repeat, rate in enumerate(rates, start=1):
            # Two runs with the same speed are not copies of each other.
            lines = [f"INFO:root:{part} {repeat}", *gluoncv(rate, world=len(hosts))]
            outcome = {
                "status": "done",
                "hosts": {"node1": {"hostname": "node1"}},
                "versions": {"mxnet": "1.9.1"},
                "started": started(2 * repeat + (second == bool(repeat % 2))),
            }
            record = {"hosts": hosts, "outcome": outcome, **changes}
            campaign_run(folder / part, topology, repeat, lines, **record)
    return {part: folder / part for part in of_parts}
