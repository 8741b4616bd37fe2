"""bench.yml shows what the command `plan` notes, such as workloads that it leaves out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from modules import PROJECT

NOTE = "not planned: paddle-arcface: these nodes do not have paddle (dlperf_frameworks)"
PLANNER = """#!/bin/sh
printf '%s' "$NOTES" >&2
printf '{"runs": []}'
"""


@pytest.mark.parametrize("notes", [NOTE, ""])
def test_the_notes_of_the_plan_are_shown(
    notes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner = tmp_path / "planner"
    planner.write_text(PLANNER)
    planner.chmod(0o755)
    text = (PROJECT / "playbooks/bench.yml").read_text(encoding="utf-8")
    (play, *_) = yaml.safe_load(text.replace("ansible_playbook_python", repr(str(planner))))
    names = [task["name"] for task in play["tasks"]]
    # From the planning to the reading of the plan, with a program in place of the planner.
    play["tasks"] = play["tasks"][1 : names.index("Read the plan") + 1]
    (tmp_path / "bench.yml").write_text(yaml.safe_dump([play]))
    monkeypatch.setenv("NOTES", notes)
    monkeypatch.setenv("ANSIBLE_CONFIG", str(PROJECT / "ansible.cfg"))
    monkeypatch.setenv("ANSIBLE_FILTER_PLUGINS", str(PROJECT / "playbooks/filter_plugins"))
    run = subprocess.run(
        ["ansible-playbook", "-e", f"ansible_python_interpreter={sys.executable}", "bench.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    assert (NOTE in run.stdout) == bool(notes)
