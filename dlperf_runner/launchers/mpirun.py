"""The launcher `mpirun`: mpirun on the first node starts all processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.case import Command
from ..core.errors import UserError
from .program import Program, environment_of

if TYPE_CHECKING:
    from ..core.node import Node

# OpenMPI's layer for messages between processes, by dlperf_mpi_transport.
PML = {"tcp": "ob1", "ucx": "ucx"}


def mpirun(program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """One `mpirun` on the first host starts one process per device on every host.

    Works with OpenMPI 4 and 5: `--host` sets the slots, and `-x` exports a variable from the
    command's environment.
    """
    first = hosts[0]
    _refuse_unequal(hosts, "dlperf_interface", [host.interface for host in hosts])
    _refuse_unequal(hosts, "dlperf_mpi_transport", [host.mpi_transport for host in hosts])
    _refuse_unequal(hosts, "dlperf_env", [host.env for host in hosts])
    environment = environment_of(program, hosts, first)
    slots = ",".join(f"{host.name}:{program.gpus_per_node}" for host in hosts)
    argv = [first.mpirun, "--host", slots, "-np", str(len(hosts) * program.gpus_per_node)]
    argv += program.launcher_options
    argv += interface_options(first.interface)
    argv += ["--mca", "pml", PML[first.mpi_transport], "--mca", "btl", "^openib"]
    if program.cwd:
        argv += ["--wdir", program.cwd]
    for name in environment:
        argv += ["-x", name]
    argv += [*first.mpirun_args, *program.argv]
    return (Command(first.name, tuple(argv), environment, program.cwd),)


def interface_options(interface: str) -> list[str]:
    """What binds OpenMPI to a network interface; nothing if none is named."""
    parameters = ("btl_tcp_if_include", "oob_tcp_if_include") if interface else ()
    return [part for name in parameters for part in ("--mca", name, interface)]


def _refuse_unequal(hosts: tuple[Node, ...], variable: str, values: list[object]) -> None:
    for host, value in zip(hosts, values, strict=True):
        if value != values[0]:
            raise UserError(
                f"mpirun needs the same {variable} on all nodes of a run",
                where=f"host {host.name}: {variable}",
                expected=f"{values[0]!r}, as on {hosts[0].name}",
                found=repr(value),
            )


LAUNCHERS = {"mpirun": mpirun}
