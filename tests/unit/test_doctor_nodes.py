"""The doctor on nodes: its findings of a healthy cluster with one thing wrong, what it expects by
the stack and by what a node keeps, its verdict, and its output."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import Called, call
from doctor_facts import (
    NODES,
    PROJECT,
    STACKS,
    document,
    gpu,
    healthy,
    of,
    of_gpu,
    of_port,
    trouble,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from dlperf_runner.catalog.holes import known_holes
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.core.errors import UserError
from dlperf_runner.core.node import Node
from dlperf_runner.doctor.command import examine, render
from dlperf_runner.doctor.fabric import fabric_findings
from dlperf_runner.doctor.findings import Finding
from dlperf_runner.doctor.gpu import SILENCE, gpu_findings
from dlperf_runner.doctor.nodes import diagnose
from dlperf_runner.provision import preflight
from dlperf_runner.provision.ssh_mesh import partners


def test_a_healthy_cluster_has_no_finding_but_good_ones() -> None:
    findings = diagnose(NODES, STACKS, document())
    assert [found for found in findings if found.status != "ok"] == []
    assert {found.node for found in findings} == {"", "node1", "node2", "node3", "node4"}
    checks = {found.check for found in findings if found.node == "node1"}
    assert checks == {
        *("reached", "python", "system", "disk /", "package sources", "openmpi", "clock"),
        *("driver", "cuda", "cudnn", "nccl", "gpu count", "gpu model", "gpu answers", "ecc"),
        *("throttling", "other processes", "xid errors", "interface", "address", "link state"),
        *("link rate", "ofed", "peer memory", "locked memory", "ssh mesh", "all-reduce"),
        *("gpu compute", "pcie of GPUs", "pcie of cards", "p_key"),
        *("time service", "firewall"),
    }
    compared = {found.check for found in findings if not found.node}
    assert {"nvlink topology", "rdma rates", "kernel", "mtu", "application clocks"} <= compared


IMEX = {"is_active": True, "channels": 1, "domain": "UP", "missing": []}
ZEROS = "00000000-0000-0000-0000-000000000000"
IN_FABRIC = {"state": "Completed", "status": "Success", "cluster_uuid": ZEROS, "health": None}


def of_fabric(state: str, status: str | None, **more: Any) -> Callable[[Any], object]:
    """GPU 3, in an NVLink fabric of this state."""
    return of_gpu(fabric=IN_FABRIC | {"state": state, "status": status}, **more)


def of_process(kind: str) -> Callable[[Any], object]:
    return of_gpu(processes=[{"pid": 41327, "name": "python3", "type": kind, "memory_mib": 70}])


def of_manager(version: str, is_active: bool) -> Callable[[Any], object]:
    return of("gpu", fabric_manager={"version": version, "is_active": is_active})


def of_xid(xid: int, message: str = "x", count: int = 1) -> Callable[[Any], object]:
    error = {"bus_id": "0000:1d:00", "xid": xid, "message": message, "count": count}
    return of("gpu", xid=[error])


def of_links(first: str, others: str) -> Callable[[Any], object]:
    """A board with NVSwitches: the link between the first two of three GPUs, and the others."""
    links = {f"GPU{a}": {f"GPU{b}": others for b in range(3) if b != a} for a in range(3)}
    links["GPU0"]["GPU1"] = links["GPU1"]["GPU0"] = first
    return of("gpu", nvswitches=["0000:05:00.0"], topology={"links": links})


def without_a_gpu(facts: Any) -> None:
    facts["gpu"]["gpus"].pop()


DISK, IB0, CARD = (
    ("health", "disks", "/"),
    ("fabric", "interfaces", "ib0"),
    ("fabric", "devices", 0),
)
MISSING = {"http://mirror/key.pub": "HTTP Error 404: Not Found"}
CLOSED = "node3: exit status 1; output: node3 closes TCP 40123 of 10.11.0.4 (timed out)"
NO_TIME = of("health", synchronized=False, time_services=[])
OTHER_IMEX = IMEX | {"domain": "DEGRADED", "missing": ["10.136.206.49"]}
CARD_X8 = {"width": 8, "max_width": 16, "speed": 8, "max_speed": 16}
ERRORS = {"link_downed": 7, "symbol_error": 12}
# What is wrong on node2, and the check, the status and words of what was found that tell it.
WRONG: list[tuple[Callable[[Any], object], str, str, str]] = [
    (of("health", time=1061.0), "clock", "failed", "at least 60.0 s"),
    (of("health", time=939.5), "clock", "failed", "at least 60.5 s"),
    (of("firewall", failed=CLOSED), "firewall", "warning", "node3 closes TCP 40123"),
    (of("health", synchronized=False), "time service", "warning", "no; chronyd runs"),
    (NO_TIME, "time service", "warning", "no; none runs"),
    (of("health", synchronized=None), "time service", "warning", "unknown"),
    (of("health", system="ubuntu22.04"), "system", "failed", "ubuntu22.04"),
    (of("health", system=None), "system", "warning", "unknown"),
    (of(*DISK, free_mib=512), "disk /", "failed", "0.5 GiB free"),
    (
        of(*DISK, free_mib=90000, free_files=7),
        *("disk /", "failed", "1000 inodes left, found 87.9 GiB free, 7 inodes left"),
    ),
    (of(*DISK, read_only=True), "disk /", "failed", "read-only"),
    (of("health", addresses=MISSING), "package sources", "failed", "key.pub: HTTP Error 404"),
    (of("health", openmpi="4.1.4"), "openmpi", "failed", "4.1.4"),
    (of("health", openmpi=None), "openmpi", "failed", "none"),
    (of("health", failed="Missing sudo password"), "health facts", "failed", "sudo"),
    (lambda facts: facts.update(gpu=None), "gpu facts", "failed", "nothing"),
    (of("gpu", driver="450.80.02"), "driver", "failed", "450.80.02"),
    (of("gpu", driver_running="418.87.00"), "loaded driver", "failed", "418.87.00"),
    (of("gpu", cuda="11.0.3"), "cuda", "failed", "11.0.3"),
    (of("gpu", cudnn=None), "cudnn", "failed", "none"),
    (of("gpu", nccl="2.7.30"), "nccl", "failed", "2.7.30"),
    (of("gpu", modules={"nouveau": None}), "nouveau", "failed", "loaded"),
    (of("gpu", inforom=["0000:1a:00.0"]), "infoROM", "warning", "corrupted: 0000:1a:00.0"),
    (of("gpu", next_kernel="5.4.0-150-generic"), "next kernel", "warning", "150-generic has none"),
    (without_a_gpu, "gpu count", "failed", "7"),
    (without_a_gpu, "gpus on the bus", "failed", "0000:21:00.0"),
    (of_gpu(model="Tesla P100-SXM2-16GB"), "gpu model", "failed", "P100"),
    (of_gpu(errors={"temp/gpu": "ERR!"}), "gpu answers", "failed", "GPU 3: temp/gpu ERR!"),
    (of_gpu("ecc", "volatile", uncorrected=2), "ecc", "failed", "GPU 3: 2 uncorrected since boot"),
    (
        of_gpu("ecc", "aggregate", uncorrected=5),
        "ecc",
        "warning",
        "5 uncorrected over its",
    ),
    (of_gpu("retired_pages", pending=True), "ecc", "failed", "pages pending retirement"),
    (of_gpu(remapped_rows={"failure": True}), "ecc", "failed", "row remapping failed"),
    (of_gpu("ecc", enabled=False), "ecc", "warning", "ECC is off"),
    (of_gpu(mig=True), "mig", "failed", "GPU 3: MIG is on"),
    (of_gpu(throttle_reasons=["hw_slowdown"]), "throttling", "failed", "GPU 3: hw_slowdown"),
    (of_gpu(throttle_reasons=["sw_power_cap"]), "throttling", "warning", "GPU 3: sw_power_cap"),
    (of_gpu(power_limit_w=250.0), "power limit", "warning", "250 W of 300"),
    (of_gpu(persistence=False), "persistence", "warning", "GPU 3: off"),
    (of_process("C"), "other processes", "failed", "GPU 3: pid 41327 python3 70 MiB"),
    (of_process("G"), "other processes", "warning", "pid"),
    (of_xid(79), "xid errors", "failed", "Xid 79"),
    (of_xid(13, count=4), "xid errors", "warning", "Xid 13 (4 times)"),
    # NVLink 5 (leptonai/gpud#1160), NVSwitches, and what the driver asks for (scitix/sichek#121).
    (of_xid(149, "NETIR_LINK_EVT Fatal XC0 i0"), "xid errors", "failed", "Xid 149 (1 times) NETIR"),
    (of_xid(145, "RLW_RXPIPE Nonfatal XC0"), "xid errors", "warning", "Xid 145"),
    (of_xid(24007, "Fatal, Link 31 sourcetrack"), "xid errors", "failed", "SXid 24007"),
    (of("gpu", xid=None), "xid errors", "warning", "unknown"),
    (of_gpu(recovery="Drain and Reset"), "gpu recovery", "failed", "GPU 3: Drain and Reset"),
    # Of a board whose switches connect all GPUs alike: Azure/azhpc-images#443.
    (of_links("NV18", "SYS"), "nvlinks", "failed", "GPU0-GPU2 SYS"),
    (of_links("NV18", "NV17"), "nvlinks", "failed", "GPU0-GPU2 NV17"),
    (of_links("SYS", "SYS"), "nvlinks", "failed", "GPU0-GPU1 SYS, GPU0-GPU2 SYS"),
    (of("fabric", interfaces={"ib0": None}), "interface", "failed", "no such interface"),
    (of(*IB0, state="down"), "interface", "failed", "down"),
    (of(*IB0, addresses=["10.99.0.3/24"]), "address", "failed", "10.99.0.3/24"),
    (of("fabric", devices=[]), "rdma ports", "failed", "none"),
    (of_port(state="INIT", fault="opensm"), "link state", "failed", "mlx5_0 port 1 INIT"),
    (of_port(physical_state="Polling", fault="cable"), "link state", "failed", "Polling"),
    (of_port(rate_gbps=40, speed="QDR"), "link rate", "failed", "40 Gb/s QDR"),
    (of_port(rate_gbps=None), "link rate", "warning", "unknown"),
    (of_port(link_layer="Ethernet"), "roce", "warning", "no GID"),
    (of("fabric", ofed=None), "ofed", "failed", "none"),
    # nv_peer_mem, which is optional.
    (of("fabric", gpu_direct=[]), "peer memory", "warning", "none"),
    (of("fabric", missing_rails=["mlx5_7"]), "rails", "failed", "no port mlx5_7, only mlx5_0"),
    (of("fabric", modules={"mlx5_core": "5.0-0"}), "loaded ofed", "failed", "5.0-0"),
    (of("fabric", memlock_unlimited=False, memlock_kib=64), "locked memory", "failed", "64 KiB"),
    (of("fabric", slurmd_memlock_kib=8192), "locked memory of slurmd", "warning", "8192 KiB"),
    (of("fabric", memlock_unlimited=None), "locked memory", "warning", "unknown"),
    # A GPU that is in no NVLink fabric: NVIDIA/gpu-operator#2511, Azure/azhpc-images#506.
    (of_fabric("In Progress", None), "nvlink fabric", "failed", "GPU 3: In Progress"),
    (of_fabric("Completed", "No Resources"), "nvlink fabric", "failed", "GPU 3: No Resources"),
    (
        of_fabric("Completed", "Success", model="NVIDIA GB200"),
        *("nvlink fabric", "failed", "GPU 3: no ClusterUUID"),
    ),
    (of_manager("440.33.01", False), "fabric manager", "failed", "not active"),
    (of_manager("418.87.00", True), "fabric manager version", "failed", "418.87.00"),
    # NVIDIA/nccl#2186: NVLink between nodes needs IMEX.
    (of("gpu", imex=IMEX | {"is_active": False}), "imex", "failed", "not active"),
    (of("gpu", imex=IMEX | {"channels": 0}), "imex", "failed", "active, 0 channels"),
    (of("gpu", imex=OTHER_IMEX), "imex", "failed", "domain DEGRADED, not ready: 10.136.206.49"),
    # NVIDIA/gpu-operator#2781: nvidia-smi looks healthy, and CUDA fails with 802.
    (of("compute", failed="cuInit returned 802", kind="fabric"), "gpu compute", "failed", "802"),
    (
        of("compute", failed="cuCtxCreate returned 46", kind="busy"),
        "gpu compute",
        "warning",
        "46",
    ),
    # NVIDIA/NVSentinel#890
    (of("gpu", "pcie", "0000:1d:00.0", width=8), "pcie of GPUs", "warning", "1d:00.0 x8 of x16"),
    (of_gpu(pcie_generation=1), "pcie of GPUs", "warning", "generation 1 of generation 3"),
    (of(*CARD, pcie=CARD_X8), "pcie of cards", "warning", "x8 of x16; mlx5_0 8 GT/s of 16 GT/s"),
    # Azure/azurehpc-health-checks#152 and azurehpc#586
    (of_port(pkeys=["0x7fff", "0xffff"]), "p_key", "failed", "has 0x7fff"),
    (of_port(counters=ERRORS), "link errors", "warning", "port 1 link_downed 7, symbol_error 12"),
    # NVIDIA/nccl#1737, #2079, #667
    (of("fabric", acs=["0000:20:01.0"]), "acs", "warning", "first 0000:20:01.0"),
    (of("fabric", iommu=["DMA-FQ"]), "iommu", "warning", "DMA-FQ"),
    (of("ssh_mesh", failed="node3: Host key verification failed."), "ssh mesh", "failed", "Host"),
]


@pytest.mark.parametrize(("change", "check", "status", "words"), WRONG)
def test_one_thing_wrong_on_a_node(
    change: Callable[[Any], object], check: str, status: str, words: str
) -> None:
    told = document()
    change(told["nodes"]["node2"])
    found = [one for one in trouble(told) if (one.node, one.check) == ("node2", check)]
    assert [one.status for one in found] == [status]
    assert words in f"{found[0].expected}, found {found[0].found}"
    assert found[0].hint and found[0].expected
    assert {one.node for one in trouble(told)} <= {"node2", ""}


def of_old_pcie(facts: Any) -> None:
    for each in facts["gpu"]["gpus"]:
        each.update(pcie_generation=2)


DIFFERENT: list[tuple[Callable[[Any], object], str, str]] = [
    (of("health", kernel="5.4.0"), "kernel", "warning"),
    (without_a_gpu, "gpu count", "failed"),
    (of("gpu", driver="450.80.02"), "driver", "failed"),
    (of_gpu("clocks_mhz", "application", graphics=1530), "application clocks", "failed"),
    (of_gpu(vbios="88.00.1A.00.04"), "gpu bios", "warning"),
    (of_old_pcie, "pcie generation", "warning"),
    (of("gpu", "topology", "links", "GPU0", GPU1="SYS"), "nvlink topology", "failed"),
    (of_port(rate_gbps=40), "rdma rates", "failed"),
    # Azure/azurehpc-health-checks#152: a full member, but of another partition
    (of_port(pkeys=["0x8001", "0xffff"]), "rdma p_keys", "warning"),
    (of(*IB0, mtu=2044), "mtu", "failed"),
    (of(*CARD, firmware="12.27"), "rdma firmware", "warning"),
]


@pytest.mark.parametrize(("change", "check", "status"), DIFFERENT)
def test_a_node_unlike_the_others_is_named(
    change: Callable[[Any], object], check: str, status: str
) -> None:
    told = document()
    change(told["nodes"]["node3"])
    (found,) = [one for one in trouble(told) if not one.node]  # a missing GPU has no other clocks
    assert (found.check, found.status) == (check, status)
    assert found.found.startswith("node3: ")
    assert "node1, node2, node4: " in found.found


def test_other_names_of_the_cards_are_no_other_topology() -> None:
    told = document()
    for row in told["nodes"]["node4"]["gpu"]["topology"]["links"].values():
        row["NIC0"] = row.pop("mlx5_0", "X")
    assert trouble(told) == []


def test_nodes_that_cannot_be_reached_or_were_not_asked() -> None:
    told = document()
    told["nodes"]["node1"] = {"unreachable": "Connection refused"}
    del told["nodes"]["node4"]
    found = {one.node: one for one in trouble(told)}
    assert {(node, one.check, one.found) for node, one in found.items()} == {
        ("node1", "reached", "Connection refused"),
        ("node4", "reached", "it was not asked"),
    }


@pytest.mark.parametrize(("kind", "hint"), SILENCE.items())
def test_a_driver_that_is_silent(kind: str, hint: str) -> None:
    told = document()
    error = {"kind": kind, "message": "it says so", "exit_status": 9}
    told["nodes"]["node2"]["gpu"].update(error=error, gpus=[], driver=None, topology=None)
    found = {one.check: one for one in trouble(told) if one.node == "node2"}
    assert (found["nvidia-smi"].found, found["nvidia-smi"].hint) == (f"{kind}: it says so", hint)
    assert found["driver"].found == "none"


# pinned-installs.md and the support matrix of ansible-core; Ubuntu 16.04 has 3.5 and 2.7.
@pytest.mark.parametrize(
    ("core", "pythons", "status", "hint"),
    [
        ("2.16.14", ["3.6.9"], "ok", ""),
        ("2.16.14", ["3.5.2", "2.7.12"], "ok", ""),
        ("2.19.4", ["3.6.9"], "failed", "ansible-core 2.16"),
        ("2.19.4", ["3.5.2", "2.7.12"], "failed", "ansible-core 2.16"),
        ("2.17.1", ["3.13.0"], "failed", "ansible-core 2.19"),
        ("2.19.4", [], "failed", "install python3"),
        ("2.99.0", ["3.6.9"], "warning", "newer than this check"),
    ],
)
def test_ansible_against_the_python_of_a_node(
    core: str, pythons: list[str], status: str, hint: str
) -> None:
    told = document(core)
    told["nodes"]["node2"].update(pythons=pythons, health={"failed": "unsupported Python"})
    found = {(one.node, one.check): one for one in diagnose(NODES, STACKS, told)}["node2", "python"]
    assert (found.status, hint in found.hint) == (status, True)


def leaves(value: Any) -> list[tuple[Any, Any]]:
    """Where each value stands, in dictionaries and lists within each other."""
    keys = value if isinstance(value, dict) else range(len(value))
    found: list[tuple[Any, Any]] = []
    for key in keys:
        is_inner = isinstance(value[key], dict | list) and value[key]
        found += leaves(value[key]) if is_inner else [(value, key)]
    return found


@settings(deadline=None)
@given(st.data())
def test_any_fact_may_be_absent(data: st.DataObject) -> None:
    """gpu_info and fabric_info say null where they do not know; that is never a crash."""
    told = document()
    places = [
        (parent, key)
        for part in ("gpu", "fabric")
        for parent, key in leaves(told["nodes"]["node2"][part])
        if key not in ("error", "errors", "name", "port")
    ]
    for number in data.draw(st.lists(st.integers(0, len(places) - 1), max_size=20)):
        parent, key = places[number]
        parent[key] = [] if key == "gids" else None
    for finding in trouble(told):
        assert finding.hint


HOSTS = [f"node{number}" for number in range(100)]


def test_every_node_calls_every_other_one_and_no_node_is_called_by_many_at_once() -> None:
    calls = [partners(HOSTS[:64], host, 64, ahead=True) for host in HOSTS[:64]]
    for host, called in zip(HOSTS, calls, strict=False):
        assert {host, *called} == set(HOSTS[:64]) and len(called) == 63
    # Who keeps step with the others is alone where he calls.
    assert all(len(set(at_once)) == 64 for at_once in zip(*calls, strict=True))


def test_in_a_large_cluster_each_node_calls_a_few_and_all_are_called() -> None:
    calls = {host: partners(HOSTS, host, 64, ahead=True) for host in HOSTS}
    assert len(calls["node0"]) == 99
    assert calls["node98"] == ["node99", "node0", "node2", "node6", "node14", "node30", "node62"]
    others = [called for host, called in calls.items() if host != "node0"]
    assert {len(called) for called in others} == {7}
    times = Counter(name for called in others for name in called)
    assert set(times) == set(HOSTS) and set(times.values()) <= {6, 7}


@pytest.mark.parametrize("size", range(1, 10))
def test_any_cluster_has_partners_that_are_others(size: int) -> None:
    for limit in (0, 4, 64):
        for host in HOSTS[:size]:
            called = partners(HOSTS[:size], host, limit, ahead=True)
            assert host not in called and len(set(called)) == len(called)
            assert bool(called) == (size > 1)


def test_it_is_said_how_many_a_node_has_called() -> None:
    def asked(called: int | None) -> str:
        nodes = [Node(name, name, 1, "cpu", "cpu") for name in HOSTS[:4]]
        told = {node.name: {"ssh_mesh": {"failed": None, "called": called}} for node in nodes}
        told["node3"] = {"unreachable": "no route"}
        document = {"ansible_core": "2.19.4", "nodes": told}
        found = diagnose(nodes, dict.fromkeys(HOSTS[:4], load_catalog().stack("cpu")), document)
        (mesh,) = [each for each in found if (each.node, each.check) == ("node1", "ssh mesh")]
        return mesh.expected

    assert asked(2) == asked(None) == "reaches every other node"
    assert asked(1) == "reaches 1 of 2 other nodes"


# ---- by the stack, and what the node keeps


Found = Callable[[], dict[str, Finding]]


def on_fabric(changed: dict[str, Any]) -> dict[str, Finding]:
    changes = {"infiniband": changed.pop("infiniband", {})}
    more = {"stack_overrides": changes, "env": changed.pop("env", {})}
    node = replace(NODES[0], stack="h100-cuda12.9", **more)
    fabric = healthy(1)["fabric"]
    (card,) = fabric["devices"]
    fabric["devices"] = [
        card | {"name": f"mlx5_{n}", "ports": [card["ports"][0] | port]}
        for n, port in enumerate(changed.pop("ports", [{}]))
    ]
    findings = fabric_findings(node, load_catalog().stack_of(node), fabric | changed)
    return {finding.check: finding for finding in findings}


def of_h100(**changed: Any) -> Found:
    """The findings of one node of the stack h100-cuda12.9, whose links have 400 Gb/s."""
    return lambda: on_fabric(changed)


def on_gpus(stack: str, changed: dict[str, Any]) -> dict[str, Finding]:
    kept = {name: changed.pop(name) for name in ("accelerator", "adopted") if name in changed}
    node = replace(NODES[0], stack=stack, **kept)
    facts = healthy(1)["gpu"] | changed
    return {each.check: each for each in gpu_findings(node, load_catalog().stack_of(node), facts)}


def of_gpus(stack: str = "h100-cuda12.9", **changed: Any) -> Found:
    """The findings about the GPUs of a node of this stack."""
    return lambda: on_gpus(stack, changed)


def of_driver(version: str, **changed: Any) -> Found:
    return of_gpus(driver=version, driver_running=version, **changed)


def of_kept(native: str | None) -> Found:
    """Of a node that keeps its driver, which supports this CUDA."""
    return of_driver("535.161.07", adopted=("driver", "infiniband"), driver_cuda=native)


def of_amd(**changed: Any) -> Found:
    """The findings about the GPUs of a node of AMD's, whose facts are those of gpu_info."""
    unknown = ("throttle_reasons", "processes", "persistence", "mig", "remapped_rows")
    amd = {"model": "AMD Instinct MI300X"} | dict.fromkeys(unknown)
    known = {"is_amd": True, "rocm": "7.2.4", "driver": "6.16.13", "xid": None, "modules": {}}
    known["gpus"] = [gpu(n) | amd for n in range(8)]
    return of_gpus("mi300-rocm7", accelerator="AMD Instinct MI300X", **known | changed)


