"""JAX's launchers: one process per node, which drives all devices of the run there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .mpirun import mpirun
from .program import Program, command_on, devices_of

if TYPE_CHECKING:
    from ..core.case import Command
    from ..core.node import Node

# The coordinator listens on this port of the first node.
PORT = "29500"


def jax(program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """Start the program once per node, and tell it where the coordinator is, how many processes
    there are, and which of them it is. JAX then asks no launcher and no host name."""
    process = _meeting(program, hosts)
    return tuple(
        command_on(host, process, hosts, JAX_PROCESS_ID=str(rank))
        for rank, host in enumerate(hosts)
    )


def jax_mpirun(program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """Start the same processes with mpirun, which says which of them each is."""
    return mpirun(replace(_meeting(program, hosts), gpus_per_node=1), hosts)


def _meeting(program: Program, hosts: tuple[Node, ...]) -> Program:
    variables = {
        "CUDA_VISIBLE_DEVICES": devices_of(program) if program.on_gpu else "",
        "JAX_COORDINATOR_ADDRESS": f"{hosts[0].address}:{PORT}",
        "JAX_NUM_PROCESSES": str(len(hosts)),
    }
    return replace(program, environment={**variables, **program.environment})


LAUNCHERS = {"jax": jax, "jax_mpirun": jax_mpirun}
