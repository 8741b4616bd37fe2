"""Sites with rules of their own for sudo, names and the way to a node: real sshd and sudo."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_under_test import Lab

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.gpu_roles]

ADMIN = """
set -e
useradd --create-home --shell /bin/sh admin
usermod -p '*' admin
echo 'admin ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/admin
echo 'Defaults:admin requiretty' >> /etc/sudoers.d/admin
cp -r /root/.ssh ~admin/ && chown -R admin: ~admin
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, mirror: Path) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("sites") / "lab").running(nodes=2, mirror=mirror) as made:
        yield made


def doctor(lab: Lab, *options: str) -> subprocess.CompletedProcess[str]:
    return lab.command(sys.executable, "-m", "dlperf_runner", "doctor", "--all", *options)


def test_names_are_left_to_the_site_and_refused_where_it_has_none(lab: Lab) -> None:
    """stackhpc/ansible-slurm-appliance#469. The lab's nodes have no name service."""
    keeps = ("-e", '{"dlperf_adopt": ["hosts"]}')
    done = lab.command("ansible-playbook", "provision.yml", *keeps)
    assert done.returncode != 0
    assert "the node cannot resolve node2, and the inventory has no IP" in " ".join(
        done.stdout.split()
    )
    assert "changed=0" in done.stdout
    assert lab.ssh("node1", "ls /opt/dlperf").returncode != 0
    # NVIDIA/deepops#482. Where the site's file has the names, provisioning leaves it.
    site = lab.said(
        "node1", "printf '10.11.0.2 node1\n10.11.0.3 node2\n' >> /etc/hosts; cat /etc/hosts"
    )
    lab.play("provision.yml", "--tags", "node_base", "--limit", "node1", *keeps)
    assert lab.said("node1", "cat /etc/hosts") == site


def test_sudo_that_wants_a_terminal_is_named_with_the_remedy(lab: Lab) -> None:
    """ansible/ansible#13200: with pipelining, sudo has no terminal."""
    lab.play("provision.yml", "--tags", "node_base")
    for node in ("node1", "node2"):
        lab.said(node, ADMIN)
    admin = ("-e", "ansible_user=admin")
    refused = doctor(lab, *admin)
    assert "requiretty" in refused.stdout, refused.stdout
    assert "ansible_ssh_pipelining: false" in " ".join(refused.stdout.split())
    done = lab.command("ansible-playbook", "provision.yml", *admin)
    assert "Defaults:admin !requiretty" in " ".join(done.stdout.split()), done.stdout
    remedied = doctor(lab, *admin, "-e", "ansible_ssh_pipelining=false")
    assert "sudo" not in remedied.stdout and "package sources" in remedied.stdout, remedied.stdout


def test_nodes_are_reached_through_a_bastion(lab: Lab) -> None:
    """node2 lets only node1 in, as a site's login node is the only way to its nodes."""
    lab.said("node2", "printf 'AllowUsers root@10.11.0.2\n' >> /etc/ssh/sshd_config")
    lab.said("node2", "pkill -HUP -o -x sshd")
    refused = doctor(lab)
    assert "node2" in refused.stdout and "by SSH, found" in refused.stdout
    ways = {"ansible_ssh_common_args": f"-F {lab.directory}/ssh_config -o ProxyJump=node1"}
    through = doctor(lab, "-e", json.dumps(ways))
    assert "node2\n" in through.stdout
    assert "reached: expected by SSH, found yes" in through.stdout.partition("node2\n")[2]
    # Nor does it let the other nodes in as the user of the benchmarks.
    done = lab.command("ansible-playbook", "provision.yml", "--check", "-e", json.dumps(ways))
    assert "sshd refuses it: AllowUsers root@10.11.0.2 (sshd -T)" in " ".join(done.stdout.split())
