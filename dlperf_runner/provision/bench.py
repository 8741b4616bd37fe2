"""Computation of bench.yml on its plan: the documents for nodes, and the runs that can start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def datasets(runs: Sequence[Mapping[str, Any]], host: str) -> list[str]:
    """The data sets that the runs of a node read."""
    names = (run.get("dataset") for run in runs if host in run["hosts"])
    return [name for name in dict.fromkeys(names) if name]


def ready(
    runs: Sequence[Mapping[str, Any]], hosts: Sequence[str], hostvars: Mapping[str, Any]
) -> dict[str, Any]:
    """`bench_possible`: the numbers of the runs whose nodes are all ready; and the facts of the
    nodes that are (`bench_facts_by_host`)."""
    facts = {
        host: hostvars[host]["bench_facts"] for host in hosts if "bench_ready" in hostvars[host]
    }
    possible = [number for number, run in enumerate(runs) if facts.keys() >= set(run["hosts"])]
    return {"bench_possible": possible, "bench_facts_by_host": facts}
