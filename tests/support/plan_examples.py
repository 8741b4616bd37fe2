"""What the tests of the catalogue, the plan and the launchers share: nodes and workloads."""

import shutil
from pathlib import Path
from typing import Any

from dlperf_runner.catalog.reader import CATALOG
from dlperf_runner.core.node import Node
from dlperf_runner.plan.choice import Choice, parse_choice
from dlperf_runner.schedulers.job import placeholder


def choose(**options: object) -> Choice:
    return parse_choice(options)


def gpu_nodes(count: int = 4, devices: int = 8, **changes: Any) -> tuple[Node, ...]:
    """The cluster of the published tests, or one that differs from it: node1 is 10.11.0.2."""
    usual = {"accelerator": "Tesla V100-SXM2-16GB", "stack": "v100-cuda10.2", "interface": "ib0"}
    return _nodes(count, {"devices_per_node": devices, **usual, **changes})


def lab_nodes(count: int = 4, **changes: Any) -> tuple[Node, ...]:
    """The embedded lab, or one that differs from it."""
    usual = {"devices_per_node": 2, "accelerator": "cpu", "stack": "cpu", "interface": "eth0"}
    usual |= {"frameworks": ("mxnet",), "matrix": "smoke", "mpirun_args": ("--oversubscribe",)}
    return _nodes(count, {**usual, **changes})


def job_nodes(count: int = 2, **changes: Any) -> tuple[Node, ...]:
    """Nodes without GPUs that a scheduler has not chosen yet."""
    usual = {"devices_per_node": 2, "accelerator": "cpu", "stack": "cpu", "matrix": "smoke"}
    names = map(placeholder, range(1, count + 1))
    return tuple(Node(name=name, address=name, **{**usual, **changes}) for name in names)


def _nodes(count: int, values: dict[str, Any]) -> tuple[Node, ...]:
    return tuple(
        Node(name=f"node{number}", address=f"10.11.0.{number + 1}", **values)
        for number in range(1, count + 1)
    )


def write_catalog(directory: Path) -> Path:
    """A copy of the shipped catalogue, for tests that change it."""
    return Path(shutil.copytree(CATALOG, directory / "catalog"))


def cpu_node(framework: str) -> dict[str, Any]:
    """An inventory with one node that has two devices without a GPU."""
    node = {
        "ansible_host": "10.11.0.2",
        "dlperf_devices_per_node": 2,
        "dlperf_accelerator": "cpu",
        "dlperf_stack": "cpu",
        "dlperf_matrix": "smoke",
        "dlperf_frameworks": [framework],
    }
    return {"nodes": {"hosts": {"node1": node}}}
