"""The program that a launcher starts, and functions that launchers share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ..core.case import Command

if TYPE_CHECKING:
    from ..core.node import Node


@dataclass(frozen=True)
class Program:
    """The program of one process (or of one node's launcher).

    `argv` begins with the interpreter. `environment` has the variables of the workload; the
    launcher adds those of the inventory.
    """

    argv: tuple[str, ...]
    gpus_per_node: int
    on_gpu: bool
    environment: dict[str, str] = field(default_factory=dict)
    cwd: str = ""


# Takes a program and the nodes of its run. Returns the commands, to be started at the same time.
Launcher = Callable[[Program, tuple["Node", ...]], tuple[Command, ...]]


def in_run_directory(program: Program) -> Program:
    """The same program, started in the run's own directory, where the user can write. The script
    gets its full path."""
    interpreter, (script, *arguments) = split_interpreter(program.argv)
    argv = (*interpreter, str(PurePosixPath(program.cwd, script)), *arguments)
    return replace(program, argv=argv, cwd="")


def environment_of(program: Program, host: Node) -> dict[str, str]:
    """The workload's variables and the operator's. The operator's override the workload's."""
    # Without this, NCCL can select a Docker bridge or a veth interface, and hang.
    nccl = {"NCCL_SOCKET_IFNAME": host.interface} if program.on_gpu and host.interface else {}
    return {**program.environment, **nccl, **host.env}


def devices_of(program: Program) -> str:
    return ",".join(str(number) for number in range(program.gpus_per_node))


def split_interpreter(argv: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split `python -u script.py --x` into (`python -u`, `script.py --x`)."""
    end = next((n for n in range(1, len(argv)) if not argv[n].startswith("-")), len(argv))
    return argv[:end], argv[end:]
