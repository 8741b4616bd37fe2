"""The doctor's verdict, its output, and the files of facts that it reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import Called, call
from doctor_facts import NODES, PROJECT, STACKS, document

from dlperf_runner.core.errors import UserError
from dlperf_runner.doctor.command import examine, read_facts, render
from dlperf_runner.doctor.findings import Finding
from dlperf_runner.doctor.nodes import diagnose, status_of
from dlperf_runner.provision import preflight


def test_status_is_the_worst() -> None:
    def of_status(*names: Any) -> str:
        return status_of([Finding("n", "c", name, "e", "f") for name in names])

    assert of_status("ok", "warning", "failed") == "failed"
    assert of_status("ok", "warning") == "warning"
    assert of_status() == "ok"


def test_text_tells_what_is_wrong_and_what_to_do() -> None:
    told = document()
    told["nodes"]["node2"]["gpu"]["gpus"][3]["mig"] = True
    text = render(diagnose(NODES, STACKS, told), 200)
    assert "\n  failed  mig: expected off, found GPU 3: MIG is on\n          -> nvidia-smi" in text
    assert text.count("\n  failed") == 1
    assert " checks: 1 failed, 0 warnings, " in text
    assert "clock" in text
    assert "within 2 s" in render(diagnose(NODES, STACKS, told), 200, everything=True)


def test_slurm_gets_one_line_as_from_node_health_check(tmp_path: Path) -> None:
    told = document()
    told["nodes"] = {name.upper(): facts for name, facts in told["nodes"].items()}

    def doctor(*options: str, status: int = 0) -> Called:
        path = tmp_path / "facts.json"
        path.write_text(json.dumps(told).replace("10.11.0.", "192.0.2."))  # the example's addresses
        example = PROJECT / "inventory/example"
        return call("doctor", "-i", example, "--facts", path, *options, status=status)

    assert doctor("--nhc").out == ""
    told["nodes"]["NODE2"]["gpu"]["gpus"][3]["mig"] = True
    told["nodes"]["NODE4"] = {"unreachable": "no\nroute"}
    assert doctor("--nhc", status=1).out == (
        "ERROR:  nhc:  Health check failed:  NODE2: mig: expected off, found GPU 3: MIG is on;"
        " NODE4: reached: expected by SSH, found no route\n"
    )
    assert doctor("--nhc", "--limit", "NODE1").out == ""
    document_of = doctor("--json", status=1).document
    failed = [item for item in document_of["findings"] if item["status"] == "failed"]
    assert [(item["node"], item["check"]) for item in failed] == [
        ("NODE2", "mig"),
        ("NODE4", "reached"),
    ]
    assert "cannot be combined" in doctor("--nhc", "--json", status=2).err
    told["nodes"]["NODE1"] = []
    assert doctor("--nhc", status=2).out == ""


def test_facts_of_a_playbook(tmp_path: Path) -> None:
    """The filter of preflight.yml: what could not be had is told, what is Ansible's own is not."""
    hostvars = {
        "node1": {
            "bootstrap_found": {
                "stdout": "/usr/bin/python3 3.11.2\r\n/usr/bin/python3.11 3.11.2\r\n"
                "/usr/bin/python2.7 2.7.18\r\nsystem debian12\r\n"
            },
            "preflight_health": {"time": 5.0, "changed": False, "failed": False},
            "preflight_gpu": {
                "failed": True,
                "msg": "MODULE FAILURE",
                "module_stderr": "x\nboom\n",
            },
            "preflight_fabric": {"failed": True, "msg": "Missing sudo\npassword"},
            "preflight_compute": {"failed": True, "msg": "GPU 0:\n802", "kind": "fabric"},
            "preflight_ssh_mesh": {"failed": True, "msg": "node2: no"},
            "preflight_partners": ["node2"],
            "preflight_all_reduce": {"skipped": True},
            "preflight_asked": "4.0",
            "preflight_answered": 6.5,
        },
        "node2": {"bootstrap_found": {"unreachable": True, "msg": "no route"}},
        "node3": {},
    }
    assert preflight.facts(hostvars, ["node1", "node2", "node3"]) == {
        "node1": {
            "pythons": ["3.11.2", "2.7.18"],
            "compute": {"failed": "GPU 0: 802", "kind": "fabric", "count": 0},
            "health": {"time": 5.0},
            "gpu": {"failed": "boom"},
            "fabric": {"failed": "Missing sudo password"},
            "dcgm": None,
            "adopted": None,
            "software": None,
            "ssh_mesh": {"failed": "node2: no", "called": 1},
            "firewall": None,
            "all_reduce": None,
            "asked": 4.0,
            "answered": 6.5,
        },
        "node2": {"unreachable": "no route"},
    }


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"nodes": []}', '{"ansible_core": "2.19", "nodes": {"a": 1}}']
)
def test_files_that_are_no_facts(tmp_path: Path, content: str) -> None:
    path = tmp_path / "facts.json"
    path.write_text(content)
    with pytest.raises(UserError, match=r"facts\.json"):
        read_facts(path)
    with pytest.raises(UserError, match=r"none\.json"):
        read_facts(tmp_path / "none.json")


def test_facts_of_another_version_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    told = {"ansible_core": "2.19", "nodes": {"NODE1": {"health": {"time": 1}}}}
    path.write_text(json.dumps(told))
    with pytest.raises(UserError, match="not in the format of this version"):
        examine([str(PROJECT / "inventory/example")], "", path)
