"""Starts the playbooks of this project."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from ..core.extras import require_cluster
from ..core.paths import cache, of_ansible, project
from ..plan import inventory

# The settings of a command that passes its options on, and the argument for them.
PASSES_ON = {"context_settings": {"allow_extra_args": True, "ignore_unknown_options": True}}
PlaybookOptions = Annotated[
    list[str] | None,
    typer.Argument(
        help="Options of ansible-playbook.", metavar="[ANSIBLE_OPTION]...", show_default=False
    ),
]

# Options that ask for Ansible's own text.
_TEXT = {"--verbose", "--check", "-C", "--diff", "-D", "--step", "--syntax-check", "--version"}
_TEXT |= {"--help", "-h", "--list-hosts", "--list-tags", "--list-tasks"}
_CALLBACK = "ANSIBLE_STDOUT_CALLBACK"


def use_ansible_options(ask_become_pass: bool, extra_vars: Sequence[str] | None) -> None:
    """Take the options of Ansible for all playbooks that this process starts."""
    if extra_vars:
        inventory.use_extra_variables(extra_vars)
    if ask_become_pass:
        ask_become_password()


def ask_become_password() -> None:
    """Ask for sudo's password, for all playbooks that this process starts. It is neither in a
    command line nor in a file."""
    os.environ["DLPERF_BECOME_PASSWORD"] = getpass.getpass("BECOME password: ")
    os.environ["ANSIBLE_BECOME_PASSWORD_FILE"] = str(project() / "playbooks/become_password")


def start(playbook: str, options: Sequence[str]) -> NoReturn:
    """Replace this process with ansible-playbook, running a playbook of the project."""
    require_cluster()
    argv, environment = playbook_command(playbook, options)
    environment = {**environment, **drawn_as_lines(playbook, options)}
    os.execve(argv[0], argv, environment)  # noqa: S606  runs without a shell on purpose


def drawn_as_lines(playbook: str, options: Sequence[str]) -> Mapping[str, str]:
    """The environment in which Ansible draws a line for each node, and has its text in a file: on a
    terminal, unless an option or a variable asks for the text."""
    asks = any(option in _TEXT or option.startswith("-v") for option in options)
    is_screen = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if asks or not is_screen or _CALLBACK in os.environ:
        return {}
    log = cache() / "ansible" / f"{Path(playbook).stem}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    return {_CALLBACK: "node_lines", "DLPERF_ANSIBLE_LOG": str(log), "ANSIBLE_NOCOLOR": "1"}


def playbook_command(playbook: str, options: Sequence[str]) -> tuple[list[str], Mapping[str, str]]:
    """The command line and the environment to start a playbook of the project."""
    program = Path(sys.executable).with_name("ansible-playbook")
    argv = [str(program), str(project() / playbook), *options]
    return argv, {**os.environ, **of_ansible()}
