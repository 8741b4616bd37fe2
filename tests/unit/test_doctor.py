"""The doctor's findings of facts that the tests make: a healthy cluster, then one thing wrong."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.cli.main import app
from dlperf_runner.commands.doctor import examine, read_facts
from dlperf_runner.core.errors import UserError
from dlperf_runner.core.node import Node
from dlperf_runner.doctor.fabric import fabric_findings
from dlperf_runner.doctor.findings import Finding
from dlperf_runner.doctor.gpu import SILENCE, gpu_findings
from dlperf_runner.doctor.nodes import diagnose, status_of
from dlperf_runner.report.findings_text import render

PROJECT = Path(__file__).parents[2]
sys.path[:0] = [str(PROJECT / "module_utils"), str(PROJECT / "playbooks/filter_plugins")]
import nvidia_smi  # noqa: E402
import preflight  # noqa: E402

FIXTURES = PROJECT / "tests/fixtures/gpu"
V100 = nvidia_smi.read_xml((FIXTURES / "v100_440.xml").read_text())["gpus"][0]
TOPOLOGY = nvidia_smi.topology((FIXTURES / "v100_topo.txt").read_text())
NODES = tuple(
    Node(
        name=f"node{number}",
        address=f"10.11.0.{number + 1}",
        devices_per_node=8,
        accelerator="Tesla V100-SXM2-16GB",
        stack="v100-cuda10.2",
        interface="ib0",
    )
    for number in range(1, 5)
)
STACKS = {node.name: load_catalog().stack_of(node) for node in NODES}


def gpu(index: int) -> dict[str, Any]:
    bus = f"0000:{0x1A + index:02x}:00.0"
    return copy.deepcopy(V100) | {"index": index, "bus_id": bus, "numa_node": index // 4}


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
        "width": "4X",
        "link_layer": "InfiniBand",
        "lid": number,
        "sm_lid": 1,
        "gids": [],
        "interface": "ib0",
        "fault": None,
        "in_use": True,
    }
    return {
        "pythons": ["3.6.9", "2.7.17"],
        "asked": 1000.0,
        "answered": 1001.0,
        "ssh_mesh": {"failed": None},
        "all_reduce": {"failed": None} if number == 1 else None,
        "health": {
            "time": 1000.5,
            "synchronized": True,
            "time_services": ["chronyd"],
            "python": "3.6.9",
            "executable": "/usr/bin/python3",
            "system": "ubuntu18.04",
            "system_title": "Ubuntu 18.04.6 LTS",
            "kernel": "4.15.0-213-generic",
            "architecture": "x86_64",
            "cpus": 48,
            "memory_mib": 386000,
            "disks": {"/": {"free_mib": 400000, "total_mib": 500000, "read_only": False}},
            "openmpi": "4.0.0",
            "addresses": {"http://mirror/ubuntu": None},
            "stamps": {},
        },
        "gpu": {
            "error": None,
            "gpus": gpus,
            "pci": [each["bus_id"] for each in gpus],
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
            "devices": [{"name": "mlx5_0", "firmware": "12.23.1020", "ports": [port]}],
            "interfaces": {
                "ib0": {"state": "up", "mtu": 65520, "addresses": [f"10.11.0.{number + 1}/24"]}
            },
            "modules": {"nv_peer_mem": "1.0-9", "mlx5_core": "5.0-2.1.8"},
            "missing_rails": [],
            "gpu_direct": ["nv_peer_mem"],
            "dma_buf": ["a running driver"],
            "peer_memory_client": True,
            "ofed": "5.0-2.1.8.0",
            "ibstat": None,
            "firewall": {"closed": {}, "unsure": False, "services": []},
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


def test_a_healthy_cluster_has_no_finding_but_good_ones() -> None:
    findings = diagnose(NODES, STACKS, document())
    assert [found for found in findings if found.status != "ok"] == []
    assert {found.node for found in findings} == {"", "node1", "node2", "node3", "node4"}
    checks = {found.check for found in findings if found.node == "node1"}
    assert checks == {
        *(
            "reached",
            "python",
            "system",
            "disk /",
            "package sources",
            "openmpi",
            "clock",
            "time service",
        ),
        *("driver", "cuda", "cudnn", "nccl", "gpu count", "gpu model", "gpu answers", "ecc"),
        *("throttling", "other processes", "xid errors", "interface", "address", "link state"),
        *("link rate", "ofed", "peer memory", "locked memory", "ssh mesh", "all-reduce"),
        "firewall",
    }
    compared = {found.check for found in findings if not found.node}
    assert {"nvlink topology", "rdma rates", "kernel", "mtu", "application clocks"} <= compared


def of_gpu(change: Callable[[Any], object]) -> Callable[[Any], object]:
    """A change of GPU 3 of the node."""
    return lambda facts: change(facts["gpu"]["gpus"][3])


def of_port(**values: Any) -> Callable[[Any], object]:
    return lambda facts: facts["fabric"]["devices"][0]["ports"][0].update(values)


def of(part: str, **values: Any) -> Callable[[Any], object]:
    return lambda facts: facts[part].update(values)


def process(kind: str) -> dict[str, Any]:
    return {"pid": 41327, "name": "python3", "type": kind, "memory_mib": 70}


CLOSED = {"closed": {"10.11.0.4": ["22", "32768-60999"]}, "unsure": True, "services": ["ufw"]}
# What is wrong on node2, and the check, the status and words of what was found that tell it.
WRONG: list[tuple[Callable[[Any], object], str, str, str]] = [
    (lambda facts: facts["health"].update(time=1061.0), "clock", "failed", "at least 60.0 s"),
    (lambda facts: facts["health"].update(time=939.5), "clock", "failed", "at least 60.5 s"),
    (
        of("fabric", firewall=CLOSED),
        *("firewall", "warning", "TCP 22, 32768-60999 closed to 10.11.0.4"),
    ),
    (of("fabric", firewall=CLOSED | {"closed": {}}), "firewall", "warning", "unknown"),
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
    (of_gpu(lambda gpu: gpu.update(model="Tesla P100-SXM2-16GB")), "gpu model", "failed", "P100"),
    (
        of_gpu(lambda gpu: gpu.update(errors={"temperature/gpu_temp": "ERR!"})),
        *("gpu answers", "failed", "GPU 3: temperature/gpu_temp ERR!"),
    ),
    (
        of_gpu(lambda gpu: gpu["ecc"]["volatile"].update(uncorrected=2)),
        *("ecc", "failed", "GPU 3: 2 uncorrected since boot"),
    ),
    (
        of_gpu(lambda gpu: gpu["ecc"]["aggregate"].update(uncorrected=5)),
        *("ecc", "warning", "GPU 3: 5 uncorrected over its lifetime"),
    ),
    (
        of_gpu(lambda gpu: gpu["retired_pages"].update(pending=True)),
        "ecc",
        "failed",
        "pages pending retirement",
    ),
    (
        of_gpu(lambda gpu: gpu.update(remapped_rows={"failure": True})),
        "ecc",
        "failed",
        "row remapping failed",
    ),
    (of_gpu(lambda gpu: gpu["ecc"].update(enabled=False)), "ecc", "warning", "ECC is off"),
    (of_gpu(lambda gpu: gpu.update(mig=True)), "mig", "failed", "GPU 3: MIG is on"),
    (
        of_gpu(lambda gpu: gpu.update(throttle_reasons=["hw_thermal_slowdown"])),
        *("throttling", "failed", "GPU 3: hw_thermal_slowdown"),
    ),
    (
        of_gpu(lambda gpu: gpu.update(throttle_reasons=["sw_power_cap"])),
        *("throttling", "warning", "GPU 3: sw_power_cap"),
    ),
    (of_gpu(lambda gpu: gpu.update(power_limit_w=250.0)), "power limit", "warning", "250 W of 300"),
    (of_gpu(lambda gpu: gpu.update(persistence=False)), "persistence", "warning", "GPU 3: off"),
    (
        of_gpu(lambda gpu: gpu.update(processes=[process("C")])),
        *("other processes", "failed", "GPU 3: pid 41327 python3 70 MiB"),
    ),
    (of_gpu(lambda gpu: gpu.update(processes=[process("G")])), "other processes", "warning", "pid"),
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
    (
        lambda facts: facts["fabric"]["interfaces"]["ib0"].update(state="down"),
        *("interface", "failed", "down"),
    ),
    (
        lambda facts: facts["fabric"]["interfaces"]["ib0"].update(addresses=["10.99.0.3/24"]),
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
    (
        of("fabric", modules={"mlx5_core": "5.0-0"}),
        *("loaded ofed", "failed", "5.0-0"),
    ),
    (of("fabric", memlock_unlimited=False, memlock_kib=64), "locked memory", "failed", "64 KiB"),
    (of("fabric", memlock_unlimited=None), "locked memory", "warning", "unknown"),
    (of("ssh_mesh", failed="node3: Host key verification failed."), "ssh mesh", "failed", "Host"),
]


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
        {"name": f"mlx5_{n}", "ports": [card["ports"][0] | port]} for n, port in enumerate(ports)
    ]
    findings = fabric_findings(node, load_catalog().stack_of(node), fabric | changed)
    return {finding.check: finding for finding in findings}


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


@pytest.mark.parametrize(
    ("native", "status"),
    [("12.2", "warning"), ("12.9", "ok"), ("13.0", "ok"), ("11.8", "failed"), (None, "warning")],
)
def test_a_driver_that_the_node_keeps_is_judged_by_its_cuda(
    native: str | None, status: str
) -> None:
    node = replace(NODES[0], stack="h100-cuda12.9", adopted=("driver", "infiniband"))
    facts = healthy(1)["gpu"] | {"driver": "535.161.07", "driver_cuda": native}
    found = {
        finding.check: finding
        for finding in gpu_findings(node, load_catalog().stack_of(node), facts)
    }
    assert found["driver"].status == status
    assert found["driver"].expected == "a driver for CUDA 12.9.1"
    assert found["driver"].found.startswith("535.161.07, for CUDA ")


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
        ("firewall", "ok"),
    }


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
    (of_gpu(lambda gpu: gpu["clocks_mhz"]["application"].update(graphics=1530)), *(
        "application clocks", "failed")),
    (of_gpu(lambda gpu: gpu.update(vbios="88.00.1A.00.04")), "gpu bios", "warning"),
    (lambda facts: facts["gpu"]["topology"]["links"]["GPU0"].update(GPU1="SYS"), *(
        "nvlink topology", "failed")),
    (of_port(rate_gbps=40), "rdma rates", "failed"),
    (lambda facts: facts["fabric"]["interfaces"]["ib0"].update(mtu=2044), "mtu", "failed"),
    (lambda facts: facts["fabric"]["devices"][0].update(firmware="12.27"), *(
        "rdma firmware", "warning")),
]  # fmt: skip


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


def test_status_is_the_worst() -> None:
    def of_status(*names: Any) -> str:
        return status_of([Finding("n", "c", name, "e", "f") for name in names])

    assert of_status("ok", "warning", "failed") == "failed"
    assert of_status("ok", "warning") == "warning"
    assert of_status() == "ok"


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

    def doctor(*options: str) -> Any:
        path = tmp_path / "facts.json"
        path.write_text(json.dumps(told))
        example = str(PROJECT / "inventory/example")
        return CliRunner().invoke(app, ["doctor", "-i", example, "--facts", str(path), *options])

    well = doctor("--nhc")
    assert (well.exit_code, well.stdout) == (0, "")
    told["nodes"]["NODE2"]["gpu"]["gpus"][3]["mig"] = True
    told["nodes"]["NODE4"] = {"unreachable": "no\nroute"}
    bad = doctor("--nhc")
    assert bad.exit_code == 1
    assert bad.stdout == (
        "ERROR:  nhc:  Health check failed:  NODE2: mig: expected off, found GPU 3: MIG is on;"
        " NODE4: reached: expected by SSH, found no route\n"
    )
    alone = doctor("--nhc", "--limit", "NODE1")
    assert (alone.exit_code, alone.stdout) == (0, "")
    document_of = json.loads(doctor("--json").stdout)
    failed = [item for item in document_of["findings"] if item["status"] == "failed"]
    assert [(item["node"], item["check"]) for item in failed] == [
        ("NODE2", "mig"),
        ("NODE4", "reached"),
    ]
    both = doctor("--nhc", "--json")
    assert both.exit_code == 2
    assert "cannot be combined" in both.stderr
    told["nodes"]["NODE1"] = []
    unread = doctor("--nhc")
    assert (unread.exit_code, unread.stdout) == (2, "")


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
            "health": {"time": 5.0},
            "gpu": {"failed": "boom"},
            "fabric": {"failed": "Missing sudo password"},
            "dcgm": None,
            "ssh_mesh": {"failed": "node2: no", "called": 1},
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


def leaves(value: Any) -> list[tuple[Any, Any]]:
    """Where each value stands, in dictionaries and lists within each other."""
    keys = value if isinstance(value, dict) else range(len(value))
    found: list[tuple[Any, Any]] = []
    for key in keys:
        is_inner = isinstance(value[key], dict | list) and value[key]
        found += leaves(value[key]) if is_inner else [(value, key)]
    return found


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
