"""A node keeps its own driver and its own OpenMPI (dlperf_adopt), in one play.

OpenMPI is Debian's, installed before anybody provisions the node, and mpirun runs. The driver is a
stand-in: a version in /proc/driver, an nvidia-smi, and a libcuda that computes.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from cuda_standin import GCC, libcuda
from gpu_cluster import Cluster
from gpu_standins import make_vendors
from lab_under_test import PROJECT, Lab
from node_state import differences

pytestmark = [
    pytest.mark.lab,
    pytest.mark.heavy,
    pytest.mark.gpu_roles,
    pytest.mark.skipif(not GCC, reason="there is no gcc to compile the stand-in of libcuda"),
]

DRIVER = "535.161.07"
NVRM = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {DRIVER}  Sat Feb 17 22:55:48 UTC 2024"
SMI = f"""#!/bin/sh
case "$*" in
*--query-gpu*) echo {DRIVER} ;;
*) echo '| NVIDIA-SMI {DRIVER}    Driver Version: {DRIVER}    CUDA Version: 12.2     |' ;;
esac
"""
# What somebody else has done to the node.
PREPARED = f"""
set -e
mkdir -p /srv/driver/nvidia && echo '{NVRM}' > /srv/driver/nvidia/version
mount --bind /srv/driver /proc/driver
printf '%s' '{base64.b64encode(SMI.encode()).decode()}' | base64 -d > /usr/bin/nvidia-smi
chmod 755 /usr/bin/nvidia-smi
echo 'deb [trusted=yes] http://10.11.0.1:8010/apt bookworm main' > /etc/apt/sources.list.d/site.list
apt-get -q update && apt-get -q -y install --no-install-recommends openmpi-bin >&2
"""
SITES_OWN = "openmpi-bin libopenmpi3"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, mirror: Path) -> Iterator[Cluster]:
    scratch = tmp_path_factory.mktemp("adopted")
    served, lab = scratch / "mirror", Lab(scratch / "lab")
    served.mkdir()
    for name in ("apt", "wheels"):
        (served / name).symlink_to(mirror / name)
    vendors = make_vendors(served, scratch, ["bookworm"])
    given = vendors.variables | {
        "dlperf_stack": "h100-cuda12.9",
        "dlperf_adopt": ["driver", "openmpi"],
        "dlperf_mpirun": "/usr/bin/mpirun",
        "node_base_packages": ["sudo", "rsync", "ca-certificates"],
        "node_base_mirror_key": str(PROJECT / ".cache/mirror/cpu-bookworm/apt/dlperf-mirror.asc"),
    }
    lab.up(lab_nodes=1, lab_mirror_dir=served)
    try:
        lab.said("node1", PREPARED)
        library = base64.b64encode(libcuda(scratch, "/srv/cuda-fails").read_bytes()).decode()
        target = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
        lab.said("node1", f"base64 -d > {target} <<'END'\n{library}\nEND")
        yield Cluster(lab, vendors, scratch, given)
    finally:
        lab.down()


@pytest.fixture(scope="module")
def before(cluster: Cluster) -> list[str]:
    return cluster.state("node1")


def provision(cluster: Cluster, *options: str, **changed: object) -> tuple[int, str]:
    tags = ("--tags", "node_base,nvidia_driver,openmpi")
    return cluster.play("provision.yml", *tags, *options, **changed)


def own(state: list[str]) -> list[str]:
    """What the node's state says of driver and OpenMPI, besides this project's records."""
    words = ("openmpi", "nvidia", "cuda")
    return [line for line in state if any(word in line for word in words) and "dlperf" not in line]


def test_what_is_not_there_cannot_be_adopted(cluster: Cluster, before: list[str]) -> None:
    status, output = provision(cluster, dlperf_mpirun="/opt/none/bin/mpirun")
    assert status == 2, output
    assert "dlperf_adopt has openmpi, but /opt/none/bin/mpirun is no mpirun of OpenMPI" in output
    assert cluster.state("node1") == before


def test_driver_and_openmpi_are_told_and_proven_and_stay(
    cluster: Cluster, before: list[str]
) -> None:
    status, output = provision(cluster)
    assert status == 0, output
    assert f"driver: {DRIVER} (the stack has 580.105.08) supports CUDA 12.2" in output
    assert "by minor version compatibility" in output
    version = cluster.versions("node1", ["openmpi-bin"])["openmpi-bin"].partition("-")[0]
    assert f"openmpi: {version} (the stack has 5.0.8)" in output
    assert own(cluster.state("node1")) == own(before)
    # Both were proven: a sum by the node's mpirun, and a computation by the node's libcuda.
    assert "openmpi" in cluster.lab.said("node1", "cat /opt/dlperf/stamps/openmpi.json")
    assert "TASK [nvidia_driver : Compute on every GPU]" in output
    status, output = provision(cluster)
    assert status == 0, output
    assert "changed=0 " in output.rpartition("PLAY RECAP")[2], output


def test_a_driver_that_does_not_compute_is_refused_though_it_is_the_nodes_own(
    cluster: Cluster,
) -> None:
    cluster.lab.said("node1", "echo cuInit 803 > /srv/cuda-fails")
    status, output = provision(cluster, "--tags", "nvidia_driver")
    cluster.lab.said("node1", "rm /srv/cuda-fails")
    assert status == 2, output
    assert "803" in output


def test_decommissioning_leaves_them(cluster: Cluster, before: list[str]) -> None:
    status, output = cluster.play("playbooks/decommission.yml")
    assert status == 0, output
    assert differences(cluster.lab, "node1", before) == []
    cluster.lab.said("node1", "mpirun --allow-run-as-root --oversubscribe -np 2 true")
