"""The cost of each step with 1,000 and 10,000 nodes, computed from the measured costs in scale.yml.

    python benchmarks/scale.py                  # the tables of docs/scale.md
    python benchmarks/scale.py --forks 200 --cores 32
    python benchmarks/scale.py --plan 1000      # measures `dlperf plan` with 1,000 nodes instead

Ansible's strategy is simulated: a task ends when the slowest node has ended it, then the next one
begins. One process of the controller starts all workers; they share the cores, and wait for nodes.
"""

from __future__ import annotations

import argparse
import heapq
import math
import os
import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

INPUTS = Path(__file__).with_name("scale.yml")
EXAMPLE = Path(__file__).parents[1] / "inventory/example"
NODES = (64, 1000, 10000)
GIB, GBIT = 1 << 30, 1e9 / 8


@dataclass(frozen=True)
class Task:
    """Seconds of one task on one node: of the controller's main process, of the worker on a core,
    and the median time that the worker then waits for the node."""

    main: float
    worker: float
    wait: float = 0.0


@dataclass(frozen=True)
class Controller:
    """`spread`: the standard deviation of the logarithm of the time that nodes take."""

    forks: int
    cores: int
    spread: float


def duration(task: Task, nodes: int, at: Controller, drawn: random.Random) -> float:
    """Seconds until the last of the nodes has ended the task."""
    slots: list[float] = []  # when each busy worker ends
    cores = [0.0] * at.cores  # when each core is free
    main = last = 0.0
    for _ in range(nodes):
        if len(slots) == at.forks:
            main = max(main, heapq.heappop(slots))
        main += task.main
        computed = max(main, cores[0]) + task.worker
        heapq.heapreplace(cores, computed)
        waited = task.wait * math.exp(drawn.gauss(0, at.spread)) if task.wait else 0.0
        heapq.heappush(slots, computed + waited)
        last = max(last, computed + waited)
    return max(last, main)


def playbook(
    counts: Mapping[str, int], tasks: Mapping[str, Task], nodes: int, at: Controller, seed: int = 1
) -> float:
    """Seconds of a playbook with so many tasks of each kind."""
    drawn = random.Random(seed)  # noqa: S311  no secret
    return sum(
        duration(tasks[kind], nodes, at, drawn)
        for kind, count in counts.items()
        for _ in range(count)
    )


def levels(nodes: int) -> int:
    """Number of nodes that an environment passes to the last one, if each gives it to two."""
    return int(math.log2(nodes))


def spreading(nodes: int, inputs: Mapping[str, Any]) -> tuple[float, float]:
    """Seconds until all nodes have an environment: each installs it from one mirror, or the first
    does, packs it, and each gives the archive to two others at a time, then unpacks it."""
    gib = inputs["environment_gib"]

    def sent(gbit: float) -> float:
        return float(gib * GIB / (gbit * GBIT))

    installed = gib * inputs["install_s_per_gib"]
    from_mirror = max(nodes * sent(inputs["mirror_gbit"]), sent(inputs["node_gbit"]))
    first = sent(min(inputs["mirror_gbit"], inputs["node_gbit"])) + installed
    level = max(2 * sent(inputs["node_gbit"]), gib * inputs["ssh_s_per_gib"])
    around = gib * (inputs["pack_s_per_gib"] + inputs["unpack_s_per_gib"])
    passed = around + levels(nodes) * level if nodes > 1 else 0.0
    return from_mirror + installed, first + passed


def values(path: Path = INPUTS) -> dict[str, Any]:
    """The inputs without their sources."""
    loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {name: entry["value"] for name, entry in loaded.items()}


def tasks_of(inputs: Mapping[str, Any]) -> dict[str, Task]:
    wait = inputs["node_answers_s"]
    return {
        "connect": Task(inputs["connect_main_s"], inputs["connect_worker_s"], wait),
        "module": Task(inputs["module_main_s"], inputs["module_worker_s"], wait),
        "local": Task(inputs["local_main_s"], inputs["local_worker_s"]),
        "skipped": Task(inputs["skipped_main_s"], inputs["skipped_worker_s"]),
    }


