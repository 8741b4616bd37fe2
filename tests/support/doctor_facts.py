"""Facts that the doctor judges: a healthy cluster of the published tests, and changes of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import nvidia_smi
from plan_examples import gpu_nodes

from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.doctor.findings import Finding
from dlperf_runner.doctor.nodes import diagnose

PROJECT = Path(__file__).parents[2]
FIXTURES = PROJECT / "tests/fixtures/gpu"
V100 = nvidia_smi.read_xml((FIXTURES / "v100_440.xml").read_text())["gpus"][0]
TOPOLOGY = nvidia_smi.topology((FIXTURES / "v100_topo.txt").read_text())
NODES = gpu_nodes(stack="v100-cuda10.2")
STACKS = {node.name: load_catalog().stack_of(node) for node in NODES}


PCIE = {"width": 16, "max_width": 16, "speed": 8.0, "max_speed": 8.0}


def gpu(index: int) -> dict[str, Any]:
    bus = f"0000:{0x1A + index:02x}:00.0"
    return copy.deepcopy(V100) | {"index": index, "bus_id": bus, "pcie_generation": 3}


def healthy(number: int) -> dict[str, Any]:
    """The facts of one node of the published tests, as it should have been."""
    gpus = [gpu(index) for index in range(8)]
    port = {
        "port": 1,
        "state": "ACTIVE",
        "physical_state": "LinkUp",
        "rate_gbps": 100,
        "full_rate_gbps": None,
        "speed": "EDR",
        "link_layer": "InfiniBand",
        "gids": [],
        "interface": "ib0",
        "gid_table": {},
        "pkeys": ["0xffff", "0x0000"],
        "counters": {"link_downed": 0},
        "fault": None,
        "in_use": True,
    }
    return {
        "pythons": ["3.6.9", "2.7.17"],
        "compute": {"failed": None, "kind": None, "count": 8},
        "asked": 1000.0,
        "answered": 1001.0,
        "ssh_mesh": {"failed": None},
        "firewall": {"failed": None},
        "all_reduce": {"failed": None} if number == 1 else None,
        "health": {
            "time": 1000.5,
            "synchronized": True,
            "time_services": ["chronyd"],
            "python": "3.6.9",
            "system": "ubuntu18.04",
            "kernel": "4.15.0-213-generic",
            "architecture": "x86_64",
            "cpus": 48,
            "disks": {"/": {"free_mib": 400000, "total_mib": 500000, "read_only": False}},
            "openmpi": "4.0.0",
            "addresses": {"http://mirror/ubuntu": None},
            "stamps": {},
        },
        "gpu": {
            "error": None,
            "imex": None,
            "is_amd": False,
            "next_kernel": None,
            "inforom": [],
            "rocm": None,
            "gpus": gpus,
            "pci": [each["bus_id"] for each in gpus],
            "pcie": {each["bus_id"]: dict(PCIE) for each in gpus},
            "nvswitches": [],
            "fabric_manager": None,
            "driver": "440.33.01",
            "driver_running": "440.33.01",
            "driver_cuda": "10.2",
            "cuda": "10.2.89",
            "cudnn": "7.6.5",
            "nccl": "2.7.3",
            "modules": {"nvidia": "440.33.01", "nv_peer_mem": "1.0-9"},
            "topology": copy.deepcopy(TOPOLOGY),
            "xid": [],
        },
        "fabric": {
            "devices": [
                {"name": "mlx5_0", "firmware": "12.23.1020", "pcie": dict(PCIE), "ports": [port]}
            ],
            "acs": [],
            "iommu": [],
            "interfaces": {
                "ib0": {"state": "up", "mtu": 65520, "addresses": [f"10.11.0.{number + 1}/24"]}
            },
            "modules": {"nv_peer_mem": "1.0-9", "mlx5_core": "5.0-2.1.8"},
            "missing_rails": [],
            "gpu_direct": ["nv_peer_mem"],
            "dma_buf": ["a running driver"],
            "peer_memory_client": True,
            "ofed": "5.0-2.1.8.0",
            "memlock_kib": None,
            "memlock_unlimited": True,
        },
    }


def document(core: str = "2.16.14") -> dict[str, Any]:
    return {
        "ansible_core": core,
        "nodes": {node.name: healthy(n) for n, node in enumerate(NODES, 1)},
    }


def trouble(told: dict[str, Any]) -> list[Finding]:
    return [found for found in diagnose(NODES, STACKS, told) if found.status != "ok"]


def of(*path: str | int, **values: Any) -> Callable[[Any], object]:
    """A change of what stands at the path in a node's facts."""
    return lambda facts: reduce(getitem, path, facts).update(values)


def of_gpu(*path: str, **values: Any) -> Callable[[Any], object]:
    """A change of GPU 3 of the node."""
    return of("gpu", "gpus", 3, *path, **values)


def of_port(**values: Any) -> Callable[[Any], object]:
    return of("fabric", "devices", 0, "ports", 0, **values)
