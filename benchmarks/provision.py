"""How long provisioning takes, beside a bare ping of the same nodes.

python benchmarks/provision.py --nodes 4,16 --repeats 3
"""

from __future__ import annotations

import argparse
from statistics import median

from lab import lab


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", default="4", help="sizes of the lab, such as 4,16")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print("| nodes | first | second, nothing to do | bare ping | 3 pings + 10 s |")
    print("| ----- | ----- | ---------------------- | --------- | -------------- |")
    for nodes in map(int, arguments.nodes.split(",")):
        with lab(nodes) as made:
            first = made.play("provision.yml")
            pings, seconds = [], []
            for _ in range(arguments.repeats):  # in turn, for the machine's speed drifts
                pings.append(made.seconds("ansible", "all", "-m", "ping"))
                seconds.append(made.play("provision.yml"))
        limit = 3 * median(pings) + 10
        print(
            f"| {nodes} | {first:.1f} s | {median(seconds):.1f} s"
            f" ({min(seconds):.1f} to {max(seconds):.1f}) | {median(pings):.1f} s"
            f" ({min(pings):.1f} to {max(pings):.1f}) | {limit:.1f} s |",
            flush=True,
        )


if __name__ == "__main__":
    main()
