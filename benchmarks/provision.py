"""The time that provisioning takes, beside a bare ping of the same nodes, and what each node adds.

All nodes and the controller share the cores of this machine, so CPU time says more than wall time.

python benchmarks/provision.py --nodes 4,8,16 --repeats 1
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from statistics import median

from lab import Lab, lab, spread

COLUMNS = ("wall", "controller's CPU", "nodes' CPU")


@dataclass(frozen=True)
class Cost:
    """Seconds of a command: its wall time, and the CPU time on the controller and on all nodes."""

    wall: float
    controller: float
    nodes: float


def cost(made: Lab, *argv: str) -> Cost:
    before = made.cpu_of_nodes()
    took = made.timed(*argv)
    return Cost(took.wall, took.cpu, made.cpu_of_nodes() - before)


def costs(made: Lab, repeats: int) -> dict[str, list[Cost]]:
    """Of the first run on fresh nodes, which is made once, of later ones, and of pings."""
    play, ping = ("ansible-playbook", "provision.yml"), ("ansible", "all", "-m", "ping")
    first = [cost(made, *play)]
    pings, again = [], []
    for _ in range(repeats):  # in turn, for the machine's speed drifts
        pings.append(cost(made, *ping))
        again.append(cost(made, *play))
    return {"first": first, "second, nothing to do": again, "bare ping": pings}


def per_added_node(now: list[Cost], before: list[Cost], added: int) -> Iterator[float]:
    """By the medians of each column."""
    for larger, smaller in zip(by_column(now), by_column(before), strict=True):
        yield (median(larger) - median(smaller)) / added


def by_column(measured: list[Cost]) -> list[tuple[float, ...]]:
    return list(zip(*map(astuple, measured), strict=True))


def shown(values: tuple[float, ...]) -> str:
    return spread(values, 1) if len(values) > 1 else f"{values[0]:.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", default="4", help="sizes of the lab, such as 4,8,16")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f}")
    header = ["nodes", "run", *COLUMNS, *(f"{column} per added node" for column in COLUMNS)]
    print("| " + " | ".join(header) + " |")
    print("| " + " | ".join(["---"] * len(header)) + " |")
    smaller: tuple[int, dict[str, list[Cost]]] | None = None
    for nodes in map(int, arguments.nodes.split(",")):
        # 16 nodes with MXNet take more than half of 24 GB.
        with lab(nodes, lab_storage_size="85%") as made:
            measured = costs(made, arguments.repeats)
        for run, of_run in measured.items():
            cells = [str(nodes), run, *map(shown, by_column(of_run))]
            if smaller:
                added = per_added_node(of_run, smaller[1][run], nodes - smaller[0])
                cells += [f"{seconds:.2f} s" for seconds in added]
            else:
                cells += [""] * len(COLUMNS)
            print("| " + " | ".join(cells) + " |", flush=True)
        smaller = nodes, measured


if __name__ == "__main__":
    main()
