"""The command `provision`."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from ..control.playbooks import (
    PASSES_ON,
    PlaybookOptions,
    ask_become_password,
    playbook_command,
    start,
)
from ..core.errors import UserError
from ..core.extras import require_cluster
from ..core.files import read_json
from ..options import print_note
from ..provision.rehearsal import is_change, listed

ORDER = 50
SETTINGS = PASSES_ON
HELP = """
--yes -y: Show what will change, and change it without asking.
--drain: Drain each node in Slurm first, wait for its jobs, and resume it.
"""
PLAYBOOK = "provision.yml"
# With these, ansible-playbook changes nothing.
HARMLESS = {"-C", "--check", "--syntax-check", "--list-tasks", "--list-tags", "--list-hosts"}


def command(
    options: PlaybookOptions = None,
    yes: bool = False,
    ask_become_pass: bool = False,
    drain: bool = False,
) -> None:
    """Prepare the servers of the inventory for benchmarks with provision.yml.

    Shows for each server what would change, and asks before anything does.

    Example: dlperf provision -i inventory/mine"""
    given = [*(options or []), *(["-e", "dlperf_drain=true"] if drain else [])]
    if ask_become_pass:
        ask_become_password()
    if not HARMLESS.intersection(given):
        require_cluster()
        rehearsed = rehearse(given)
        print(listed(rehearsed["changes"], rehearsed["failures"]), flush=True)
        changes = any(map(is_change, rehearsed["changes"].values()))
        if not rehearsed["changes"]:
            raise typer.Exit(2)
        if changes and not yes:
            confirm(["provision", *given])
    start(PLAYBOOK, given)


def rehearse(options: Sequence[str]) -> Mapping[str, Any]:
    """The changes that the playbook would make, by node, and why it refuses nodes (`failures`)."""
    print_note("Looking for what would change on each node. Nothing changes yet.")
    with tempfile.TemporaryDirectory(prefix="dlperf-rehearsal-") as folder:
        path = Path(folder) / "changes.json"
        argv, environment = playbook_command(PLAYBOOK, [*options, "--check"])
        done = subprocess.run(
            argv, env={**environment, "DLPERF_REHEARSAL": str(path)}, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        rehearsed = read_json(path) if path.exists() else {"changes": {}, "failures": {}}
    rehearsed["changes"] = {
        node: [(kind, text) for kind, text in items] for node, items in rehearsed["changes"].items()
    }
    if done.returncode and not rehearsed["failures"]:
        print(done.stdout, end="")
        raise typer.Exit(done.returncode)
    return rehearsed


def confirm(command_line: Sequence[str]) -> None:
    if not sys.stdin.isatty():
        raise UserError(
            "this would change servers, and there is no terminal to ask on",
            hint=f"to change what is listed, type: dlperf {shlex.join([*command_line, '--yes'])}",
        )
    if input("Change this now? [y/N] ").strip().lower() not in ("y", "yes"):
        print_note("Nothing was changed.")
        raise typer.Exit(2)
