"""One process on one node drives all of its devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.case import Command
from ..core.errors import UserError
from .program import Program, devices_of, environment_of

if TYPE_CHECKING:
    from ..core.node import Node


def single_process(program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """One process on one node that drives all of its devices itself."""
    if len(hosts) != 1:
        raise UserError(
            "one process cannot span nodes", expected="one node", found=f"{len(hosts)} nodes"
        )
    # The programs read the variable themselves: unset is an error to them, empty means the CPU.
    devices = {"CUDA_VISIBLE_DEVICES": devices_of(program) if program.on_gpu else ""}
    environment = {**devices, **environment_of(program, hosts[0])}
    return (Command(hosts[0].name, program.argv, environment, program.cwd),)


LAUNCHERS = {"single_process": single_process}
