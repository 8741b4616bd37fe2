"""The launcher for a single process that uses all devices of one node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.case import Command
from ..core.errors import UserError
from .program import Program, devices_of, environment_of

if TYPE_CHECKING:
    from ..core.node import Node


def single_process(program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """Start one process on one node. The process itself uses all devices."""
    if len(hosts) != 1:
        raise UserError(
            "one process cannot use several nodes", expected="one node", found=f"{len(hosts)} nodes"
        )
    # The programs read this variable themselves. They fail if it is unset; empty means CPU.
    devices = {"CUDA_VISIBLE_DEVICES": devices_of(program) if program.on_gpu else ""}
    environment = {**devices, **environment_of(program, hosts[0])}
    return (Command(hosts[0].name, program.argv, environment, program.cwd),)


LAUNCHERS = {"single_process": single_process}