ROCE = {"link_layer": "Ethernet", "full_rate_gbps": 100}
DOWN = {"state": "DOWN", "physical_state": "Polling", "fault": "cable", "in_use": False}
SEVEN_DOWN = [{}] + [DOWN] * 7
RAILS = [{"rate_gbps": 400}, {"rate_gbps": 200, "in_use": False}]
HCA = {"NCCL_IB_HCA": "mlx5_0"}
GIDS = {
    "1": ["fe80:0000:0000:0000:0ac0:ebff:fef1:a2c3", "RoCE v2"],
    "2": ["0000:0000:0000:0000:0000:ffff:0a0b:0002", "IB/RoCE v1"],
    "3": ["0000:0000:0000:0000:0000:ffff:0a0b:0002", "RoCE v2"],
}
FOR_CUDA = "expected a driver for CUDA 12.9.1, found 535.161.07, for CUDA "
NO_AMDGPU = {"kind": "no_amdgpu", "message": "amdgpu: the module is not loaded"}
ON_H100 = {"model": "NVIDIA H100 80GB HBM3"} | {"fabric": IN_FABRIC}


def of_gid(index: str) -> Found:
    return of_h100(ports=[ROCE | {"gid_table": GIDS}], env={"NCCL_IB_GID_INDEX": index})


