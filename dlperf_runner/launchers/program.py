"""What a launcher starts, and what launchers share."""

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
    """What one process (or one node's launcher) executes: `argv` begins with the interpreter.
    `environment` is the workload's own; what the inventory exports is added by the launcher."""

    argv: tuple[str, ...]
    gpus_per_node: int
    on_gpu: bool
    environment: dict[str, str] = field(default_factory=dict)
    cwd: str = ""


# From a program and the nodes of its run to the commands that start it, all at once.
Launcher = Callable[[Program, tuple["Node", ...]], tuple[Command, ...]]


def in_run_directory(program: Program) -> Program:
    """The same program started in the run's own directory, where its user may write; its script
    is named by its path then."""
    interpreter, (script, *arguments) = split_interpreter(program.argv)
    argv = (*interpreter, str(PurePosixPath(program.cwd, script)), *arguments)
    return replace(program, argv=argv, cwd="")


def environment_of(program: Program, host: Node) -> dict[str, str]:
    """The workload's variables, then the operator's, who has the last word."""
    # NCCL would otherwise pick a docker bridge or veth on its own, and hang.
    nccl = {"NCCL_SOCKET_IFNAME": host.interface} if program.on_gpu and host.interface else {}
    return {**program.environment, **nccl, **host.env}


def devices_of(program: Program) -> str:
    return ",".join(str(number) for number in range(program.gpus_per_node))


def split_interpreter(argv: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """`python -u script.py --x` as (`python -u`, `script.py --x`)."""
    end = next((n for n in range(1, len(argv)) if not argv[n].startswith("-")), len(argv))
    return argv[:end], argv[end:]
