"""The distribution's own RDMA, as the stack of today's machines has it: one role on one node.

The package is Debian's; the card, at 400 Gb/s with nvidia-peermem loaded, is a recorded tree.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fabric_standins import FIXTURES
from lab_under_test import Lab
from node_state import differences, node_state

from dlperf_runner.catalog.reader import load_catalog

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.gpu_roles]

# In place of the role's list: one that the lab's mirror has, and the node has not.
PACKAGE = "libibverbs-dev"
PORT = "/srv/fabric/sys/class/infiniband/mlx5_0/ports/1"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, mirror: Path) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("inbox") / "lab")
    made.up(lab_nodes=1, lab_mirror_dir=mirror)
    try:
        tree = json.loads((FIXTURES / "fabric/connectx7_roce.json").read_text())
        for path, content in tree.items():
            place = f"/srv/fabric/{path}"
            made.said(
                "node1", f"mkdir -p {Path(place).parent}; cat > {place} <<'END'\n{content}\nEND"
            )
        made.play("provision.yml", "--tags", "node_base")
        yield made
    finally:
        made.down()


@pytest.fixture(scope="module")
def before(lab: Lab) -> list[str]:
    return node_state(lab, "node1")


def role(lab: Lab, *options: str, **changed: object) -> tuple[int, str]:
    declared = load_catalog().stack("h100-cuda12.9").infiniband
    assert declared
    given = {
        "role": "infiniband",
        "infiniband_method": declared.method,
        "infiniband_peer_memory": declared.peer_memory,
        "infiniband_rate_gbps": declared.rate_gbps,
        "infiniband_packages": [PACKAGE],
        "infiniband_driver_version": "580.105.08",
        "infiniband_interface": "eth2",
        "infiniband_root": "/srv/fabric",
        **changed,
    }
    argv = ("ansible-playbook", "tests/lab/plays/role.yml", "-e", json.dumps(given), *options)
    done = lab.command(*argv)
    return done.returncode, re.sub(r"\s+", " ", done.stdout)


def remove(lab: Lab) -> None:
    for name in ("infiniband", "node_base"):
        status, output = role(lab, role=name, part="absent")
        assert status == 0, output


def test_check_mode_says_what_would_come_and_changes_nothing(lab: Lab, before: list[str]) -> None:
    assert before
    remove(lab)
    lab.play("provision.yml", "--tags", "node_base")
    was = node_state(lab, "node1")
    status, output = role(lab, "--check", "--diff")
    assert status == 0, output
    assert f"+{PACKAGE}" in output
    assert node_state(lab, "node1") == was


def test_the_package_is_there_and_the_second_run_changes_nothing(lab: Lab) -> None:
    status, output = role(lab)
    assert status == 0, output
    assert lab.said("node1", f"dpkg-query -W -f '${{Status}}' {PACKAGE}") == "install ok installed"
    status, output = role(lab)
    assert status == 0, output
    assert re.search(r"node1 : ok=\d+ changed=0 ", output), output


def test_a_link_below_its_rate_is_refused_and_ethernet_has_its_own(lab: Lab) -> None:
    lab.said("node1", f"cp {PORT}/rate /srv/rate; echo '200 Gb/sec (4X HDR)' > {PORT}/rate")
    status, output = role(lab)
    assert status == 0, output
    status, output = role(lab, infiniband_roce_rate_gbps=400)
    assert status == 2, output
    assert "node1: link rate: mlx5_0 port 1 200 Gb/s" in output
    lab.said("node1", f"echo InfiniBand > {PORT}/link_layer")
    status, output = role(lab)
    assert status == 2, output
    assert "node1: link rate: mlx5_0 port 1 200 Gb/s" in output
    lab.said("node1", f"echo Ethernet > {PORT}/link_layer")
    lab.said("node1", f"mv /srv/rate {PORT}/rate")


def test_an_older_drivers_module_is_refused_before_anything_changes(lab: Lab) -> None:
    status, output = role(lab, infiniband_driver_version="440.33.01")
    assert status == 2, output
    assert "nvidia-peermem" in output and "470" in output


def test_it_goes_again(lab: Lab, before: list[str]) -> None:
    status, output = role(lab)
    assert status == 0, output
    remove(lab)
    assert lab.ssh("node1", f"dpkg -s {PACKAGE}").returncode != 0
    gone = [line for line in differences(lab, "node1", before) if PACKAGE in line]
    assert gone == []
    lab.play("provision.yml", "--tags", "node_base")  # what other tests may still need