FINDINGS: list[tuple[Found, str, str, str]] = [
    (of_h100(), "link rate", "failed", ""),
    (of_h100(infiniband={"rate_gbps": 100}), "link rate", "ok", ""),
    (of_h100(infiniband={"rate_gbps": None}), "link rate", "none", ""),
    # A RoCE link is not told of InfiniBand's rate.
    (of_h100(ports=[ROCE]), "link rate", "ok", ""),
    (of_h100(ports=[ROCE | {"rate_gbps": 40}]), "link rate", "failed", "expected 100 Gb/s"),
    (of_h100(ports=[ROCE | {"rate_gbps": 40}]), "link rate", "failed", "roce_rate_gbps: 40"),
    (of_h100(ports=[ROCE | {"full_rate_gbps": None}]), "link rate", "warning", ""),
    # Ports that are down and not named are told with how to name them.
    (of_h100(ports=SEVEN_DOWN), "other links", "warning", "mlx5_7 port 1 DOWN"),
    (of_h100(ports=SEVEN_DOWN), "other links", "warning", "NCCL_IB_HCA"),
    (of_h100(ports=SEVEN_DOWN, env=HCA), "other links", "none", ""),
    (of_h100(ports=SEVEN_DOWN, infiniband={"rails": "mlx5_0"}), "other links", "none", ""),
    (of_h100(ports=RAILS), "link rate", "ok", ""),
    (of_h100(ports=RAILS), "other link rates", "warning", "found mlx5_1 port 1 200 Gb/s EDR"),
    (of_h100(ports=RAILS, env=HCA), "other link rates", "none", ""),
    # The way to GPU memory. A module may be loaded and not registered: NVIDIA/nccl#1939.
    (of_h100(gpu_direct=["DMA-BUF", "nvidia-peermem"]), "peer memory", "ok", "found DMA-BUF"),
    (
        of_h100(gpu_direct=[], peer_memory_client=False),
        *("peer memory", "failed", "DMA-BUF needs a running driver"),
    ),
    (of_h100(gpu_direct=[]), "peer memory", "failed", "modprobe"),
    (
        of_h100(gpu_direct=[], modules={"nvidia_peermem": "580.105.08"}),
        *("peer memory", "failed", "is loaded, but ib_core does not know it"),
    ),
    (of_h100(infiniband={"peer_memory": None}), "peer memory", "none", ""),
    # A pinned GID must exist and be routable: tables differ, and change (NVIDIA/nccl#890).
    (of_gid("3"), "pinned gid", "ok", "0a0b:0002, RoCE v2"),
    (of_gid("1"), "pinned gid", "warning", "port 1: fe80:"),
    (of_gid("2"), "pinned gid", "failed", "IB/RoCE v1"),
    (of_gid("4"), "pinned gid", "failed", "of this port, 3 would do"),
    (of_h100(ports=[ROCE]), "pinned gid", "none", ""),
    # Nobody is asked to go back to an older driver.
    (of_driver("580.173.02"), "driver", "ok", ""),
    (of_driver("580.178.04"), "driver", "ok", ""),  # a security update of the branch
    (of_driver("580.105.08"), "driver", "failed", "provision.yml"),
    (of_driver("595.71.05"), "driver", "failed", "{driver: {version: '595.71.05'}})"),
    # A driver that the node keeps is judged by its CUDA.
    (of_kept("12.2"), "driver", "warning", FOR_CUDA),
    (of_kept("12.9"), "driver", "ok", FOR_CUDA),
    (of_kept("13.0"), "driver", "ok", FOR_CUDA),
    (of_kept("11.8"), "driver", "failed", FOR_CUDA),
    (of_kept(None), "driver", "warning", FOR_CUDA),
    # Zeros for a cluster are right on a board of its own.
    (of_gpus(gpus=[gpu(n) | ON_H100 for n in range(8)]), "nvlink fabric", "ok", ""),
    # GPUs of AMD's.
    (of_amd(error=NO_AMDGPU, gpus=[]), "amdgpu", "failed", "modprobe amdgpu"),
    (of_amd(rocm="7.1.1"), "rocm", "failed", "7.1.1"),
    (of_amd(driver=None), "driver", "failed", "found the kernel's own amdgpu"),
    (of_amd(adopted=("driver",), driver=None), "driver", "none", ""),
    (of_amd(gpus=[gpu(n) for n in range(7)]), "gpu count", "failed", "7"),
]
CHECKS = {check for _, check, status, _ in FINDINGS if status != "none"}


