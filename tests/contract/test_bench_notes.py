"""bench.yml shows what planning notes, such as workloads that it leaves out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml
from executed_modules import playbook
from modules import PROJECT

NOTE = "not planned: paddle-arcface: these nodes do not have paddle (dlperf_frameworks)"


@pytest.mark.parametrize("notes", [[NOTE], []])
def test_the_notes_of_the_plan_are_shown(notes: list[str], tmp_path: Path) -> None:
    (play, *_) = yaml.safe_load((PROJECT / "playbooks/bench.yml").read_text(encoding="utf-8"))
    names = [task["name"] for task in play["tasks"]]
    # From the planning to the reading of the plan, with a result in place of the planning.
    first = names.index("Show the plan's notes, such as workloads that it leaves out")
    last = names.index("Keep the plan and the lock on its nodes")
    result = {"bench_planned": {"plan": {"runs": []}, "notes": notes, "lock": {}}}
    play["tasks"] = [{"ansible.builtin.set_fact": result}, *play["tasks"][first : last + 1]]
    (tmp_path / "bench.yml").write_text(yaml.safe_dump([play]))
    options = ("-e", f"ansible_python_interpreter={sys.executable}")
    run = playbook(*options, tmp_path / "bench.yml")
    assert run.returncode == 0, run.stdout
    assert (NOTE in run.stdout) == bool(notes)
