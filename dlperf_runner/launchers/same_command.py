"""The launcher for OneFlow: the same command on every node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.case import Command
from .program import Program, environment_of

if TYPE_CHECKING:
    from ..core.node import Node


def same_command_everywhere(program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """Start the same command on every node. Its last argument has the addresses of all nodes."""
    argv = (*program.argv, "--node_ips=" + ",".join(host.address for host in hosts))
    return tuple(
        Command(host.name, argv, environment_of(program, hosts, host), program.cwd)
        for host in hosts
    )


LAUNCHERS = {"same_command_everywhere": same_command_everywhere}
