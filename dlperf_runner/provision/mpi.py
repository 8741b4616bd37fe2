"""The commands of verifications across nodes: the named interface, one process per host entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from ..launchers.mpirun import interface_options

# OpenMPI's layers for messages, by dlperf_mpi_transport.
TRANSPORTS = {"tcp": ("ob1", "--mca", "btl", "tcp,self"), "ucx": ("ucx", "--mca", "btl", "^openib")}


def argv(
    mpirun: str,
    hosts: Sequence[str],
    interface: str,
    arguments: Sequence[str] = (),
    exported: Iterable[str] = (),
    transport: str = "tcp",
) -> list[str]:
    """The command line up to the program to start. `exported`: names of variables. The transport is
    forced: another one, or a silent fallback to shared memory, must not pass."""
    slots = ",".join(f"{host}:{count}" for host, count in Counter(hosts).items())
    command = [mpirun, "-np", str(len(hosts)), "--bind-to", "none"]
    command += ["--mca", "pml", *TRANSPORTS[transport], "--host", slots]
    command += interface_options(interface)
    for name in exported:
        command += ["-x", name]
    return [*command, *arguments]


def next_of(hosts: Sequence[str], host: str) -> str:
    """The next host in the list; the first follows the last."""
    return hosts[(hosts.index(host) + 1) % len(hosts)]


def build_refusal(version: str, prefix: str, mpirun: str) -> str:
    """The reason why the inventory's mpirun is not that of a build from source; empty if it is."""
    wanted = f"{prefix}/bin/mpirun"
    if mpirun == wanted:
        return ""
    return (
        f"The mpirun of OpenMPI {version} is {wanted}, but dlperf_mpirun is {mpirun}. Remove"
        " dlperf_mpirun from the inventory: the stack determines it."
    )


def container_command(name: str, **options: Any) -> dict[str, Any]:
    """The command that tests an image in containers called `name`. `options`: see proof_command."""
    from ..plan.containers import proof_command

    command = proof_command(name, **options)
    # ansible-core 2.16 makes texts of tuples.
    return asdict(command) | {"argv": list(command.argv), "cleanup": list(command.cleanup)}
