"""Three nodes with one /home, as NFS gives them: one key, one authorized_keys, one user number."""

import json
import re
from collections.abc import Iterator

import pytest
from lab_under_test import Lab

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.nodes]  # minutes

NODES = ("node1", "node2", "node3")
UID = 2345
# The nodes have no package source, so nothing is installed.
GIVEN = {
    "node_base_packages": [],
    "ssh_mesh_packages": [],
    "node_base_uid": UID,
    "dlperf_mirror": "",
}
ROLE = "tests/lab/plays/role.yml"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("shared-home")
    (folder / "share/home").mkdir(parents=True)
    with Lab(folder / "lab").running(len(NODES), shared_dir=folder / "share") as lab:
        for number, node in enumerate(NODES):
            # Other accounts, so that the nodes would choose different numbers.
            lab.said(node, f"mount --bind /shared/home /home; useradd -u {1000 + 10 * number} -M x")
        yield lab


def played(lab: Lab, role: str, *options: str, status: int = 0, **given: object) -> str:
    argv = [ROLE, "-e", json.dumps({**GIVEN, "role": role, **given}), *options]
    done = lab.command("ansible-playbook", *argv)
    assert done.returncode == status, done.stdout[-5000:]
    return re.sub(r"\s+", " ", done.stdout)


def provision(lab: Lab) -> None:
    for role in ("node_base", "ssh_mesh"):
        played(lab, role)


def reach_each_other(lab: Lab, *nodes: str) -> None:
    for node in nodes:
        for other in nodes:
            login = f"runuser -u dlperf -- ssh -o BatchMode=yes {other} hostname"
            assert other == node or lab.said(node, login) == other


def leave(lab: Lab, *options: str) -> str:
    return "".join(played(lab, role, *options, part="absent") for role in ("ssh_mesh", "node_base"))


def test_a_home_that_is_another_users_is_refused(lab: Lab) -> None:
    """Without a number for all, each node chooses its own."""
    played(lab, "node_base", node_base_uid=None)
    numbers = {node: lab.said(node, "id -u dlperf") for node in NODES}
    assert len(set(numbers.values())) == len(NODES)
    output = played(lab, "ssh_mesh", status=2)
    assert "set node_base_uid to it for all of them" in output
    wrong = {**GIVEN, "dlperf_node": {"user": {"uid": 1, "shell": "/bin/bash"}}}
    output = played(lab, "node_base", status=2, **wrong)
    assert f"dlperf has number 1 on node1, and node_base_uid is {UID}." in output
    for node in NODES:
        lab.said(node, "userdel dlperf")
    lab.said("node1", "rm -r /home/dlperf")


def test_nodes_with_one_home_reach_each_other(lab: Lab) -> None:
    provision(lab)
    assert {lab.said(node, "stat -c '%u %g' /home/dlperf") for node in NODES} == {f"{UID} {UID}"}
    keys = {lab.said(node, "cat ~dlperf/.ssh/id_ed25519.pub") for node in NODES}
    assert len(keys) == 1
    reach_each_other(lab, *NODES)
    assert re.search(r"node3 : ok=\d+ changed=0 ", played(lab, "ssh_mesh"))


def test_one_node_leaves_the_home_to_the_others(lab: Lab) -> None:
    provision(lab)
    output = leave(lab, "--limit", "node1")
    assert "node1: the home of dlperf is kept, because other nodes use it, too: node2, node3." in (
        output
    )
    assert lab.ssh("node1", "id dlperf").returncode == 1
    reach_each_other(lab, "node2", "node3")
    assert f"{UID}" in lab.said("node2", "id dlperf")
    provision(lab)
    reach_each_other(lab, *NODES)


def test_the_last_nodes_remove_it(lab: Lab) -> None:
    provision(lab)
    leave(lab)
    for node in NODES:
        assert lab.ssh(node, "id dlperf").returncode == 1
    assert lab.said("node1", "ls -A /home") == ""