@pytest.mark.parametrize(("findings", "check", "status", "words"), FINDINGS)
def test_findings_of_todays_stacks(findings: Found, check: str, status: str, words: str) -> None:
    found = findings().get(check)
    assert check in CHECKS  # of another node, if this one has no such finding
    assert (found.status if found else "none") == status
    assert not found or words in f"expected {found.expected}, found {found.found}; {found.hint}"


def test_a_node_of_another_stack_is_told_of_nothing_else() -> None:
    assert {each.status for each in of_amd()().values()} == {"ok"}
    unknown = of_h100(ports=[ROCE | {"full_rate_gbps": None}])()["link rate"]
    assert "cable" not in unknown.hint


@pytest.mark.parametrize(
    ("part", "version", "said"),
    [
        ("driver", "580.105.08", "closed from 580.159.03 on"),
        ("driver", "580.159.03", ""),
        ("driver", "535.309.01", "gets no fixes since 2026-06"),
        ("toolkit", "1.13.5", "closed from 1.17.8 on"),
        ("driver", "440.33.01", ""),  # not judged
        ("docker", "28.5.2", "closed from 29.7.1 on"),
        ("docker", "29.8.1", ""),
        ("containerd", "1.7.29", "closed from 1.7.33 on"),
        ("containerd", "2.0.6", "closed from 2.0.10 on"),
        ("containerd", "2.2.6", ""),
        ("containerd", "2.3.4", "closed from 2.3.5 on"),
        ("containerd", "2.3.5", ""),
        ("containerd", None, ""),
    ],
)
def test_releases_with_published_holes_are_known(part: str, version: str | None, said: str) -> None:
    told = known_holes({part: version})
    assert len(told) == bool(said)
    assert all(said in each and "as of 2026-" in each for each in told)


