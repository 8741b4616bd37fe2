"""A node keeps its own driver, container engine and OpenMPI (dlperf_adopt), in one play; another
node's engine is replaced with consent (dlperf_replace), but not while a process uses a GPU.

OpenMPI is Debian's, installed before anybody provisions the node, and mpirun runs. The driver is a
stand-in: a version in /proc/driver, an nvidia-smi, and a libcuda that computes. So are Docker, a
package that dpkg installed, NVIDIA's toolkit, and the GPU's device, a file that a process opens.
"""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cuda_standin import GCC, libcuda
from gpu_cluster import Cluster
from gpu_standins import linked_mirror, make_vendors
from lab_under_test import PROJECT, Lab
from node_state import differences
from rehearsed import entries, rehearsed_and_done
from standin_repository import Standin

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
# Debian's Docker, as its administrator has installed it. It runs no container (`docker ps`).
OWN_DOCKER = Standin(
    "docker.io",
    "24.0.7-1",
    files={
        "/usr/bin/docker": "#!/bin/sh\n[ $1 = ps ] || echo Docker version 24.0.7, build 311b9ff\n"
    },
    executables=frozenset({"/usr/bin/docker"}),
)
DOCKER = """
set -e
cd /srv && /usr/lib/apt/apt-helper download-file http://10.11.0.1:8010/docker.deb docker.deb
dpkg --install docker.deb
"""
GOVERNOR = "/srv/tuned/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
# What somebody else has done to the node.
PREPARED = f"""
{DOCKER}
printf '#!/bin/sh\\necho NVIDIA Container Toolkit CLI version 1.14.6\\n' > /usr/bin/nvidia-ctk
chmod 755 /usr/bin/nvidia-ctk
mkdir -p /srv/driver/nvidia && echo '{NVRM}' > /srv/driver/nvidia/version
mount --bind /srv/driver /proc/driver
echo '10.11.0.3 node2' >> /etc/hosts
mkdir -p {GOVERNOR.rpartition("/")[0]} && echo powersave > {GOVERNOR}
printf '%s' '{base64.b64encode(SMI.encode()).decode()}' | base64 -d > /usr/bin/nvidia-smi
chmod 755 /usr/bin/nvidia-smi
echo 'deb [trusted=yes] http://10.11.0.1:8010/apt bookworm main' > /etc/apt/sources.list.d/site.list
apt-get -q update && apt-get -q -y install --no-install-recommends openmpi-bin >&2
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, mirror: Path) -> Iterator[Cluster]:
    scratch = tmp_path_factory.mktemp("adopted")
    served, lab = linked_mirror(mirror, scratch), Lab(scratch / "lab")
    vendors = make_vendors(served, scratch, ["bookworm"])
    given = vendors.variables | {
        "dlperf_stack": "h100-cuda12.9",
        "dlperf_adopt": ["driver", "container_runtime", "openmpi"],
        "dlperf_mpirun": "/usr/bin/mpirun",
        "node_base_packages": ["sudo", "ca-certificates"],
        "node_base_mirror_key": str(PROJECT / ".cache/mirror/cpu-bookworm/apt/dlperf-mirror.asc"),
    }
    OWN_DOCKER.build(scratch).rename(served / "docker.deb")
    with lab.running(2, mirror=served):
        lab.said("node1", PREPARED)
        lab.said("node2", DOCKER)
        library = base64.b64encode(libcuda(scratch, "/srv/cuda-fails").read_bytes()).decode()
        target = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
        lab.said("node1", f"base64 -d > {target} <<'END'\n{library}\nEND")
        yield Cluster(lab, vendors, scratch, given)


@pytest.fixture(scope="module")
def before(cluster: Cluster) -> list[str]:
    return cluster.state("node1")


def provision(cluster: Cluster, *options: str, **changed: object) -> str:
    chosen = ("--limit", "node1", "--tags", "node_base,nvidia_driver,container_runtime,openmpi")
    return cluster.play("provision.yml", *chosen, *options, **changed)


@pytest.fixture
def kept(cluster: Cluster, before: list[str]) -> None:
    """node1 is provisioned and keeps its own, whichever test was there before."""
    assert before
    if cluster.lab.ssh("node1", "ls /var/lib/dlperf/adopted.json").returncode != 0:
        provision(cluster)


def own(state: list[str]) -> list[str]:
    """What the node's state says of what it keeps, besides this project's records."""
    words = ("openmpi", "nvidia", "cuda", "docker")
    return [line for line in state if any(word in line for word in words) and "dlperf" not in line]


def test_a_node_that_keeps_all_is_what_it_was_for_others(
    cluster: Cluster, before: list[str]
) -> None:
    """NVIDIA/deepops#482: names in /etc/hosts change for all programs."""
    if differences(cluster.lab, "node1", before):
        cluster.play("playbooks/decommission.yml", "--limit", "node1")
    seen = f"cat /etc/hosts {GOVERNOR}; ls /etc/ssh"
    was = cluster.lab.said("node1", seen)
    given = {"dlperf_adopt": "all", "node_tuning_root": "/srv/tuned"}
    options = ["-e", f"@{cluster.variables}", "-e", json.dumps(given), "--limit", "node1"]
    output = rehearsed_and_done(cluster.lab, "node1", options)
    assert cluster.lab.said("node1", seen) == was
    assert "powersave" in was and "node2" in was and "ssh_known_hosts" not in was
    assert not entries(output, "settings") | entries(output, "holds")
    assert "node1" in cluster.lab.said("node1", "cat ~dlperf/.ssh/known_hosts")
    cluster.play("playbooks/decommission.yml", "--limit", "node1")


