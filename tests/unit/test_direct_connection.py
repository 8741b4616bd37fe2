"""The doctor's connection between nodes, with a stand-in for ssh that stays on this machine."""

import os
import sys
from pathlib import Path

import pytest
from captured import captured
from standins import PROJECT, program

PROGRAM = PROJECT / "roles/ssh_mesh/files/direct_connection.py"
THERE = f'shift 5; set -- $1; shift; exec "{sys.executable}" "$@"'


@pytest.mark.parametrize(
    ("ssh", "status", "words"),
    [
        (THERE, 0, "open\n"),
        ("cat > /dev/null; echo 1", 1, "node2 closes TCP 1 of 127.0.0.1 - ["),
        ("cat > /dev/null; exit 255", 1, "node2 could not listen"),
    ],
)
def test_a_port_of_another_node(tmp_path: Path, ssh: str, status: int, words: str) -> None:
    path = f"{program(tmp_path, 'ssh', ssh)}:{os.environ['PATH']}"
    argv = [sys.executable, "-c", PROGRAM.read_text(), "node2", "127.0.0.1"]
    done = captured(*argv, env={**os.environ, "PATH": path})
    assert done.returncode == status
    assert words in done.stdout + done.stderr
