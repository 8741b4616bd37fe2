"""How long provisioning takes, beside a bare ping of the same nodes.

python benchmarks/provision.py --nodes 4,16 --repeats 3
"""

from __future__ import annotations

import argparse
import os
from statistics import median

from lab import lab


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", default="4", help="sizes of the lab, such as 4,16")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f}")
    print("| nodes | first | per added node | second, nothing to do | controller's CPU |", end="")
    print(" per added node | bare ping |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    smaller: tuple[int, float, float] | None = None
    for nodes in map(int, arguments.nodes.split(",")):
        with lab(nodes) as made:
            first = made.play("provision.yml")
            pings, again = [], []
            for _ in range(arguments.repeats):  # in turn, for the machine's speed drifts
                pings.append(made.seconds("ansible", "all", "-m", "ping"))
                again.append(made.timed("ansible-playbook", "provision.yml"))
        second = median(run.wall for run in again)
        added = [""] * 2
        if smaller:
            more = nodes - smaller[0]
            added = [
                f"{(x - y) / more:.2f} s" for x, y in zip((first, second), smaller[1:], strict=True)
            ]
        smaller = (nodes, first, second)
        print(
            f"| {nodes} | {first:.1f} s | {added[0]} | {second:.1f} s"
            f" ({min(r.wall for r in again):.1f} to {max(r.wall for r in again):.1f})"
            f" | {median(r.cpu for r in again):.1f} s | {added[1]} | {median(pings):.1f} s"
            f" ({min(pings):.1f} to {max(pings):.1f}) |",
            flush=True,
        )


if __name__ == "__main__":
    main()
