"""The slurm.conf and gres.conf of the role slurm, from what slurmd 22.05.8 printed."""

import pytest

from dlperf_runner.core.errors import UserError
from dlperf_runner.provision import slurm, ssh_mesh

conf, gres = slurm.conf, slurm.gres
FOUND = """\
NodeName=node1 CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=24105
UpTime=0-17:19:35
"""
ADDRESSES = {"node1": "10.11.0.2", "node2": "10.11.0.3"}


def test_each_node_has_a_line_with_its_address_and_hardware() -> None:
    hardware = [FOUND, FOUND.replace("node1", "node2")]
    lines = conf(
        hardware, ADDRESSES, {"ClusterName": "c", "ReturnToService": 1}, "main"
    ).splitlines()
    assert lines[-3:] == [
        "NodeName=node1 NodeAddr=10.11.0.2 CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2"
        " ThreadsPerCore=1 RealMemory=24105 State=UNKNOWN",
        "NodeName=node2 NodeAddr=10.11.0.3 CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2"
        " ThreadsPerCore=1 RealMemory=24105 State=UNKNOWN",
        "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
    ]
    assert "ClusterName=c" in lines
    assert [line for line in lines if line.startswith("ReturnToService")] == ["ReturnToService=1"]


def test_names_with_a_domain_are_the_nodes_host_names() -> None:
    addresses = {"node1.example.org": "10.11.0.2", "n2": "10.11.0.3"}
    names = slurm.names(
        addresses, {"node1.example.org": {}, "n2": {"__slurm_there": {"hostname": "node2"}}}
    )
    assert names == {"node1.example.org": "node1", "n2": "node2"}
    lines = conf([FOUND], dict(zip(names.values(), addresses.values(), strict=True)), {}, "main")
    assert "\nNodeName=node1 NodeAddr=10.11.0.2 " in lines


def test_a_node_whose_host_name_is_another_is_refused() -> None:
    with pytest.raises(UserError, match="names 'node1', which is no node: n1"):
        conf([FOUND], {"n1": "10.11.0.2"}, {}, "main")


def test_an_nvlink_domain_is_a_block() -> None:
    """NVIDIA/nccl#2186: only within a domain do GPUs of different nodes talk by NVLink."""
    hosts = {"a.example": {"dlperf_nvlink_domain": "rack1"}, "b": {"dlperf_nvlink_domain": "rack1"}}
    names = {"a.example": "a", "b": "b", "c": "c"}
    blocks = ssh_mesh.nvlink_domains(names, hosts | {"c": {}})
    assert slurm.topology(blocks) == "BlockName=rack1 Nodes=a,b\n"
    without = {name: host | {"slurm_nvlink_domain": ""} for name, host in hosts.items()}
    assert ssh_mesh.nvlink_domains(names, without | {"c": {}}, "slurm_nvlink_domain") == {}
    assert ssh_mesh.nvlink_domains(names, hosts | {"c": {}}, "slurm_nvlink_domain") == blocks
    refusal = slurm.topology_refusal
    assert refusal("rack1", "trixie", "debian13") == refusal("", "bookworm", "debian12") == ""
    assert "use Debian 13" in refusal("rack1", "bookworm", "debian12")
    assert "use Debian 13" in refusal("rack1", "", "rhel9")
    assert "must be letters" in refusal("rack 1", "trixie", "debian13")


GPUS = ["/dev/nvidia10", "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia2"]
PLUGIN = "/usr/lib/x86_64-linux-gnu/slurm-wlm/gpu_nvml.so"


def test_gpus_are_counted_and_found_by_nvml_where_slurm_has_its_plugin() -> None:
    hardware = [FOUND, FOUND.replace("node1", "node2")]
    lines = conf(hardware, ADDRESSES, {}, "main", {"node1": GPUS, "node2": [PLUGIN]}).splitlines()
    assert "GresTypes=gpu" in lines
    assert lines[-3].endswith(" RealMemory=24105 Gres=gpu:3 State=UNKNOWN")
    assert "Gres=" not in lines[-2]
    assert "GresTypes=gpu" not in conf(hardware, ADDRESSES, {}, "main", {"node1": []}).splitlines()
    assert gres(GPUS) == (
        "Name=gpu File=/dev/nvidia0\nName=gpu File=/dev/nvidia2\nName=gpu File=/dev/nvidia10\n"
    )
    assert gres([*GPUS, PLUGIN]) == "AutoDetect=nvml\n"
    assert gres([PLUGIN]) == gres([]) == ""
