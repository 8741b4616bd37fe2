"""The published cluster in one play: four bare nodes that say they are Ubuntu 18.04, and the
group variables of inventory/example as they are.

Stand-ins: the vendors' packages and files, the source of OpenMPI, cards, GPUs and the system
(gpu_standins.py, fabric_standins.py). Left out: the frameworks' environments, whose wheels need a
GPU to be proven, and the stack's Python, which test_python_source.py builds. Real are the
inventory, the order of all roles in one play, what they install, addresses of a second network,
the mesh, the build and mpirun across the nodes over that network, `doctor` and undo.

The tests build on each other, in the order in which they stand.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fabric_standins import NETPLAN, NVIDIA_SMI, OFED, OPENMPI, ofed, openmpi, recorded_card
from gpu_cluster import Cluster, claim
from gpu_standins import make_vendors
from lab_under_test import PROJECT, Lab
from node_state import differences
from standins import fixture, index_of, several

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.gpu_roles]  # minutes

NODES = ("node1", "node2", "node3", "node4")
GPUS = range(8)
TUNED = "/srv/tuning"
SMI = NVIDIA_SMI.replace("for gpu in 0 1;", f"for gpu in {' '.join(map(str, GPUS))};").replace(
    "  *) exit 16",
    '  "-q -x") cat /srv/smi/xml ;;\n  "topo -m") cat /srv/smi/topology ;;\n'
    '  "--query-gpu=index,uuid "*) cat /srv/smi/index ;;\n  *) exit 16',
)
# What the lab's mirror has of the stack's packages, and the mpirun that the stand-in hands on to.
PACKAGES = {
    "node_base_packages": [
        *("python3-apt", "sudo", "rsync", "ca-certificates", "openssh-client", "openssh-server"),
        *("libnuma1", "openmpi-bin", "python3-venv"),
    ],
    "python_env_packages": ["python3-venv"],
}
# A second network beside eth0, on the same wire, in place of InfiniBand's.
IB0 = "ip link add link eth0 name ib0 type macvlan mode bridge"


class PublishedCluster(Cluster):
    @property
    def inventories(self) -> list[str]:
        return ["-i", "inventory/lab", "-i", str(self.inventory.parent)]

    def run(self, book: str, *options: str) -> str:
        given = ("-e", json.dumps(PACKAGES))
        done = self.lab.command("ansible-playbook", book, *self.inventories, *given, *options)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def doctor(self) -> tuple[int, set[tuple[str, str]], dict[tuple[str, str], dict[str, str]]]:
        """Its exit status, and what it found amiss."""
        argv = [sys.executable, "-m", "dlperf_runner", "doctor", "--json", *self.inventories]
        done = self.lab.command(*argv)
        told = json.loads(done.stdout)
        findings = {(found["node"], found["check"]): found for found in told["findings"]}
        failed = {key for key, found in findings.items() if found["status"] == "failed"}
        return done.returncode, failed, findings


def gpus(count: int) -> dict[str, str]:
    """What nvidia-smi says of so many V100."""
    return {
        "/srv/smi/xml": several(fixture("gpu/v100_440.xml"), count),
        "/srv/smi/index": index_of(count),
        "/srv/smi/topology": fixture("gpu/v100_topo.txt"),
    }


def place(lab: Lab, node: str, files: dict[str, str]) -> None:
    lines = ["set -e"]
    for path, content in files.items():
        lines += [f"mkdir -p {Path(path).parent}", f"cat > {path} <<'END'\n{content}\nEND"]
    lab.said(node, "\n".join(lines))


def prepare(lab: Lab, node: str) -> None:
    governors = f"{TUNED}/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
    tuning = {governors: "powersave", f"{TUNED}/proc/sys/kernel/numa_balancing": "1"}
    settings = {f"/srv/smi/pm.{n}": "Disabled" for n in GPUS}
    programs = {"/usr/sbin/netplan": NETPLAN, "/usr/bin/nvidia-smi": SMI}
    claim(lab, node, "bionic")
    lab.said(node, f"mkdir -p /etc/netplan /etc/modules-load.d /etc/modprobe.d /etc/docker; {IB0}")
    place(lab, node, {**programs, **recorded_card(), **tuning, **settings, **gpus(len(GPUS))})
    lab.said(node, f"chmod 755 {' '.join(programs)}")


def variables(mirror: Path, scratch: Path, vendors: dict[str, Any]) -> dict[str, Any]:
    """What a site adds to the example's variables: its mirror, and checksums of its files."""
    return {
        **vendors,
        "openmpi_sha256": openmpi(mirror / OPENMPI),
        "infiniband_archive_sha256": ofed(mirror / OFED, scratch / "debs"),
        # Of the lab and its stand-ins.
        "openmpi_cache": str(scratch / "cache"),
        "openmpi_build_packages": ["gcc", "libc6-dev", "make"],
        "python_env_interpreter": "/usr/bin/python3",
        "node_base_mirror_suite": "bookworm",
        "node_base_mirror_key": str(PROJECT / ".cache/mirror/cpu-bookworm/apt/dlperf-mirror.asc"),
        "infiniband_root": "/srv/fabric",
        "node_tuning_root": TUNED,
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, mirror: Path) -> Iterator[PublishedCluster]:
    scratch = tmp_path_factory.mktemp("published")
    served, lab = scratch / "mirror", Lab(scratch / "lab")
    served.mkdir()
    for name in ("apt", "wheels"):
        (served / name).symlink_to(mirror / name)
    vendors = make_vendors(served, scratch, ["bionic"])
    site = variables(served, scratch, vendors.variables | vendors.archive_of("bionic"))
    lab.up(lab_nodes=len(NODES), lab_mirror_dir=served)
    try:
        made = PublishedCluster(lab, vendors, scratch, {})
        made.inventory = scratch / "inventory/hosts.json"
        group = made.inventory.parent / "group_vars/nodes"
        group.mkdir(parents=True)
        shutil.copy(PROJECT / "inventory/example/group_vars/nodes.yml", group / "example.yml")
        (group / "site.yml").write_text(json.dumps(site))
        hosts = {
            node: {"dlperf_interface_address": f"10.12.0.{number}/24"}
            for number, node in enumerate(NODES, 1)
        }
        made.inventory.write_text(json.dumps({"nodes": {"hosts": hosts}}))
        for node in NODES:
            prepare(lab, node)
        yield made
    finally:
        lab.down()


