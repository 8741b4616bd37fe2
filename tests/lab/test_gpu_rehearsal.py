"""`dlperf provision` on a node that others use: one list of what would change, and nothing else
changes.

The node has its own source of packages, Docker's settings, an entry in /etc/hosts and, in the
second test, an NCCL of somebody else. The vendors' packages are stand-ins; apt, dpkg and sshd are
real.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gpu_standins import linked_mirror, make_vendors
from lab_under_test import Lab
from node_state import node_state
from rehearsed import entries, rehearsed_and_done

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.gpu_roles]

OTHER = "10.11.0.1:8010/vendor/developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64"
SITE = """
echo 'deb [trusted=yes] http://10.11.0.1:8010/apt bookworm main' > /etc/apt/sources.list
apt-get -q update
mkdir -p /etc/modprobe.d /etc/docker && echo '{"log-driver": "local"}' > /etc/docker/daemon.json
echo '10.9.9.9 storage' >> /etc/hosts
"""
# On node2, as somebody else has installed it
OWN_NCCL = f"""
echo 'deb [trusted=yes] http://{OTHER} /' > /etc/apt/sources.list.d/own.list
apt-get -q update && apt-get -q -y install libnccl2=2.30.0-1+cuda13.0 || exit 1
rm /etc/apt/sources.list.d/own.list
"""
TAGS = ("--tags", "node_base,nvidia_driver,nccl,container_runtime", "--limit")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, mirror: Path) -> Iterator[Lab]:
    scratch = tmp_path_factory.mktemp("rehearsal")
    served, made = linked_mirror(mirror, scratch), Lab(scratch / "lab")
    vendors = make_vendors(served, scratch, ["bookworm"])
    given = vendors.variables | {
        "dlperf_stack": "h100-cuda12.9",
        "dlperf_mirror": "",
        "dlperf_vendor_mirror": "http://10.11.0.1:8010/vendor",
    }
    (scratch / "site.json").write_text(json.dumps(given))
    with made.running(2, mirror=served):
        for node in ("node1", "node2"):
            made.said(node, SITE)
        made.said("node2", OWN_NCCL)
        yield made


def given(lab: Lab, node: str = "node1", **changed: object) -> list[str]:
    return ["-e", f"@{lab.directory.parent}/site.json", "-e", json.dumps(changed), *TAGS, node]


@contextmanager
def gpu_container(lab: Lab) -> Iterator[str]:
    """A process on node2 of a container that has a GPU, as any engine starts it."""
    lab.said("node2", "mkdir -p /srv/c/dev && touch /srv/c/dev/nvidia0")
    program = "import os, time; os.chroot('/srv/c'); time.sleep(900)"
    pid = lab.said("node2", f'python3 -c "{program}" > /dev/null 2>&1 < /dev/null & echo $!')
    yield pid
    lab.said("node2", f"kill {pid}")


def test_what_is_not_in_the_list_does_not_happen(lab: Lab) -> None:
    output = rehearsed_and_done(lab, "node1", given(lab))
    assert {"libnccl2", "libcuda1", "docker-ce"} <= entries(output, "packages")


def test_what_others_use_moves_with_consent_only(lab: Lab) -> None:
    """Before, NCCL 2.30.7 of the site became 2.29.7 and was held, without a question."""
    before = node_state(lab, "node2")
    book = ("ansible-playbook", "provision.yml", *given(lab, "node2"), "--tags", "nccl")
    done = lab.command(*book)
    text = re.sub(r"\s+", " ", done.stdout)
    assert done.returncode == 2, text
    assert "libnccl2 2.30.0-1+cuda13.0 by 2.29.7-1+cuda12.9" in text
    assert "dlperf_adopt: [nccl]" in text
    assert "dlperf_replace: [nccl]" in text
    with gpu_container(lab) as pid:
        done = lab.command(*book, "-e", '{"dlperf_replace": ["nccl"]}')
        text = re.sub(r"\s+", " ", done.stdout)
        assert done.returncode == 2, text
        assert f"containers on the node have GPUs: python3 ({pid})" in text
        assert node_state(lab, "node2") == before
    done = lab.command(*book, "-e", '{"dlperf_adopt": ["nccl"]}')
    assert done.returncode == 0, done.stdout
    assert "2.30.0-1+cuda13.0" in lab.said("node2", "dpkg-query -W libnccl2")


def test_packages_outside_of_families_wait_for_containers_with_gpus(lab: Lab) -> None:
    """NVIDIA/nvidia-container-toolkit#1227: packages of RDMA and Slurm reload systemd, too."""
    before = node_state(lab, "node2")
    variables = given(lab, "node2", dlperf_slurm=True, dlperf_replace=["nccl"])
    limited = [*variables[: -len(TAGS) - 1], "--limit", "node2", "--tags"]
    alone = [*limited[:4], "-e", "role=infiniband", "-e", "infiniband_method=inbox"]
    with gpu_container(lab) as pid:
        done = lab.command("ansible-playbook", "provision.yml", *limited, "infiniband,slurm")
        role = ("tests/lab/plays/role.yml", *alone, "--limit", "node2")
        refused = lab.command("ansible-playbook", *role)
        assert node_state(lab, "node2") == before
    text = re.sub(r"\s+", " ", done.stdout)
    names = re.findall(rf"have GPUs: python3 \({pid}\)\. To install (.+?) makes", text)
    assert {"rdma-core", "munge", "slurmd"} <= set(names[0].split(", ")), text
    assert "and can lose them when packages are installed" in re.sub(r"\s+", " ", refused.stdout)


def test_docker_is_not_restarted_under_containers(lab: Lab) -> None:
    lab.play("provision.yml", *given(lab, "node2", dlperf_replace=["nccl"]))
    before = node_state(lab, "node2")
    lab.said("node2", "echo storage-gateway > /srv/containers")  # what `docker ps` lists
    settings = {"container_runtime_daemon": {"log-driver": "journald"}, "dlperf_replace": ["nccl"]}
    done = lab.command("ansible-playbook", "provision.yml", *given(lab, "node2", **settings))
    same = lab.play("provision.yml", *given(lab, "node2", dlperf_replace=["nccl"]))
    lab.said("node2", "rm /srv/containers")
    text = re.sub(r"\s+", " ", done.stdout)
    assert done.returncode == 2, text
    assert "Docker runs containers (storage-gateway), and a restart would end them" in text
    assert "changed=0 " in same.rpartition("PLAY RECAP")[2]  # which needs no restart
    assert node_state(lab, "node2") == before
