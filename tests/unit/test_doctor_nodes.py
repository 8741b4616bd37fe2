"""The doctor on nodes: its findings of a healthy cluster with one thing wrong, what it expects by
the stack and by what a node keeps, its verdict, and its output."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import Called, call
from doctor_facts import NODES, PROJECT, STACKS, document, healthy, of, of_gpu, of_port, trouble
from hypothesis import given, settings
from hypothesis import strategies as st

from dlperf_runner.catalog.holes import known_holes
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.core.errors import UserError
from dlperf_runner.core.node import Node
from dlperf_runner.doctor.command import examine, read_facts, render
from dlperf_runner.doctor.fabric import fabric_findings
from dlperf_runner.doctor.findings import Finding
from dlperf_runner.doctor.gpu import SILENCE, gpu_findings
from dlperf_runner.doctor.nodes import diagnose, status_of
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


def process(kind: str) -> dict[str, Any]:
    return {"pid": 41327, "name": "python3", "type": kind, "memory_mib": 70}


def fabric(state: str, status: str | None) -> dict[str, Any]:
    zeros = "00000000-0000-0000-0000-000000000000"
    words = {"state": state, "status": status, "cluster_uuid": zeros}
    return words | {"clique_id": "0", "health": None}


def of_xid(xid: int, message: str) -> Callable[[Any], object]:
    return of("gpu", xid=[{"bus_id": "0000:1d:00", "xid": xid, "message": message, "count": 1}])


def of_links(first: str, others: str) -> Callable[[Any], object]:
    """A board with NVSwitches: the link between the first two of three GPUs, and the others."""
    links = {f"GPU{a}": {f"GPU{b}": others for b in range(3) if b != a} for a in range(3)}
    links["GPU0"]["GPU1"] = links["GPU1"]["GPU0"] = first
    return of("gpu", nvswitches=["0000:05:00.0"], topology={"links": links})


CLOSED = "node3: exit status 1; output: node3 closes TCP 40123 of 10.11.0.4 (timed out)"
# What is wrong on node2, and the check, the status and words of what was found that tell it.
WRONG: list[tuple[Callable[[Any], object], str, str, str]] = [
    (of("health", time=1061.0), "clock", "failed", "at least 60.0 s"),
    (of("health", time=939.5), "clock", "failed", "at least 60.5 s"),
    (of("firewall", failed=CLOSED), "firewall", "warning", "node3 closes TCP 40123"),
    (of("health", synchronized=False), "time service", "warning", "no; chronyd runs"),
    (
        of("health", synchronized=False, time_services=[]),
        *("time service", "warning", "no; none runs"),
    ),
    (of("health", synchronized=None), "time service", "warning", "unknown"),
    (of("health", system="ubuntu22.04"), "system", "failed", "ubuntu22.04"),
    (of("health", system=None), "system", "warning", "unknown"),
    (
        of("health", disks={"/": {"free_mib": 512, "total_mib": 9000, "read_only": False}}),
        *("disk /", "failed", "0.5 GiB free"),
    ),
    (
        of("health", disks={"/": {"free_mib": 90000, "free_files": 7, "read_only": False}}),
        *("disk /", "failed", "87.9 GiB free, 7 inodes left"),
    ),
    (
        of("health", disks={"/": {"free_mib": 90000, "total_mib": 99999, "read_only": True}}),
        *("disk /", "failed", "read-only"),
    ),
    (
        of("health", addresses={"http://mirror/key.pub": "HTTP Error 404: Not Found"}),
        *("package sources", "failed", "http://mirror/key.pub: HTTP Error 404"),
    ),
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
    (of("gpu", inforom=["0000:1a:00.0"]), "infoROM", "warning", "0000:1a:00.0"),
    (of("gpu", next_kernel="5.4.0-150-generic"), "next kernel", "warning", "150-generic has none"),
    (lambda facts: facts["gpu"]["gpus"].pop(), "gpu count", "failed", "7"),
    (lambda facts: facts["gpu"]["gpus"].pop(), "gpus on the bus", "failed", "0000:21:00.0"),
    (of_gpu(model="Tesla P100-SXM2-16GB"), "gpu model", "failed", "P100"),
    (
        of_gpu(errors={"temperature/gpu_temp": "ERR!"}),
        *("gpu answers", "failed", "GPU 3: temperature/gpu_temp ERR!"),
    ),
    (of_gpu("ecc", "volatile", uncorrected=2), "ecc", "failed", "GPU 3: 2 uncorrected since boot"),
    (
        of_gpu("ecc", "aggregate", uncorrected=5),
        *("ecc", "warning", "GPU 3: 5 uncorrected over its lifetime"),
    ),
    (of_gpu("retired_pages", pending=True), "ecc", "failed", "pages pending retirement"),
    (of_gpu(remapped_rows={"failure": True}), "ecc", "failed", "row remapping failed"),
    (of_gpu("ecc", enabled=False), "ecc", "warning", "ECC is off"),
    (of_gpu(mig=True), "mig", "failed", "GPU 3: MIG is on"),
    (
        of_gpu(throttle_reasons=["hw_thermal_slowdown"]),
        *("throttling", "failed", "GPU 3: hw_thermal_slowdown"),
    ),
    (of_gpu(throttle_reasons=["sw_power_cap"]), "throttling", "warning", "GPU 3: sw_power_cap"),
    (of_gpu(power_limit_w=250.0), "power limit", "warning", "250 W of 300"),
    (of_gpu(persistence=False), "persistence", "warning", "GPU 3: off"),
    (
        of_gpu(processes=[process("C")]),
        *("other processes", "failed", "GPU 3: pid 41327 python3 70 MiB"),
    ),
    (of_gpu(processes=[process("G")]), "other processes", "warning", "pid"),
    (
        of("gpu", xid=[{"bus_id": "0000:1d:00", "xid": 79, "message": "off the bus", "count": 1}]),
        *("xid errors", "failed", "Xid 79"),
    ),
    (
        of("gpu", xid=[{"bus_id": "0000:1d:00", "xid": 13, "message": "Graphics", "count": 4}]),
        *("xid errors", "warning", "Xid 13 (4 times)"),
    ),
    # NVLink 5 (leptonai/gpud#1160), NVSwitches, and what the driver asks for (scitix/sichek#121).
    (of_xid(149, "NETIR_LINK_EVT Fatal XC0 i0"), "xid errors", "failed", "Xid 149 (1 times) NETIR"),
    (of_xid(145, "RLW_RXPIPE Nonfatal XC0"), "xid errors", "warning", "Xid 145"),
    (of_xid(24007, "Fatal, Link 31 sourcetrack"), "xid errors", "failed", "SXid 24007"),
    (of_gpu(recovery="Drain and Reset"), "gpu recovery", "failed", "GPU 3: Drain and Reset"),
    # Of a board whose switches connect all GPUs alike: Azure/azhpc-images#443.
    (of_links("NV18", "SYS"), "nvlinks", "failed", "GPU0-GPU2 SYS"),
    (of_links("NV18", "NV17"), "nvlinks", "failed", "GPU0-GPU2 NV17"),
    (of_links("SYS", "SYS"), "nvlinks", "failed", "GPU0-GPU1 SYS, GPU0-GPU2 SYS"),
    (of("gpu", xid=None), "xid errors", "warning", "unknown"),
    (of("fabric", interfaces={"ib0": None}), "interface", "failed", "no such interface"),
    (of("fabric", "interfaces", "ib0", state="down"), "interface", "failed", "down"),
    (
        of("fabric", "interfaces", "ib0", addresses=["10.99.0.3/24"]),
        *("address", "failed", "10.99.0.3/24"),
    ),
    (of("fabric", devices=[]), "rdma ports", "failed", "none"),
    (of_port(state="INIT", fault="opensm"), "link state", "failed", "mlx5_0 port 1 INIT"),
    (
        of_port(state="DOWN", physical_state="Polling", fault="cable"),
        *("link state", "failed", "Polling"),
    ),
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
    (of_gpu(fabric=fabric("In Progress", None)), "nvlink fabric", "failed", "GPU 3: In Progress"),
    (
        of_gpu(fabric=fabric("Completed", "Insufficient Resources")),
        *("nvlink fabric", "failed", "GPU 3: Insufficient Resources"),
    ),
    (
        of_gpu(fabric=fabric("Completed", "Success"), model="NVIDIA GB200"),
        *("nvlink fabric", "failed", "GPU 3: no ClusterUUID"),
    ),
    (
        of("gpu", fabric_manager={"version": "440.33.01", "is_active": False}),
        *("fabric manager", "failed", "not active"),
    ),
    (
        of("gpu", fabric_manager={"version": "418.87.00", "is_active": True}),
        *("fabric manager version", "failed", "418.87.00"),
    ),
    # NVIDIA/nccl#2186: NVLink between nodes needs IMEX.
    (of("gpu", imex=IMEX | {"is_active": False}), "imex", "failed", "not active"),
    (of("gpu", imex=IMEX | {"channels": 0}), "imex", "failed", "active, 0 channels"),
    (
        of("gpu", imex=IMEX | {"domain": "DEGRADED", "missing": ["10.136.206.49"]}),
        "imex",
        "failed",
        "active, 1 channels, domain DEGRADED, not ready: 10.136.206.49",
    ),
    # NVIDIA/gpu-operator#2781: nvidia-smi looks healthy, and CUDA fails with 802.
    (
        of("compute", failed="No GPU computation: cuInit returned 802", kind="fabric"),
        *("gpu compute", "failed", "802"),
    ),
    (
        of("compute", failed="cuCtxCreate_v2 returned 46", kind="busy"),
        *("gpu compute", "warning", "46"),
    ),
    # NVIDIA/NVSentinel#890
    (
        lambda facts: facts["gpu"]["pcie"]["0000:1d:00.0"].update(width=8),
        *("pcie of GPUs", "warning", "1d:00.0 x8 of x16"),
    ),
    (
        of("gpu", "gpus", 3, pcie_generation=1),
        *("pcie of GPUs", "warning", "0000:1d:00.0 generation 1 of generation 3"),
    ),
    (
        of("fabric", "devices", 0, pcie={"width": 8, "max_width": 16, "speed": 8, "max_speed": 16}),
        *("pcie of cards", "warning", "mlx5_0 x8 of x16; mlx5_0 8 GT/s of 16 GT/s"),
    ),
    # Azure/azurehpc-health-checks#152 and azurehpc#586
    (of_port(pkeys=["0x7fff", "0xffff"]), "p_key", "failed", "has 0x7fff"),
    (
        of_port(counters={"link_downed": 7, "symbol_error": 12}),
        *("link errors", "warning", "mlx5_0 port 1 link_downed 7, symbol_error 12"),
    ),
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
    assert words in found[0].found
    assert found[0].hint and found[0].expected
    assert {one.node for one in trouble(told)} <= {"node2", ""}


DIFFERENT: list[tuple[Callable[[Any], object], str, str]] = [
    (of("health", kernel="5.4.0"), "kernel", "warning"),
    (lambda facts: facts["gpu"]["gpus"].pop(), "gpu count", "failed"),
    (of("gpu", driver="450.80.02"), "driver", "failed"),
    (of_gpu("clocks_mhz", "application", graphics=1530), "application clocks", "failed"),
    (of_gpu(vbios="88.00.1A.00.04"), "gpu bios", "warning"),
    (
        lambda facts: [gpu.update(pcie_generation=2) for gpu in facts["gpu"]["gpus"]],
        *("pcie generation", "warning"),
    ),
    (of("gpu", "topology", "links", "GPU0", GPU1="SYS"), "nvlink topology", "failed"),
    (of_port(rate_gbps=40), "rdma rates", "failed"),
    # Azure/azurehpc-health-checks#152: a full member, but of another partition
    (of_port(pkeys=["0x8001", "0xffff"]), "rdma p_keys", "warning"),
    (of("fabric", "interfaces", "ib0", mtu=2044), "mtu", "failed"),
    (of("fabric", "devices", 0, firmware="12.27"), "rdma firmware", "warning"),
]


@pytest.mark.parametrize(("change", "check", "status"), DIFFERENT)
def test_a_node_unlike_the_others_is_named(
    change: Callable[[Any], object], check: str, status: str
) -> None:
    told = document()
    change(told["nodes"]["node3"])
    found = [one for one in trouble(told) if (one.node, one.check) == ("", check)]
    assert [one.status for one in found] == [status]
    assert found[0].found.startswith("node3: ")
    assert "node1, node2, node4: " in found[0].found


def test_a_missing_gpu_is_told_of_as_a_count_and_not_as_other_clocks_or_modes() -> None:
    told = document()
    told["nodes"]["node2"]["gpu"]["gpus"].pop()
    failed = {(finding.node, finding.check) for finding in trouble(told)}
    assert failed >= {("node2", "gpu count"), ("", "gpu count")}
    assert {check for node, check in failed if not node} == {"gpu count"}


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
    assert set(found) == {"node1", "node4"}
    assert (found["node1"].check, found["node1"].found) == ("reached", "Connection refused")
    assert found["node4"].found == "it was not asked"


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
    (found,) = [
        one for one in diagnose(NODES, STACKS, told) if (one.node, one.check) == ("node2", "python")
    ]
    assert found.status == status
    assert hint in found.hint


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


def of_h100(**changed: Any) -> Any:
    """The findings of one node of the stack h100-cuda12.9, whose links have 400 Gb/s."""
    changes = {"infiniband": changed.pop("infiniband", {})}
    node = replace(
        NODES[0], stack="h100-cuda12.9", stack_overrides=changes, env=changed.pop("env", {})
    )
    fabric = healthy(1)["fabric"]
    (card,) = fabric["devices"]
    ports = changed.pop("ports", [{}])
    fabric["devices"] = [
        card | {"name": f"mlx5_{n}", "ports": [card["ports"][0] | port]}
        for n, port in enumerate(ports)
    ]
    findings = fabric_findings(node, load_catalog().stack_of(node), fabric | changed)
    return {finding.check: finding for finding in findings}


def of_gpus(
    node: Node = NODES[0],
    stack: str = "h100-cuda12.9",
    adopted: tuple[str, ...] = (),
    **changed: Any,
) -> dict[str, Any]:
    """The findings about the GPUs of a node of this stack."""
    node = replace(node, stack=stack, adopted=adopted)
    facts = healthy(1)["gpu"] | changed
    return {each.check: each for each in gpu_findings(node, load_catalog().stack_of(node), facts)}


def test_a_roce_link_is_not_told_of_infinibands_rate() -> None:
    roce = {"link_layer": "Ethernet", "full_rate_gbps": 100}
    assert of_h100()["link rate"].status == "failed"
    assert of_h100(infiniband={"rate_gbps": 100})["link rate"].status == "ok"
    assert of_h100(ports=[roce])["link rate"].status == "ok"
    slow = of_h100(ports=[roce | {"rate_gbps": 40}])["link rate"]
    assert (slow.status, slow.expected) == ("failed", "100 Gb/s")
    assert "roce_rate_gbps: 40" in slow.hint
    unknown = of_h100(ports=[roce | {"full_rate_gbps": None}])["link rate"]
    assert (unknown.status, "cable" in unknown.hint) == ("warning", False)
    assert "link rate" not in of_h100(infiniband={"rate_gbps": None})


def test_ports_that_are_down_and_not_named_are_told_with_how_to_name_them() -> None:
    down = {"state": "DOWN", "physical_state": "Polling", "fault": "cable", "in_use": False}
    told = of_h100(ports=[{}] + [down] * 7)["other links"]
    assert told.status == "warning"
    assert "mlx5_7 port 1 DOWN" in told.found and "NCCL_IB_HCA" in told.hint
    for named in ({"env": {"NCCL_IB_HCA": "mlx5_0"}}, {"infiniband": {"rails": "mlx5_0"}}):
        assert "other links" not in of_h100(ports=[{}] + [down] * 7, **named)


def test_the_way_to_gpu_memory_is_told() -> None:
    assert of_h100(gpu_direct=["DMA-BUF", "nvidia-peermem"])["peer memory"].found == "DMA-BUF"
    bad = of_h100(gpu_direct=[], peer_memory_client=False)["peer memory"]
    assert (bad.status, "DMA-BUF needs a running driver" in bad.hint) == ("failed", True)
    assert "modprobe" in of_h100(gpu_direct=[])["peer memory"].hint
    assert "peer memory" not in of_h100(infiniband={"peer_memory": None})


def test_a_module_that_is_loaded_and_not_registered_is_no_way_to_gpu_memory() -> None:
    """NVIDIA/nccl#1939."""
    bad = of_h100(gpu_direct=[], modules={"nvidia_peermem": "580.105.08"})["peer memory"]
    assert bad.status == "failed"
    assert "is loaded, but ib_core does not know it" in bad.hint


