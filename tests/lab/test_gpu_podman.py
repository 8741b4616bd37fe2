"""The default engine of a Debian 12: rootless podman 4.3, real, with what it needs to give
containers the GPUs. Toolkit, card and the driver's library are stand-ins; the card is /dev/full.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu_cluster import Cluster
from gpu_packages import TREE
from gpu_standins import linked_mirror, make_vendors
from lab_under_test import PROJECT, Lab
from node_state import differences

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.gpu_roles]  # minutes

PODMAN = "runuser -u dlperf -- env -C / HOME=/home/dlperf podman"
CDI = "/etc/cdi/nvidia.yaml"
NVRM = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Wed Oct 29 22:15:28 UTC 2025"


def driver(lab: Lab, version: str) -> None:
    """A driver of this version runs on the node, and no other."""
    library = f"{TREE}/libcuda.so.{version}"
    said = NVRM.format(version)
    lab.said(
        "node1",
        f"mkdir -p {TREE}/proc/driver/nvidia; echo {said!r} > {TREE}/proc/driver/nvidia/version;"
        f" rm -f {TREE}/libcuda.*; echo of {version} > {library}",
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, mirror: Path) -> Iterator[Cluster]:
    scratch = tmp_path_factory.mktemp("podman")
    served, lab = linked_mirror(mirror, scratch), Lab(scratch / "lab")
    vendors = make_vendors(served, scratch, ["bookworm"])
    given = vendors.variables | {
        "dlperf_container_engine": "",
        "dlperf_stack": "h100-cuda12.9",
        "dlperf_suite": "bookworm",
        "node_base_packages": ["sudo", "ca-certificates"],
        "node_base_mirror_key": str(PROJECT / ".cache/mirror/cpu-bookworm/apt/dlperf-mirror.asc"),
        "container_runtime_root": TREE,
    }
    with lab.running(1, mirror=served):
        lab.said("node1", "touch /dev/nvidia0 && mount --bind /dev/full /dev/nvidia0")
        yield Cluster(lab, vendors, scratch, given)


@pytest.fixture(scope="module")
def before(cluster: Cluster) -> list[str]:
    return cluster.state("node1")


def provision(cluster: Cluster, *options: str, **changed: object) -> str:
    tags = ("--tags", "node_base,container_runtime")
    return cluster.play("provision.yml", *tags, *options, **changed)


@pytest.fixture
def installed(cluster: Cluster, before: list[str]) -> None:
    """The node is provisioned, whichever test was there before."""
    assert before
    if "580.105.08" not in cluster.lab.ssh("node1", f"cat {CDI}").stdout:
        driver(cluster.lab, "580.105.08")
        provision(cluster)


@pytest.mark.usefixtures("installed")
def test_podman_is_the_default_and_describes_the_gpus(cluster: Cluster) -> None:
    there = cluster.versions("node1", ["podman", "crun", "docker-ce", "nvidia-container-toolkit"])
    assert set(there) == {"podman", "crun", "nvidia-container-toolkit"}
    said = cluster.lab.said("node1", f"stat -c %a {CDI}; cat {CDI}")
    assert said.startswith("644\n# Made by dlperf_runner\ncdiVersion:")
    assert "libcuda.so.580.105.08" in said
    output = provision(cluster, "--diff")
    assert "changed=0 " in output.rpartition("PLAY RECAP")[2], output


@pytest.mark.usefixtures("installed")
def test_a_container_of_the_ordinary_user_has_card_and_library(cluster: Cluster) -> None:
    cluster.play("tests/lab/plays/role.yml", role="container", container_engine="podman")
    files = "bin/sh bin/cat lib/x86_64-linux-gnu/libc.so.6 lib64/ld-linux-x86-64.so.2"
    make = f"tar -C / -ch {files} | {PODMAN} import --quiet - localhost/own:node"
    cluster.lab.said("node1", make)
    shown = cluster.lab.said(
        "node1",
        f"{PODMAN} run --rm --network host --log-driver none --ulimit host"
        " --device nvidia.com/gpu=all localhost/own:node"
        " /bin/sh -c 'cat /usr/lib/libcuda.so.*; echo x 2>/dev/null > /dev/nvidia0 || echo full'",
    )
    assert shown == "of 580.105.08\nfull"
    groups = cluster.lab.said("node1", "id -nG dlperf")
    assert groups == "dlperf"


@pytest.mark.usefixtures("installed")
def test_another_driver_needs_another_description(cluster: Cluster) -> None:
    driver(cluster.lab, "580.178.04")
    provision(cluster)
    described = cluster.lab.said("node1", f"cat {CDI}")
    assert "libcuda.so.580.178.04" in described
    assert "105.08" not in described
    # One that somebody else made is left alone.
    cluster.lab.said("node1", f"sed -i '1d; s/178.04/99.99/' {CDI}")
    provision(cluster)
    assert "99.99" in cluster.lab.said("node1", f"cat {CDI}")
    cluster.lab.said("node1", f"rm {CDI}")
    provision(cluster)


@pytest.mark.usefixtures("installed")
def test_decommissioning_leaves_the_node_as_it_was(cluster: Cluster, before: list[str]) -> None:
    cluster.play("playbooks/decommission.yml")
    assert differences(cluster.lab, "node1", before) == []
