"""The mpirun command of verifications: the named interface, one process per host entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

# OpenMPI's layers for messages, by dlperf_mpi_transport.
TRANSPORTS = {"tcp": ("ob1", "--mca", "btl", "tcp,self"), "ucx": ("ucx", "--mca", "btl", "^openib")}
CATALOG = Path(__file__).parents[2] / "dlperf_runner/catalog"


def argv(
    mpirun: str,
    hosts: Sequence[str],
    interface: str,
    arguments: Sequence[str] = (),
    exported: Iterable[str] = (),
    transport: str = "tcp",
) -> list[str]:
    """The command line up to the program to start. `exported`: names of variables.

    The transport is forced: another one, or a silent fallback to shared memory, must not pass.
    """
    slots = ",".join(f"{host}:{count}" for host, count in Counter(hosts).items())
    command = [mpirun, "-np", str(len(hosts)), "--bind-to", "none"]
    command += ["--mca", "pml", *TRANSPORTS[transport], "--host", slots]
    if interface:
        declared = yaml.safe_load((CATALOG / "mpirun.yml").read_text(encoding="utf-8"))
        for parameter in declared["interface_parameters"]:
            command += ["--mca", parameter, interface]
    for name in exported:
        command += ["-x", name]
    return [*command, *arguments]


def next_of(hosts: Sequence[str], host: str) -> str:
    """The next host in the list; the first follows the last."""
    return hosts[(hosts.index(host) + 1) % len(hosts)]


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"mpirun_argv": argv, "mpirun_next": next_of}
