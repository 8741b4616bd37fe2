"""`doctor` on bare nodes, on provisioned ones, and on one where something was broken."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from lab_under_test import Lab

pytestmark = pytest.mark.lab


def findings(lab: Lab, status: int, *options: str) -> dict[tuple[str, str], dict[str, Any]]:
    done = lab.command(sys.executable, "-m", "dlperf_runner", "doctor", "--json", *options)
    assert done.returncode == status, done.stdout
    told = json.loads(done.stdout)
    assert (told["status"] == "failed") == (status == 1)
    return {(found["node"], found["check"]): found for found in told["findings"]}


def failed(found: dict[tuple[str, str], dict[str, Any]]) -> set[tuple[str, str]]:
    return {key for key, finding in found.items() if finding["status"] == "failed"}


def test_bare_then_provisioned_then_broken(tmp_path: Path, mirror: Path) -> None:
    with Lab(tmp_path / "lab").running(nodes=2, mirror=mirror) as lab:
        bare = findings(lab, 1)
        assert failed(bare) == {
            ("node1", "openmpi"),
            ("node1", "ssh mesh"),
            ("node1", "all-reduce"),
            ("node2", "openmpi"),
            ("node2", "ssh mesh"),
        }
        assert "there is no user dlperf" in bare["node1", "ssh mesh"]["found"]
        assert "provision.yml" in bare["node1", "ssh mesh"]["hint"]

        lab.play("provision.yml", "--tags", "node_base,ssh_mesh,openmpi")
        before = lab.said("node1", "find /opt/dlperf /etc -newer /etc/hostname -type f | sort")
        assert failed(findings(lab, 0)) == set()
        after = lab.said("node1", "find /opt/dlperf /etc -newer /etc/hostname -type f | sort")
        assert after == before

        assert {node for node, _ in findings(lab, 0, "--limit", "node2")} == {"node2"}

        lab.said("node2", "rm ~dlperf/.ssh/authorized_keys")
        lab.said("node2", "sed -i s/12/10/ /etc/os-release")
        broken = findings(lab, 1)
        assert failed(broken) == {
            ("node1", "ssh mesh"),
            ("node1", "all-reduce"),
            ("node2", "system"),
            ("", "system"),
        }
        assert "node2" in broken["node1", "ssh mesh"]["found"]
        assert broken["", "system"]["found"].startswith("node2: debian10")
        done = lab.command("ansible-playbook", "playbooks/preflight.yml", "--limit", "node2")
        assert done.returncode == 2
        assert "A node is not fit" in done.stdout
        assert "failed  system: expected" in done.stdout
