"""Campaigns of the parts of a cluster whose speeds are known, for `accept`."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
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


def speeds(level: float, number: int, seed: int, cv: float = 0.005) -> list[float]:
    """Normally distributed speeds, rounded as the logs print them."""
    numbers = random.Random(seed)  # noqa: S311  not for secrets
    return [round(numbers.gauss(level, cv * level), 2) for _ in range(number)]


def campaigns(
    folder: Path, of_parts: Mapping[str, Sequence[float]], **changes: object
) -> dict[str, Path]:
    """A campaign for each part (`node1`, `node1+node2`) with a run for each speed."""
    for part, rates in of_parts.items():
        hosts = part.split("+")
        topology = f"{len(hosts)}n1g"
        for repeat, rate in enumerate(rates, start=1):
            # Two runs with the same speed are not copies of each other.
            lines = [f"INFO:root:{part} {repeat}", *gluoncv(rate, world=len(hosts))]
            campaign_run(folder / part, topology, repeat, lines, hosts=hosts, **changes)
    return {part: folder / part for part in of_parts}