def test_the_doctor_tells_of_holes() -> None:
    told = document()
    engine = {"docker": {"version": "28.2.2"}}
    told["nodes"]["node2"]["software"] = {"container_runtime": engine, "containerd": "1.7.27"}
    found = [each for each in trouble(told) if each.check == "known holes"]
    assert found[0].found.startswith("docker 28.2.2 has ")
    assert found[1].found.startswith("containerd 1.7.27 has ")
    assert {(each.node, each.status) for each in found} == {("node2", "warning")}


DRIVER, MPI = {"version": "535.161.07", "cuda": "12.2"}, {"version": "4.1.5"}


@pytest.mark.parametrize(
    ("recorded", "problems", "statuses"),
    [
        ({"driver": DRIVER, "openmpi": MPI}, [], ("ok", "ok")),
        ({"driver": DRIVER, "openmpi": MPI}, ["driver"], ("failed", "ok")),
        ({"driver": DRIVER | {"version": "535.104.12"}, "openmpi": MPI}, [], ("warning", "ok")),
        ({"driver": DRIVER}, [], ("ok", "warning")),
        (None, [], ("warning", "warning")),
    ],
)
def test_what_a_node_keeps_is_compared_with_the_record_of_provisioning(
    recorded: dict[str, object] | None, problems: list[str], statuses: tuple[str, str]
) -> None:
    node = replace(NODES[0], stack="h100-cuda12.9", adopted=("driver", "openmpi"))
    told = document()
    told["nodes"]["node1"]["adopted"] = {
        "recorded": recorded,
        "kept": {"driver": DRIVER, "openmpi": MPI},
        "meanings": {"driver": "driver: 535.161.07 supports CUDA 12.2"},
        "problems": problems,
    }
    stacks = {each.name: load_catalog().stack_of(each) for each in (node, *NODES[1:])}
    each = {(one.node, one.check): one for one in diagnose([node, *NODES[1:]], stacks, told)}
    driver = each["node1", "kept driver"]
    assert (driver.status, each["node1", "kept openmpi"].status) == statuses
    if statuses == ("ok", "ok"):
        assert driver.expected == "version 535.161.07, cuda 12.2"
        assert driver.found == "driver: 535.161.07 supports CUDA 12.2"
    if statuses[0] == "warning" and recorded:
        assert driver.expected == "version 535.104.12, cuda 12.2"
        assert "provision.yml --limit node1" in driver.hint