def test_driver_engine_and_openmpi_are_told_and_proven_and_stay(
    cluster: Cluster, before: list[str]
) -> None:
    output = provision(cluster)
    assert f"driver: {DRIVER} (the stack has 580.173.02) supports CUDA 12.2" in output
    assert "by minor version compatibility" in output
    version = cluster.versions("node1", ["openmpi-bin"])["openmpi-bin"].partition("-")[0]
    assert f"openmpi: {version} (the stack has 5.0.8)" in output
    assert re.search("container_runtime: docker 24.0.7, NVIDIA'+s container toolkit 1.14.6", output)
    assert own(cluster.state("node1")) == own(before)
    assert "docker-ce" not in cluster.versions("node1", ["docker-ce", "docker.io"])
    assert recorded(cluster) == {
        "container_runtime": {"docker": "24.0.7", "toolkit": "1.14.6"},
        "driver": {"cuda": "12.2", "version": DRIVER},
        "openmpi": {"version": version},
    }
    # Both were proven: a sum by the node's mpirun, and a computation by the node's libcuda.
    assert "openmpi" in cluster.lab.said("node1", "cat /opt/dlperf/stamps/openmpi.json")
    assert "TASK [nvidia_driver : Compute on every GPU]" in output
    output = provision(cluster)
    assert "changed=0 " in output.rpartition("PLAY RECAP")[2], output


def recorded(cluster: Cluster) -> object:
    return json.loads(cluster.lab.said("node1", "cat /var/lib/dlperf/adopted.json"))


@pytest.mark.usefixtures("kept")
def test_preflight_says_what_the_node_keeps_and_what_that_means(cluster: Cluster) -> None:
    facts = cluster.scratch / "facts.json"
    given = {"preflight_file": str(facts)}
    output = cluster.play("playbooks/preflight.yml", "--limit", "node1", **given)
    assert "PTX is not compiled for the GPU" in output
    told = json.loads(facts.read_text())["nodes"]["node1"]["adopted"]
    assert told["recorded"] == told["kept"] == recorded(cluster)
    assert told["meanings"].keys() == told["kept"].keys()


def engine(cluster: Cluster, *options: str, **changed: object) -> str:
    """Provision node2, which keeps nothing, with the stack's engine."""
    given: dict[str, object] = {"dlperf_adopt": [], **changed}
    chosen = ("--limit", "node2", "--tags", "container_runtime")
    return cluster.play("provision.yml", *chosen, *options, **given)


def test_an_engine_of_somebody_else_is_replaced_with_consent_only(cluster: Cluster) -> None:
    state = cluster.state("node2")
    output = engine(cluster, status=2)
    assert "the container engine 24.0.7 was not installed by provisioning" in output
    assert "dlperf_adopt: [container_runtime]" in output
    assert "dlperf_replace: [container_runtime]" in output
    assert cluster.state("node2") == state
    engine(cluster, dlperf_replace=["container_runtime"])
    has = cluster.versions("node2", ["docker-ce", "docker.io", "nvidia-container-toolkit"])
    assert has == {
        "docker-ce": "5:29.8.1-1~debian.12~bookworm",
        "nvidia-container-toolkit": "1.18.2-1",
    }
    output = engine(cluster)
    assert "changed=0 " in output.rpartition("PLAY RECAP")[2], output


def test_a_driver_that_does_not_compute_is_refused_though_it_is_the_nodes_own(
    cluster: Cluster,
) -> None:
    cluster.lab.said("node1", "echo cuInit 803 > /srv/cuda-fails")
    output = provision(cluster, "--tags", "nvidia_driver", status=None)
    cluster.lab.said("node1", "rm /srv/cuda-fails")
    assert "failed=1 " in output and "803" in output, output


@pytest.mark.usefixtures("kept")
def test_decommissioning_leaves_them(cluster: Cluster, before: list[str]) -> None:
    cluster.play("playbooks/decommission.yml", "--limit", "node1")
    assert differences(cluster.lab, "node1", before) == []
    cluster.lab.said("node1", "mpirun --allow-run-as-root --oversubscribe -np 2 true")
