"""The launchers that start the program itself: one process, or the same command on every node."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.errors import UserError
from .program import Program, command_on, devices_of

if TYPE_CHECKING:
    from ..core.case import Command
    from ..core.node import Node


def single_process(program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """Start one process on one node. The process itself uses all devices."""
    # The programs read this variable themselves. They fail if it is unset; empty means CPU.
    devices = {"CUDA_VISIBLE_DEVICES": devices_of(program) if program.on_gpu else ""}
    return direct(replace(program, environment={**devices, **program.environment}), hosts)


def direct(program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """Start the program as it is, on one node."""
    if len(hosts) != 1:
        raise UserError(
            "one process cannot use several nodes", expected="one node", found=f"{len(hosts)} nodes"
        )
    return (command_on(hosts[0], program, hosts),)


def same_command_everywhere(program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """Start the same command on every node, as OneFlow takes it. Its last argument has the
    addresses of all nodes."""
    argv = (*program.argv, "--node_ips=" + ",".join(host.address for host in hosts))
    return tuple(command_on(host, program, hosts, argv) for host in hosts)


LAUNCHERS = {
    "single_process": single_process,
    "direct": direct,
    "same_command_everywhere": same_command_everywhere,
}
