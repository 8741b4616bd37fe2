"""The doctor's findings of a healthy cluster with one thing wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from doctor_facts import NODES, STACKS, document, of, of_gpu, of_port, trouble
from hypothesis import given, settings
from hypothesis import strategies as st

from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.core.node import Node
from dlperf_runner.doctor.gpu import SILENCE
from dlperf_runner.doctor.nodes import diagnose
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
