"""The same command on every node, as OneFlow is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.case import Command
from .program import Program, environment_of

if TYPE_CHECKING:
    from ..core.node import Node


def same_command_everywhere(program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """The same command on every node at once, with all nodes' addresses as its last argument."""
    argv = (*program.argv, "--node_ips=" + ",".join(host.address for host in hosts))
    return tuple(
        Command(host.name, argv, environment_of(program, host), program.cwd) for host in hosts
    )


LAUNCHERS = {"same_command_everywhere": same_command_everywhere}
