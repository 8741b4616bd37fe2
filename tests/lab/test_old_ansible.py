"""The oldest ansible-core that is supported, 2.16 with ansible 9: the same playbooks."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_under_test import Lab
from node_state import differences, node_state

# An Ansible of its own is half a gigabyte.
pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.versions]

RECAP = re.compile(r"^(node\d+) +: .*changed=(\d+) .*failed=(\d+)", re.MULTILINE)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, mirror: Path, old_ansible: Path) -> Iterator[Lab]:
    assert mirror.is_dir()
    with Lab(tmp_path_factory.mktemp("old") / "lab", old_ansible).is_up(lab_nodes=2) as made:
        yield made


def counts(output: str) -> dict[str, tuple[str, str]]:
    """Of each node, how many tasks changed something, and how many failed."""
    return {node: (changed, failed) for node, changed, failed in RECAP.findall(output)}


def test_it_is_the_old_one(lab: Lab) -> None:
    said = lab.command("ansible-playbook", "--version").stdout
    assert said.startswith("ansible-playbook [core 2.16.")
    assert str(lab.bin) in said


def test_provision_benchmark_summarize_decommission(lab: Lab, tmp_path: Path) -> None:
    before = node_state(lab, "node2")
    lab.play("provision.yml", "--check", "--diff")
    lab.play("provision.yml")
    again = counts(lab.play("provision.yml"))
    assert again == {"node1": ("0", "0"), "node2": ("0", "0")}
    campaign = tmp_path / "campaign"
    chosen = ("-e", "model=resnet50v1b", "-e", "nodes=2", "-e", f"campaign={campaign}")
    lab.play("bench.yml", *chosen)
    python = str(lab.bin / "python")
    done = lab.command(python, "-m", "dlperf_runner", "summarize", str(campaign))
    assert done.returncode == 0, done.stdout
    assert re.search(r"^\| +2 \| +4 \| +[\d.]+ ", done.stdout, re.MULTILINE)
    doctor = lab.command(python, "-m", "dlperf_runner", "doctor", "--json")
    assert doctor.returncode in (0, 1), doctor.stdout
    assert '"status": "ok"' in doctor.stdout
    lab.play("playbooks/decommission.yml", "-e", "dlperf_remove_results=true")
    assert differences(lab, "node2", before) == []
