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
    launcher adds those of the inventory. `launcher_options` are the workload's options of mpirun.
    """

    argv: tuple[str, ...]
    gpus_per_node: int
    on_gpu: bool
    environment: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    launcher_options: tuple[str, ...] = ()


# Takes a program and the nodes of its run. Returns the commands, to be started at the same time.
Launcher = Callable[[Program, tuple["Node", ...]], tuple[Command, ...]]


def in_run_directory(program: Program) -> Program:
    """The same program, started in the run's own directory, where the user can write. The script
    gets its full path."""
    interpreter, (script, *arguments) = split_interpreter(program.argv)
    argv = (*interpreter, str(PurePosixPath(program.cwd, script)), *arguments)
    return replace(program, argv=argv, cwd="")


def environment_of(program: Program, hosts: tuple[Node, ...], host: Node) -> dict[str, str]:
    """The variables of one host of a run. The operator's override the workload's."""
    nccl = {}
    if program.on_gpu and len(hosts) > 1:
        # A validity rule reads the lines in which NCCL then says, once, which interface it uses.
        nccl = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
        if host.interface:
            # Without this, NCCL can select a Docker bridge or a veth interface, and hang.
            nccl["NCCL_SOCKET_IFNAME"] = host.interface
    return {**program.environment, **nccl, **host.env}


def command_on(
    host: Node,
    program: Program,
    hosts: tuple[Node, ...],
    argv: tuple[str, ...] = (),
    **variables: str,
) -> Command:
    """The program's command on one host of a run, with another `argv` and with further variables,
    if there are any; the workload's override them."""
    environment = {**variables, **environment_of(program, hosts, host)}
    return Command(host.name, argv or program.argv, environment, program.cwd)


def gloo_of(program: Program, host: Node) -> dict[str, str]:
    """The interface for Gloo, which by default takes the one that the host name resolves to."""
    has_gloo = host.interface and not program.on_gpu
    return {"GLOO_SOCKET_IFNAME": host.interface} if has_gloo else {}


def devices_of(program: Program) -> str:
    return ",".join(str(number) for number in range(program.gpus_per_node))


def split_interpreter(argv: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split `python -u script.py --x` into (`python -u`, `script.py --x`)."""
    end = next((n for n in range(1, len(argv)) if not argv[n].startswith("-")), len(argv))
    return argv[:end], argv[end:]