def table(inputs: Mapping[str, Any], forks: int, cores: int) -> Iterator[list[str]]:
    """The rows of the steps: name, and the time with each number of nodes."""
    at, tasks = Controller(forks, cores, inputs["spread"]), tasks_of(inputs)

    def step(name: str, counts: Mapping[str, int]) -> list[str]:
        return [name, *(shown(playbook(counts, tasks, nodes, at)) for nodes in NODES)]

    def linear(name: str, first: float, per_node: float) -> list[str]:
        return [name, *(shown(first + nodes * per_node) for nodes in NODES)]

    def files(name: str, which: int) -> list[str]:
        return [name, *(shown(spreading(nodes, inputs)[which]) for nodes in NODES)]

    yield linear("`dlperf plan`", inputs["plan_s"], inputs["plan_per_node_s"])
    yield step("`ansible all -m ping`", {"connect": 1})
    yield step("provisioning, nothing to do", inputs["tasks_of_second_provisioning"])
    yield step("`dlperf doctor`: facts", inputs["tasks_of_doctor"])
    yield linear("`dlperf doctor`: findings", 0, inputs["doctor_per_node_s"])
    yield step("a run that every node starts", {"module": 1})
    yield files("an environment, from node to node", 1)
    yield files("the same if every node installed it from the mirror", 0)
    yield ["keys of the mesh, sent", *(f"{mesh_gib(inputs, nodes):.2g} GiB" for nodes in NODES)]


def mesh_gib(inputs: Mapping[str, Any], nodes: int) -> float:
    """The GiB that the controller sends: to each node the keys of all."""
    return float(nodes * nodes * inputs["mesh_entry_bytes"] / GIB)


def shown(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def write_inventory(nodes: int, directory: Path) -> None:
    """inventory/example with its variables and so many nodes."""
    shutil.copytree(EXAMPLE, directory)
    hosts = {f"NODE{n}": {"ansible_host": f"10.11.{n >> 8}.{n & 255}"} for n in range(1, nodes + 1)}
    (directory / "hosts.yml").write_text(yaml.safe_dump({"nodes": {"hosts": hosts}}))


def measured_plan(nodes: int, repeats: int) -> Iterator[str]:
    """Rows with the time of a plan for so many nodes, and of Ansible's reading of the inventory."""
    from lab import Lab, spread  # the tests of this file have no path to it

    with tempfile.TemporaryDirectory(prefix="dlperf-plan-") as name:
        inventory, here = Path(name) / "inventory", Lab(Path(name) / "lab")
        here.directory.with_name("catalog").mkdir()  # no workloads of the user's own
        write_inventory(nodes, inventory)
        commands = {
            "dlperf plan": ("python", "-m", "dlperf_runner", "plan", "-i", str(inventory)),
            "ansible-inventory --list": ("ansible-inventory", "--list", "-i", str(inventory)),
        }
        took = [
            {text: here.timed(*argv) for text, argv in commands.items()} for _ in range(repeats)
        ]
    yield f"| {nodes} nodes, load {os.getloadavg()[0]:.0f} | wall | CPU |"
    yield "| --- | --- | --- |"
    for text in commands:
        walls, cpus = zip(*((run[text].wall, run[text].cpu) for run in took), strict=True)
        yield f"| `{text}` | {spread(walls, 1)} | {spread(cpus, 1)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    inputs = values()
    parser.add_argument("--plan", type=int, metavar="NODES", help="time a plan for so many nodes")
    parser.add_argument("--repeats", type=int, default=5, help="of --plan")
    parser.add_argument("--forks", type=int, default=inputs["forks"])
    parser.add_argument("--cores", type=int, default=inputs["cores"])
    given = parser.parse_args()
    if given.plan:
        print(*measured_plan(given.plan, given.repeats), sep="\n")
        return
    for row in table(inputs, given.forks, given.cores):
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
