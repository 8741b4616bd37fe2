"""playbooks/decommission.yml after provision.yml, on two nodes without GPUs and frameworks."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_under_test import Lab
from node_state import differences, node_state

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.nodes]  # minutes

FEW = ("-e", '{"dlperf_frameworks": []}')


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, mirror: Path) -> Iterator[Lab]:
    assert mirror.is_dir()
    with Lab(tmp_path_factory.mktemp("decommission") / "lab").is_up(lab_nodes=2) as made:
        yield made


def test_a_provisioned_node_is_as_it_was_but_for_results(lab: Lab) -> None:
    before = {node: node_state(lab, node) for node in ("node1", "node2")}
    lab.play("provision.yml", *FEW)
    assert lab.said("node1", "id -un dlperf; mpirun --version; ls /opt/dlperf/uv")
    lab.said("node1", "runuser -u dlperf -- mkdir -p /home/dlperf/runs/campaign/case")
    output = lab.play("playbooks/decommission.yml", *FEW)
    assert "node1: the user dlperf and its home are kept" in output
    assert "node2: the user" not in output
    assert lab.said("node1", "ls -d /home/dlperf/runs/campaign/case")
    assert differences(lab, "node2", before["node2"]) == []
    lab.play("playbooks/decommission.yml", *FEW, "-e", "dlperf_remove_results=true")
    assert differences(lab, "node1", before["node1"]) == []
    assert lab.ssh("node1", "grep dlperf /etc/passwd /etc/group /etc/shadow").stdout == ""