@pytest.fixture(scope="module")
def before(cluster: PublishedCluster) -> dict[str, list[str]]:
    return {node: cluster.state(node) for node in NODES}


def test_one_play_makes_a_cluster_of_bare_nodes(
    cluster: PublishedCluster, before: dict[str, list[str]]
) -> None:
    assert before
    output = cluster.run("provision.yml")
    assert output.rpartition("PLAY RECAP")[2].count("failed=0") == len(NODES)
    versions = {
        "cuda-drivers": "440.33.01-1",
        "cuda-toolkit-10-2": "10.2.89-1",
        "libcudnn7": "7.6.5.32-1+cuda10.2",
        "libnccl2": "2.7.3-1+cuda10.2",
        "docker-ce": "5:20.10.7~3-0~ubuntu-bionic",
    }
    for number, node in enumerate(NODES, 1):
        assert cluster.versions(node, versions) == versions
        assert "MLNX_OFED_LINUX-5.0-2.1.8.0" in cluster.lab.said(node, "ofed_info -s")
        assert f"10.12.0.{number}/24" in cluster.lab.said(node, "ip -o -4 addr show dev ib0")
        proven = json.loads(cluster.lab.said(node, "cat /opt/dlperf/stamps/openmpi.json"))
        assert proven["inputs"]["interface"] == "ib0"
        assert cluster.lab.said(node, "/opt/dlperf/uv/bin/uv --version").startswith("uv ")


def test_the_second_play_changes_nothing(cluster: PublishedCluster) -> None:
    output = cluster.run("provision.yml", "--diff")
    assert output.rpartition("PLAY RECAP")[2].count("changed=0 ") == len(NODES)


def test_another_gpu_count_is_told_of_and_nothing_else(cluster: PublishedCluster) -> None:
    """Of a driver that is not there, doctor tells in both cases."""
    _, always, _ = cluster.doctor()
    assert not {check for _, check in always} & {"gpu count", "gpu model", "ssh mesh", "all-reduce"}
    place(cluster.lab, "node3", gpus(7))
    status, failed, findings = cluster.doctor()
    place(cluster.lab, "node3", gpus(8))
    assert status == 1
    assert failed - always == {("node3", "gpu count"), ("", "gpu count")}
    found = findings["node3", "gpu count"]
    assert (found["expected"], found["found"]) == ("8 (dlperf_devices_per_node)", "7")
    assert "lspci" in found["hint"]
    assert "node3" in findings["", "gpu count"]["found"]


def test_decommissioning_leaves_the_nodes_as_they_were(
    cluster: PublishedCluster, before: dict[str, list[str]]
) -> None:
    cluster.run("playbooks/decommission.yml")
    for node in NODES:
        assert differences(cluster.lab, node, before[node]) == []
