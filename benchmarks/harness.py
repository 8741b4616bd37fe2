"""Time that the harness adds to a run: from the end of one command to the start of the next.
Beside it the floor, a bare mpirun over SSH and scp of its log.

python benchmarks/harness.py --nodes 4,64 --repeats 5
"""

from __future__ import annotations

import argparse
import json
import os
from itertools import pairwise

from lab import Lab, provisioned, spread

# A program that ends at once. One rank prints, as in real ones.
PROGRAM = r"""/bin/sh -c '[ "$OMPI_COMM_WORLD_RANK" != 0 ] || printf "step %s rate 1.0\n" 1 2 3'"""
WORKLOAD = ("--name", "nothing", "--framework", "nccl", "--launcher", "mpirun", "--unit", "samples")
WORKLOAD += ("--regex", r"step (?P<step>\d+) rate (?P<rate>[\d.]+)", "--command", PROGRAM)
WORKLOAD += ("--total-steps", "3", "--warmup-steps", "0", "--rates-are-per", "world")


def campaign(made: Lab, name: str, nodes: int, runs: int) -> tuple[list[float], float]:
    """From the record of one run to the record of the next, less what its command took; and the
    controller's CPU time for the campaign."""
    directory = made.directory.with_name(name)
    chosen = ("-e", "workload=nothing", "-e", f"nodes={nodes}", "-e", f"repeats={runs}")
    timed = made.timed("ansible-playbook", "bench.yml", *chosen, "-e", f"campaign={directory}")
    records = sorted(directory.glob("runs/*/r*/run.json"), key=lambda path: path.stat().st_mtime)
    ended = [path.stat().st_mtime for path in records]
    took = [json.loads(path.read_text())["outcome"]["elapsed_s"] for path in records]
    pairs = zip(ended, ended[1:], took[1:], strict=False)
    return [after - before - s for before, after, s in pairs], timed.cpu


def mpirun(nodes: int) -> str:
    hosts = ",".join(f"node{n}:1" for n in range(1, nodes + 1))
    options = "--mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0"
    return f"/usr/bin/mpirun --host {hosts} -np {nodes} {options} {PROGRAM}"


def floor(made: Lab, nodes: int) -> float:
    """ssh and scp, less what mpirun took on the node."""
    config, directory = str(made.directory / "ssh_config"), made.directory.parent
    script = f"cd /; date +%s.%N; runuser -u dlperf -- {mpirun(nodes)} > /tmp/floor.log 2>&1"
    command = directory / "command"
    command.write_text(f"{script}; date +%s.%N")
    times = directory / "times"
    total = made.seconds("sh", "-c", f"ssh -F {config} node1 sh < {command} > {times}")
    total += made.seconds("scp", "-q", "-F", config, "node1:/tmp/floor.log", str(directory))
    began, ended = map(float, times.read_text().split())
    return total - (ended - began)


def row(nodes: int, repeats: int) -> str:
    with provisioned(nodes, "nccl") as made:
        options = (*WORKLOAD, "--topologies", f"{nodes}n1g")
        made.seconds("python", "-m", "dlperf_runner", "init-workload", *options)
        floors = [floor(made, nodes) for _ in range(repeats)]
        used = [made.cpu_of_nodes()]
        logins = [made.logins()]
        controller = []
        for name, runs in (("one", 1), ("several", repeats + 1)):
            added, cpu = campaign(made, name, nodes, runs)
            controller.append(cpu)
            used.append(made.cpu_of_nodes())
            logins.append(made.logins())
        one, several = (after - before for before, after in pairwise(used))
        before = made.cpu_of_nodes()
        floors += [floor(made, nodes) for _ in range(repeats)]
        bare = (made.cpu_of_nodes() - before) / repeats
    last, load = f"node{nodes}", os.getloadavg()[0]
    counts = [after[last] - before[last] for before, after in pairwise(logins)]
    # mpirun logs in once for each run.
    return (
        f"| {nodes}, load {load:.0f} | {spread(added)}"
        f" | {(controller[1] - controller[0]) / repeats:.2f} s"
        f" | {(several - one) / repeats - bare:.1f} s"
        f" | {counts[0] - 1}, {counts[1] - repeats - 1}"
        f" | {spread(floors)} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", default="4", help="sizes of the lab, such as 4,64")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    print("| nodes | harness, per run | controller's CPU | nodes' CPU, without mpirun", end="")
    print(f" | logins to the last node in campaigns of 1 and {given.repeats + 1} runs", end="")
    print(" | floor: ssh, mpirun, scp |\n| --- | --- | --- | --- | --- | --- |")
    for nodes in map(int, given.nodes.split(",")):
        print(row(nodes, given.repeats), flush=True)


if __name__ == "__main__":
    main()