def test_an_ofed_that_the_node_keeps_may_have_any_version() -> None:
    told = document()
    for facts in told["nodes"].values():
        facts["fabric"] |= {"ofed": "5.8-1.0.1.1", "modules": {"mlx5_core": "5.8-1.0.1"}}
    nodes = [replace(node, adopted=("infiniband",)) for node in NODES]
    stacks = {node.name: load_catalog().stack_of(node) for node in nodes}
    assert [found for found in diagnose(nodes, stacks, told) if found.status != "ok"] == []


def test_a_stack_without_infiniband_has_no_finding_about_it() -> None:
    node = replace(NODES[0], stack_overrides={"infiniband": None})
    found = fabric_findings(node, load_catalog().stack_of(node), healthy(1)["fabric"])
    assert [(each.check, each.status) for each in found] == [("interface", "ok"), ("address", "ok")]


# ---- the verdict, the output, and the files of facts


def test_text_tells_what_is_wrong_and_what_to_do() -> None:
    told = document()
    told["nodes"]["node2"]["gpu"]["gpus"][3]["mig"] = True
    text = render(diagnose(NODES, STACKS, told), 200)
    assert "\n  failed  mig: expected off, found GPU 3: MIG is on\n          -> nvidia-smi" in text
    assert text.count("\n  failed") == 1
    assert " checks: 1 failed, 0 warnings, " in text
    assert "clock" in text
    assert "within 2 s" in render(diagnose(NODES, STACKS, told), 200, everything=True)


