"""What ansible-runner leaves: nothing, and while it runs, nothing that others may read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dlperf_runner.campaign import execute

SECRET = "planted-7d1e0c"  # noqa: S105
PLAY = [
    {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": "{{ ansible_playbook_python }}"},
        "vars_files": ["secret.yml"],
        "tasks": [
            {"name": "Use it", "debug": {"msg": "{{ planted }}"}, "no_log": True},
            {
                "name": "Copy what is there meanwhile",
                "shell": "private=$(dirname $DLPERF_PID_FILE); stat -c '%a %u' $private > mode;"
                " find $private -type f -exec cat {} + > files; echo $private > private",
                "args": {"chdir": "{{ playbook_dir }}"},
            },
            {
                "name": "Fail with it",
                "command": {"argv": ["sh", "-c", "echo {{ planted }}; exit 3"]},
                "no_log": True,
            },
        ],
    }
]


def test_artifacts_are_private_hold_no_secret_and_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "play.yml").write_text(json.dumps(PLAY))
    (tmp_path / "secret.yml").write_text(json.dumps({"planted": SECRET}))
    (tmp_path / "ansible.cfg").touch()
    monkeypatch.setattr(execute, "project", lambda: tmp_path)
    state = execute.Playbook(log=tmp_path / "ansible.log")
    execute.run_playbook("play.yml", {"resume": "x"}, ["localhost,"], state)
    log = state.log.read_text()
    assert "Copy what is there meanwhile" in log
    (problem,) = state.problems  # the last task did run
    assert "Fail with it" in problem
    private = Path((tmp_path / "private").read_text().strip())
    mode, _ = (tmp_path / "mode").read_text().split()
    assert mode == "700"
    assert not private.exists()
    assert state.log.stat().st_mode & 0o777 == 0o600
    for text in (log, problem, (tmp_path / "files").read_text()):
        assert SECRET not in text
