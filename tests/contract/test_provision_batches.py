"""provision.yml in batches: Ansible reads its keywords `serial` and `max_fail_percentage`."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from executed_modules import playbook

ROOT = Path(__file__).parents[2]
NODES = [f"node{number}" for number in range(1, 7)]
BREAKS = {
    "name": "Break some nodes",
    "ansible.builtin.fail": {"msg": "broken"},
    "when": "inventory_hostname in broken",
}


def play(*arguments: str | Path) -> str:
    done = playbook(*arguments)
    assert done.returncode in (0, 2), done.stdout + done.stderr
    return done.stdout


def played(directory: Path, broken: list[str], **variables: Any) -> tuple[list[list[str]], str]:
    """The nodes that the plays of provision.yml change: batches of the second play, and the third.
    The tasks are replaced, and all else of the plays is kept."""
    check, base, rest = yaml.safe_load((ROOT / "playbooks/provision.yml").read_text())
    check = {"hosts": check["hosts"], "gather_facts": False, "tasks": []}
    told = {"name": "Change", "ansible.builtin.debug": {"msg": "changed"}}
    plays = [check, base | {"tasks": [BREAKS, told]}, rest | {"tasks": [told]}]
    (directory / "play.yml").write_text(json.dumps(plays))
    values = {"ansible_connection": "local", "broken": broken, **variables}
    (directory / "hosts.yml").write_text(
        json.dumps({"nodes": {"hosts": {name: {} for name in NODES}, "vars": values}})
    )
    output = play("-i", directory / "hosts.yml", directory / "play.yml")
    parts = [part for part in re.split(r"^PLAY ", output, flags=re.M) if "[Change]" in part]
    batches = [re.findall(r"^ok: \[(node\d)\]", part.split("[Change]")[1], re.M) for part in parts]
    return [sorted(batch) for batch in batches], output


def test_all_nodes_are_one_batch_unless_the_inventory_says_otherwise(tmp_path: Path) -> None:
    others = [name for name in NODES if name != "node3"]
    assert played(tmp_path, ["node3"])[0] == [others, others]


def test_the_inventory_sets_batches(tmp_path: Path) -> None:
    batches = [NODES[:1], NODES[1:4], NODES[4:]]
    assert played(tmp_path, [], dlperf_serial=[1, "50%"])[0] == [*batches, NODES]


@pytest.mark.parametrize(
    ("most", "changed"), [(50, [["node2"], NODES[2:4], NODES[4:], ["node2", *NODES[2:]]]), (49, [])]
)
def test_too_many_failures_end_the_run_before_the_next_batch(
    tmp_path: Path, most: int, changed: list[list[str]]
) -> None:
    variables = {"dlperf_serial": 2, "dlperf_max_fail_percentage": most}
    batches, output = played(tmp_path, ["node1"], **variables)
    assert batches == changed
    if not changed:
        assert not re.search(r"^\S+: \[node3\]", output, re.M)


def test_playbook_is_valid_with_and_without_nodes(tmp_path: Path) -> None:
    empty = tmp_path / "hosts.yml"
    empty.write_text("nodes: {}\n")
    assert "no hosts matched" in play("provision.yml", "-i", empty)
    parts = play("--list-tasks", "provision.yml", "-i", "inventory/example").split("  play #")
    assert "Gather facts about the nodes" in parts[1]
    assert "Install the stack's GPU software" in parts[2]
    assert "Install and verify OpenMPI" in parts[3]