def test_slurm_gets_one_line_as_from_node_health_check(tmp_path: Path) -> None:
    told = document()
    told["nodes"] = {name.upper(): facts for name, facts in told["nodes"].items()}

    def doctor(*options: str, status: int = 0) -> Called:
        path = tmp_path / "facts.json"
        path.write_text(json.dumps(told).replace("10.11.0.", "192.0.2."))  # the example's addresses
        example = PROJECT / "inventory/example"
        return call("doctor", "-i", example, "--facts", path, *options, status=status)

    assert doctor("--nhc").out == ""
    told["nodes"]["NODE2"]["gpu"]["gpus"][3]["mig"] = True
    told["nodes"]["NODE4"] = {"unreachable": "no\nroute"}
    assert doctor("--nhc", status=1).out == (
        "ERROR:  nhc:  Health check failed:  NODE2: mig: expected off, found GPU 3: MIG is on;"
        " NODE4: reached: expected by SSH, found no route\n"
    )
    assert doctor("--nhc", "--limit", "NODE1").out == ""
    items = doctor("--json", status=1).document["findings"]
    failed = [(item["node"], item["check"]) for item in items if item["status"] == "failed"]
    assert failed == [("NODE2", "mig"), ("NODE4", "reached")]
    assert "cannot be combined" in doctor("--nhc", "--json", status=2).err
    told["nodes"]["NODE1"] = []
    assert doctor("--nhc", status=2).out == ""


