"""Ansible itself reads the inventory: order, groups, defaults and complaints are its own."""

from pathlib import Path

import pytest

from dlperf_runner.core.errors import UserError
from dlperf_runner.plan.inventory import read_inventory

VARIABLES = """\
[nodes:vars]
dlperf_devices_per_node=2
dlperf_accelerator=cpu
dlperf_stack=cpu
"""


def test_several_inventories_and_a_limit(tmp_path: Path) -> None:
    first, second = tmp_path / "first.ini", tmp_path / "second.yml"
    first.write_text(f"[nodes]\nnode2 ansible_host=10.11.0.3\nnode[9:11]\n{VARIABLES}")
    second.write_text("nodes: {hosts: {node1: {dlperf_devices_per_node: 4}}}\n")
    inventories = [str(first), str(second)]
    nodes = read_inventory(inventories)
    assert [node.name for node in nodes] == ["node2", "node9", "node10", "node11", "node1"]
    assert nodes[0].address == "10.11.0.3"
    assert [node.devices_per_node for node in nodes] == [2, 2, 2, 2, 4]
    limited = read_inventory(inventories, limit="node1*,!node11")
    assert [node.name for node in limited] == ["node10", "node1"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bad.yml", "nodes: [\n", "bad.yml:2:1: Ansible cannot read the inventory: While parsing"),
        ("bad.ini", "[nodes\n", "bad.ini: Ansible cannot read the inventory: "),
    ],
)
def test_what_ansible_cannot_read_is_an_error(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UserError) as caught:
        read_inventory([str(path)])
    assert message in str(caught.value)
