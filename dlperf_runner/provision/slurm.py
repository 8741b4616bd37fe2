"""slurm.conf and gres.conf from what was found on each node, and the files of the prolog."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.errors import UserError
from ..core.files import read_text
from ..core.paths import PACKAGE, shipped

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
    # A job that says nothing gets all memory of its nodes.
    "SelectTypeParameters": "CR_CPU_Memory",
    "MpiDefault": "none",
    # A node that answers again is used again.
    "ReturnToService": "2",
}


def names(
    addresses: Mapping[str, str], hostvars: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """The nodes' names in Slurm by those in the inventory, which may have a domain: slurmd knows a
    node by its host name."""
    infos = {name: hostvars[name].get("__slurm_there") or {} for name in addresses}
    return {
        name: str(info.get("hostname") or name.partition(".")[0]) for name, info in infos.items()
    }


def conf(
    hardware: Sequence[str],
    addresses: Mapping[str, str],
    settings: Mapping[str, Any],
    partition: str,
    devices: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """The settings, then a line for each node, with its number of GPUs.

    slurmd -C prints `NodeName=node1 CPUs=2 Boards=1 SocketsPerBoard=1 ... RealMemory=7944` and
    `UpTime=1-02:03:04`.
    """
    gpus = {name: len(_gpus(paths)) for name, paths in (devices or {}).items()}
    gpu_types = {"GresTypes": "gpu"} if any(gpus.values()) else {}
    lines = [f"{name}={value}" for name, value in (SETTINGS | gpu_types | dict(settings)).items()]
    for printed in hardware:
        words = [word for line in printed.splitlines() for word in line.split()]
        values = dict(word.split("=", 1) for word in words if "=" in word)
        name = values.pop("NodeName", "")
        values.pop("UpTime", None)
        values.pop("Gres", None)  # slurmd prints it if it knows NVML
        if name not in addresses:
            raise UserError(
                f"slurmd -C names {name!r}, which is no node: {', '.join(addresses)}",
                hint="give the node its name in the inventory: hostnamectl set-hostname NAME",
            )
        shape = " ".join(f"{key}={value}" for key, value in values.items())
        own_gpus = f" Gres=gpu:{gpus[name]}" if gpus.get(name) else ""
        lines.append(f"NodeName={name} NodeAddr={addresses[name]} {shape}{own_gpus} State=UNKNOWN")
    lines.append(f"PartitionName={partition} Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
    return "\n".join(lines) + "\n"


# Releases whose own Slurm is older than 24.05, which first makes blocks of any size.
OLD = ("xenial", "bionic", "focal", "jammy", "noble", "buster", "bullseye", "bookworm")


def topology(blocks: Mapping[str, Sequence[str]]) -> str:
    """The lines of topology.conf: an NVLink domain is a block, whose nodes a job gets together."""
    return "".join(
        f"BlockName={name} Nodes={','.join(members)}\n" for name, members in blocks.items()
    )


def topology_refusal(domain: object, release: str, system: str) -> str:
    """The reason why a node's Slurm cannot know its NVLink domain; empty if it can."""
    if not domain:
        return ""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", str(domain)):
        return f"dlperf_nvlink_domain is {domain!r}, but must be letters, digits, - and _"
    if release in OLD or system.startswith("rhel"):
        return (
            "Slurm of this release has no topology/block of 24.05, which dlperf_nvlink_domain"
            " needs. Set slurm_nvlink_domain: '' for all nodes (jobs may then be spread over"
            " domains), or use Debian 13"
        )
    return ""


def _gpus(paths: Sequence[str]) -> list[str]:
    """The device files of GPUs, in their order: /dev/nvidia0, but not /dev/nvidiactl."""
    devices = [path for path in paths if re.fullmatch(r"/dev/nvidia\d+", path)]
    return sorted(devices, key=lambda path: int(path.removeprefix("/dev/nvidia")))


def gres(paths: Sequence[str]) -> str:
    """The lines of gres.conf: by NVML if slurmd has the plugin, else the device files."""
    gpus = _gpus(paths)
    if gpus and any(path.endswith("/gpu_nvml.so") for path in paths):
        return "AutoDetect=nvml\n"
    return "".join(f"Name=gpu File={path}\n" for path in gpus)


def prolog(checks: Mapping[str, Any], folder: str) -> list[dict[str, str]]:
    """Entries of node_files: the prolog's programs, and `checks`, the node and its stack."""
    utils = ["cuda_proof", "fabric_facts", "gpu_facts"]  # and what they import
    utils += ["node_probes", "nvidia_kernel", "nvidia_smi"]
    contents: dict[str, str] = {}
    for place, source, names in (
        ("", PACKAGE / "doctor/on_nodes", ("prolog",)),
        ("dlperf_runner/doctor/", PACKAGE / "doctor", ("fabric", "findings", "gpu")),
        ("module_utils/", shipped() / "module_utils", utils),
    ):
        contents |= {f"{place}{name}.py": read_text(source / f"{name}.py") for name in names}
    contents["checks.json"] = json.dumps(checks, indent=2, sort_keys=True) + "\n"
    folders = {str(parent) for place in contents for parent in Path(folder, place).parents}
    return [
        *(
            {"path": path, "state": "directory", "mode": "0755"}
            for path in sorted(folders)
            if Path(path).is_relative_to(folder)
        ),
        *(
            {"path": f"{folder}/{place}", "content": content}
            | ({"mode": "0755"} if place == "prolog.py" else {})
            for place, content in contents.items()
        ),
    ]