def test_facts_of_a_playbook(tmp_path: Path) -> None:
    """The filter of preflight.yml: what could not be had is told, what is Ansible's own is not."""
    pythons = "/usr/bin/python3 3.11.2\r\n/usr/bin/python2.7 2.7.18\r\nsystem debian12\r\n"
    hostvars = {
        "node1": {
            "bootstrap_found": {"stdout": pythons},
            "preflight_health": {"time": 5.0, "changed": False, "failed": False},
            "preflight_gpu": {
                "failed": True,
                "msg": "MODULE FAILURE",
                "module_stderr": "x\nboom",
            },
            "preflight_fabric": {"failed": True, "msg": "Missing sudo\npassword"},
            "preflight_compute": {"failed": True, "msg": "GPU 0:\n802", "kind": "fabric"},
            "preflight_ssh_mesh": {"failed": True, "msg": "node2: no"},
            "preflight_partners": ["node2"],
            "preflight_all_reduce": {"skipped": True},
            "preflight_asked": "4.0",
            "preflight_answered": 6.5,
        },
        "node2": {"bootstrap_found": {"unreachable": True, "msg": "no route"}},
        "node3": {},
    }
    assert preflight.facts(hostvars, ["node1", "node2", "node3"]) == {
        "node1": {
            "pythons": ["3.11.2", "2.7.18"],
            "compute": {"failed": "GPU 0: 802", "kind": "fabric", "count": 0},
            "health": {"time": 5.0},
            "gpu": {"failed": "boom"},
            "fabric": {"failed": "Missing sudo password"},
            "dcgm": None,
            "adopted": None,
            "software": None,
            "ssh_mesh": {"failed": "node2: no", "called": 1},
            "firewall": None,
            "all_reduce": None,
            "asked": 4.0,
            "answered": 6.5,
        },
        "node2": {"unreachable": "no route"},
    }


OLD = {"ansible_core": "2.19", "nodes": {"NODE1": {"health": {"time": 1}}}}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        *((text, "") for text in ("", "[]", "{}", '{"nodes": []}')),
        ('{"ansible_core": "2.19", "nodes": {"a": 1}}', ""),
        (json.dumps(OLD), "not in the format of this version"),
        (None, ""),
    ],
)
def test_files_that_are_no_facts(tmp_path: Path, content: str | None, problem: str) -> None:
    path = tmp_path / "facts.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=rf"facts\.json.*{problem}"):
        examine([str(PROJECT / "inventory/example")], "", path)
