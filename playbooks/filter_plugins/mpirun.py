"""The mpirun of proofs: over TCP and the named interface, one process per entry of the hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

CATALOG = Path(__file__).parents[2] / "dlperf_runner/catalog"


def argv(
    mpirun: str, hosts: Sequence[str], interface: str, arguments: Sequence[str] = ()
) -> list[str]:
    """The command up to the program that it starts.

    Another interface, or a silent fall-back to shared memory, must not pass as a proof.
    """
    slots = ",".join(f"{host}:{count}" for host, count in Counter(hosts).items())
    command = [mpirun, "-np", str(len(hosts)), "--bind-to", "none"]
    command += ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--host", slots]
    if interface:
        declared = yaml.safe_load((CATALOG / "mpirun.yml").read_text(encoding="utf-8"))
        for parameter in declared["interface_parameters"]:
            command += ["--mca", parameter, interface]
    return [*command, *arguments]


def next_of(hosts: Sequence[str], host: str) -> str:
    """The host behind this one, behind the last the first; a host alone is its own next one."""
    return hosts[(hosts.index(host) + 1) % len(hosts)]


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"mpirun_argv": argv, "mpirun_next": next_of}
