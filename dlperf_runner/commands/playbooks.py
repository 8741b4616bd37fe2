"""Starts the playbooks of this project, and creates an inventory for them."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import yaml

from ..campaign.directory import new_directory
from ..core.errors import UserError
from ..core.extras import require_cluster
from ..core.files import read_bytes
from ..core.paths import is_clone, of_ansible, project, shipped

LAB_STATES = {"up": "present", "down": "absent", "checked": "checked"}


def start(playbook: str, options: Sequence[str]) -> NoReturn:
    """Replace this process with ansible-playbook, running a playbook of the project."""
    require_cluster()
    argv, environment = playbook_command(playbook, options)
    os.execve(argv[0], argv, environment)  # noqa: S606  runs without a shell on purpose


def start_bench(options: Sequence[str]) -> NoReturn:
    """Replace this process with ansible-playbook, running bench.yml. Results go to `results/`."""
    given = " ".join(options)
    if not re.search(r"(^| )(-i|--inventory)", given):
        options = [*options, *(f"--inventory={name}" for name in _inventories(options))]
    if not any(f"{name}=" in given for name in ("campaign", "resume")):
        options = [*options, "-e", f"campaign={new_directory().resolve()}"]
    start("bench.yml", options)


def _inventories(options: Sequence[str]) -> list[str]:
    """The inventories in a campaign file that is given as `-e @FILE`."""
    paths = re.findall(r"(?:^|\0)(?:-e\0?|--extra-vars[=\0])@([^\0]+)", "\0".join(options))
    found: list[str] = []
    for path in map(Path, paths):
        try:
            values = yaml.safe_load(read_bytes(path))
        except (OSError, UserError, yaml.YAMLError):
            continue  # Ansible reports it
        if isinstance(values, dict) and (names := values.get("inventory")):
            names = names if isinstance(names, list) else [names]
            found += [name if "," in name else str(path.parent / name) for name in names]
    return found


def playbook_command(playbook: str, options: Sequence[str]) -> tuple[list[str], Mapping[str, str]]:
    """The command line and the environment to start a playbook of the project."""
    root = project()
    programs = Path(sys.executable).parent
    argv = [str(programs / "ansible-playbook"), str(root / playbook), *options]
    path = f"{programs}{os.pathsep}{os.environ.get('PATH', '')}"
    return argv, {**os.environ, **of_ansible(), "PATH": path}


def init_inventory(directory: Path, example: str) -> Path:
    """Copy an example inventory. Raises UserError if the directory already exists."""
    examples = shipped() / "inventory"
    known = sorted(p.name for p in examples.iterdir() if p.name.startswith("example"))
    if example not in known:
        raise UserError(
            "unknown example", where="--from", expected=f"one of {', '.join(known)}", found=example
        )
    if directory.is_dir() and is_clone() and directory.resolve() == examples:
        directory = directory / "mine"
    if directory.exists():
        raise UserError(
            "the directory already exists",
            where=str(directory),
            expected="a new directory",
            hint="choose another: dlperf init DIR",
        )
    shutil.copytree(examples / example, directory)
    return directory
