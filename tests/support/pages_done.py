"""Files that a page of the docs tells to add, in a copy of the package."""

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from captured import captured

ROOT = Path(__file__).resolve().parents[2]


def page_files(page: str) -> dict[str, str]:
    """The files of a page by path: **`path`**, an empty line, and a fenced block."""
    block = r"^\*\*`([^`]+)`\*\*\n\n```\w+\n(.*?)^```$"
    return dict(re.findall(block, page, re.MULTILINE | re.DOTALL))


def copy_with(files: Mapping[str, str], root: Path) -> None:
    """Copy the package to `root` and add the files; nothing that was there is touched."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "dlperf_runner", root / "dlperf_runner", ignore=ignored)
    shutil.copy(ROOT / "ansible.cfg", root)
    for name, content in files.items():
        assert not (root / name).exists(), name
        (root / name).write_text(content, encoding="utf-8")


def dlperf(project: Path, *argv: str) -> str:
    """What a command of the copy prints; it must succeed."""
    environment = {**os.environ, "PYTHONPATH": "", "ANSIBLE_CONFIG": str(project / "ansible.cfg")}
    done = captured(sys.executable, "-m", "dlperf_runner", *argv, cwd=project, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
