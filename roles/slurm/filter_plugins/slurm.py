"""slurm.conf from what slurmd found on each node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

DOCUMENTATION = """
name: slurm_conf
short_description: The text of slurm.conf
options:
  _input: {description: Outputs of C(slurmd -C)., type: list, elements: str, required: true}
  addresses: {description: Addresses by name of node., type: dict, required: true}
  settings: {description: Settings beside SETTINGS below., type: dict, required: true}
  partition: {description: Name of the partition., type: str, required: true}
"""

SETTINGS = {
    "SlurmUser": "slurm",
    "AuthType": "auth/munge",
    "StateSaveLocation": "/var/lib/slurm/slurmctld",
    # %n: nodes may share a file system.
    "SlurmdSpoolDir": "/var/lib/slurm/slurmd/%n",
    "SlurmctldPidFile": "/run/slurmctld.pid",
    "SlurmdPidFile": "/run/slurmd.pid",
    "SlurmctldLogFile": "/var/log/slurm/slurmctld.log",
    "SlurmdLogFile": "/var/log/slurm/slurmd.log",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_CPU",
    "MpiDefault": "none",
    # A node that answers again is used again.
    "ReturnToService": "2",
}


def conf(
    hardware: Sequence[str],
    addresses: Mapping[str, str],
    settings: Mapping[str, Any],
    partition: str,
) -> str:
    """The settings, then a line for each node.

    slurmd -C prints `NodeName=node1 CPUs=2 Boards=1 SocketsPerBoard=1 ... RealMemory=7944` and
    `UpTime=1-02:03:04`.
    """
    lines = [f"{name}={value}" for name, value in (SETTINGS | dict(settings)).items()]
    for printed in hardware:
        words = [word for line in printed.splitlines() for word in line.split()]
        found = dict(word.split("=", 1) for word in words if "=" in word)
        name = found.pop("NodeName", "")
        found.pop("UpTime", None)
        if name not in addresses:
            raise ValueError(f"slurmd -C names {name!r}, which is no node: {', '.join(addresses)}")
        shape = " ".join(f"{key}={value}" for key, value in found.items())
        lines.append(f"NodeName={name} NodeAddr={addresses[name]} {shape} State=UNKNOWN")
    lines.append(f"PartitionName={partition} Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
    return "\n".join(lines) + "\n"


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"slurm_conf": conf}
