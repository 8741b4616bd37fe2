"""The command `bench`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import yaml

from ..campaign.directory import new_directory
from ..control.playbooks import PASSES_ON, PlaybookOptions, start
from ..core.errors import UserError
from ..core.files import read_bytes

ORDER = 90
SETTINGS = PASSES_ON


def command(options: PlaybookOptions = None) -> None:
    """Run benchmarks with bench.yml. Set the options of `plan` as variables: `-e model=NAME`."""
    start_bench(options or [])


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