@pytest.mark.parametrize(
    ("driver", "status", "hint"),
    [
        ("580.173.02", "ok", ""),
        ("580.178.04", "ok", ""),  # a security update of the branch
        ("580.105.08", "failed", "provision.yml"),
        ("595.71.05", "failed", "(dlperf_stack_overrides: {driver: {version: '595.71.05'}})"),
    ],
)
def test_nobody_is_asked_to_go_back_to_an_older_driver(driver: str, status: str, hint: str) -> None:
    found = of_gpus(driver=driver, driver_running=driver)["driver"]
    assert (found.status, hint in found.hint) == (status, True)


@pytest.mark.parametrize(
    ("part", "version", "said"),
    [
        ("driver", "580.105.08", "closed from 580.159.03 on"),
        ("driver", "580.159.03", ""),
        ("driver", "535.309.01", "gets no fixes since 2026-06"),
        ("driver", "550.163.01", "gets no fixes since 2025-06"),
        ("toolkit", "1.13.5", "closed from 1.17.8 on"),
        ("toolkit", "1.18.2", ""),
        ("driver", "440.33.01", ""),  # not judged
        ("docker", "28.5.2", "closed from 29.7.1 on"),
        ("docker", "29.8.1", ""),
        ("containerd", "1.7.29", "closed from 1.7.33 on"),
        ("containerd", "2.0.6", "closed from 2.0.10 on"),
        ("containerd", "2.1.4", "closed from 2.1.9 on"),
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
    assert [each.found.split(" has ")[0] for each in found] == [
        "docker 28.2.2",
        "containerd 1.7.27",
    ]
    assert {(each.node, each.status) for each in found} == {("node2", "warning")}


GIDS = {
    "1": ["fe80:0000:0000:0000:0ac0:ebff:fef1:a2c3", "RoCE v2"],
    "2": ["0000:0000:0000:0000:0000:ffff:0a0b:0002", "IB/RoCE v1"],
    "3": ["0000:0000:0000:0000:0000:ffff:0a0b:0002", "RoCE v2"],
}


@pytest.mark.parametrize(
    ("index", "status", "found"),
    [
        ("3", "ok", "0a0b:0002, RoCE v2"),
        ("1", "warning", "fe80:"),
        ("2", "failed", "IB/RoCE v1"),
        ("4", "failed", "none"),
    ],
)
def test_a_pinned_gid_must_exist_and_be_routable(index: str, status: str, found: str) -> None:
    """GID tables of ports differ, and change (NVIDIA/nccl#890)."""
    roce = {"link_layer": "Ethernet", "full_rate_gbps": 100, "gid_table": GIDS}
    gid = of_h100(ports=[roce], env={"NCCL_IB_GID_INDEX": index})["pinned gid"]
    assert (gid.status, found in gid.found) == (status, True)
    assert status == "ok" or "of this port, 3 would do" in gid.hint
    assert "pinned gid" not in of_h100(ports=[roce])


def test_slow_rails_are_told_where_only_the_interfaces_port_is_checked() -> None:
    ports = [{"rate_gbps": 400}, {"rate_gbps": 200, "in_use": False}]
    told = of_h100(ports=ports)
    assert told["link rate"].status == "ok"
    assert told["other link rates"].found == "mlx5_1 port 1 200 Gb/s EDR"
    assert "other link rates" not in of_h100(ports=ports, env={"NCCL_IB_HCA": "mlx5_0"})


@pytest.mark.parametrize(
    ("native", "status"),
    [("12.2", "warning"), ("12.9", "ok"), ("13.0", "ok"), ("11.8", "failed"), (None, "warning")],
)
def test_a_driver_that_the_node_keeps_is_judged_by_its_cuda(
    native: str | None, status: str
) -> None:
    kept = ("driver", "infiniband")
    found = of_gpus(adopted=kept, driver="535.161.07", driver_cuda=native)["driver"]
    assert (found.status, found.expected) == (status, "a driver for CUDA 12.9.1")
    assert found.found.startswith("535.161.07, for CUDA ")


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
    found = {
        each.check: each for each in diagnose([node, *NODES[1:]], stacks, told)
        if each.node == "node1" and each.check.startswith("kept ")
    }  # fmt: skip
    assert (found["kept driver"].status, found["kept openmpi"].status) == statuses
    if statuses == ("ok", "ok"):
        assert found["kept driver"].expected == "version 535.161.07, cuda 12.2"
        assert found["kept driver"].found == "driver: 535.161.07 supports CUDA 12.2"
    if statuses[0] == "warning" and recorded:
        assert found["kept driver"].expected == "version 535.104.12, cuda 12.2"
        assert "provision.yml --limit node1" in found["kept driver"].hint


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
    assert {(finding.check, finding.status) for finding in found} == {
        ("interface", "ok"),
        ("address", "ok"),
    }


def of_amd(adopted: tuple[str, ...] = (), **changed: Any) -> dict[str, Any]:
    """The findings about the GPUs of a node of AMD's, whose facts are those of gpu_info."""
    node = replace(NODES[0], accelerator="AMD Instinct MI300X")
    gpus = healthy(1)["gpu"]["gpus"]
    amd = {"model": "AMD Instinct MI300X", "throttle_reasons": None, "processes": None}
    amd |= {"persistence": None, "mig": None, "remapped_rows": None}
    known = {"is_amd": True, "rocm": "7.2.4", "driver": "6.16.13", "xid": None, "modules": {}}
    facts = known | {"gpus": [gpu | amd for gpu in gpus]} | changed
    return of_gpus(node, "mi300-rocm7", adopted, **facts)


def test_gpus_of_amd_are_judged_by_what_their_driver_tells() -> None:
    assert {each.status for each in of_amd().values()} == {"ok"}
    error = {"kind": "no_amdgpu", "message": "amdgpu: the module is not loaded"}
    bad = of_amd(error=error, gpus=[])["amdgpu"]
    assert (bad.status, "modprobe amdgpu" in bad.hint) == ("failed", True)
    assert of_amd(rocm="7.1.1")["rocm"].status == "failed"
    kernels = of_amd(driver=None)["driver"]
    assert (kernels.status, kernels.found) == ("failed", "the kernel's own amdgpu")
    assert "driver" not in of_amd(adopted=("driver",), driver=None)
    seven = of_amd(gpus=healthy(1)["gpu"]["gpus"][:7])
    assert seven["gpu count"].status == "failed"


def test_zeros_for_a_cluster_are_right_on_a_board_of_its_own() -> None:
    zeros = "00000000-0000-0000-0000-000000000000"
    fabric = {"state": "Completed", "status": "Success", "cluster_uuid": zeros, "health": None}
    h100 = {"model": "NVIDIA H100 80GB HBM3", "fabric": fabric}
    found = of_gpus(gpus=[gpu | h100 for gpu in healthy(1)["gpu"]["gpus"]])
    assert found["nvlink fabric"].status == "ok"


# ---- the verdict, the output, and the files of facts


def test_status_is_the_worst() -> None:
    of_each = [Finding("n", "c", name, "e", "f") for name in ("ok", "warning", "failed")]
    assert [status_of(of_each[:n]) for n in range(4)] == ["ok", "ok", "warning", "failed"]


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
    document_of = doctor("--json", status=1).document
    failed = [item for item in document_of["findings"] if item["status"] == "failed"]
    assert [(item["node"], item["check"]) for item in failed] == [
        ("NODE2", "mig"),
        ("NODE4", "reached"),
    ]
    assert "cannot be combined" in doctor("--nhc", "--json", status=2).err
    told["nodes"]["NODE1"] = []
    assert doctor("--nhc", status=2).out == ""


def test_facts_of_a_playbook(tmp_path: Path) -> None:
    """The filter of preflight.yml: what could not be had is told, what is Ansible's own is not."""
    hostvars = {
        "node1": {
            "bootstrap_found": {
                "stdout": "/usr/bin/python3 3.11.2\r\n/usr/bin/python3.11 3.11.2\r\n"
                "/usr/bin/python2.7 2.7.18\r\nsystem debian12\r\n"
            },
            "preflight_health": {"time": 5.0, "changed": False, "failed": False},
            "preflight_gpu": {
                "failed": True,
                "msg": "MODULE FAILURE",
                "module_stderr": "x\nboom\n",
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


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"nodes": []}', '{"ansible_core": "2.19", "nodes": {"a": 1}}']
)
def test_files_that_are_no_facts(tmp_path: Path, content: str) -> None:
    path = tmp_path / "facts.json"
    path.write_text(content)
    with pytest.raises(UserError, match=r"facts\.json"):
        read_facts(path)
    with pytest.raises(UserError, match=r"none\.json"):
        read_facts(tmp_path / "none.json")


def test_facts_of_another_version_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    told = {"ansible_core": "2.19", "nodes": {"NODE1": {"health": {"time": 1}}}}
    path.write_text(json.dumps(told))
    with pytest.raises(UserError, match="not in the format of this version"):
        examine([str(PROJECT / "inventory/example")], "", path)
