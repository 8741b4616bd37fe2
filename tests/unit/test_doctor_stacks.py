"""What the doctor expects of a driver and of links, by the stack and what the node keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from doctor_facts import NODES, document, healthy

from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.core.node import Node
from dlperf_runner.doctor import nodes
from dlperf_runner.doctor.fabric import fabric_findings
from dlperf_runner.doctor.gpu import gpu_findings
from dlperf_runner.doctor.nodes import diagnose


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
        ("595.71.05", "failed", "it is newer than the stack's: state it"),
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
        ("driver", "440.33.01", ""),  # not judged
        ("docker", "28.5.2", "closed from 29.5.1 on"),
        ("docker", "29.7.1", ""),
        ("containerd", "1.7.29", "closed from 1.7.33 on"),
        ("containerd", "2.0.6", "closed from 2.0.10 on"),
        ("containerd", "2.1.4", "closed from 2.1.9 on"),
        ("containerd", "2.2.6", ""),
        ("containerd", None, ""),
    ],
)
def test_releases_with_published_holes_are_known(part: str, version: str | None, said: str) -> None:
    told = nodes.hole_in(part, version)
    assert said in told and bool(said) == bool(told)
    assert not said or "as of 2026-" in told


def test_the_doctor_tells_of_holes() -> None:
    told = document()
    engine = {"docker": {"version": "28.2.2"}}
    told["nodes"]["node2"]["software"] = {"container_runtime": engine, "containerd": "1.7.27"}
    stacks = {each.name: load_catalog().stack_of(each) for each in NODES}
    found = [each for each in diagnose(NODES, stacks, told) if each.check == "known holes"]
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
