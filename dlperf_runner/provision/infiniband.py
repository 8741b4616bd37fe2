"""Checks of the role infiniband, the interface's configuration files, and the links' problems."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

# The first version of NVIDIA's driver that includes nvidia-peermem.
PEERMEM_SINCE = 470
CLIENT = "ib_register_peer_memory_client"


def refusal(method: str, peer_memory: str, driver: str) -> str:
    """The reason why a stack's InfiniBand settings fail with its driver; empty if they work."""
    major = int(match.group()) if (match := re.match(r"\d+", driver)) else None
    if peer_memory == "nvidia-peermem" and major is not None and major < PEERMEM_SINCE:
        return (
            f"nvidia-peermem needs driver {PEERMEM_SINCE} or newer, but the stack has {driver}. Set"
            " infiniband.peer_memory to nv_peer_mem in the stack"
        )
    if peer_memory == "nv_peer_mem" and method == "inbox":
        return (
            "nv_peer_mem needs MLNX_OFED, but the stack uses the distribution's drivers (inbox)."
            " Set infiniband.method to mlnx_ofed or infiniband.peer_memory to nvidia-peermem in the"
            " stack"
        )
    return ""


def network_of(programs: Sequence[str]) -> str:
    """The service that configures a node's network, detected by its program; empty if unknown."""
    names = {path.rpartition("/")[2] for path in programs}
    systems = {"netplan": "netplan", "ifup": "ifupdown", "networkctl": "networkd"}
    return next((system for program, system in systems.items() if program in names), "")


def address_files(interface: str, address: str, network: str) -> list[dict[str, Any]]:
    """The configuration file of an interface's address for each network service. Only the file for
    `network` is present; without a network service all are absent."""
    contents = {
        "netplan": (
            f"/etc/netplan/60-dlperf-{interface}.yaml",
            "network:\n  version: 2\n  ethernets:\n"
            f"    {interface}:\n      addresses: [{address}]\n      optional: true\n",
        ),
        "ifupdown": (
            f"/etc/network/interfaces.d/dlperf-{interface}",
            f"auto {interface}\niface {interface} inet static\n    address {address}\n",
        ),
        "networkd": (
            f"/etc/systemd/network/60-dlperf-{interface}.network",
            f"[Match]\nName={interface}\n\n[Network]\nAddress={address}\n",
        ),
    }
    return [
        {
            "path": path,
            "state": "file" if system == network else "absent",
            "content": f"# Made by dlperf_runner\n{text}" if system == network else "",
            # netplan warns about files that others can read.
            "mode": "0600" if system == "netplan" else "0644",
        }
        for system, (path, text) in contents.items()
    ]


def address_commands(interface: str, network: str) -> list[list[str]]:
    """Commands that make a network service apply a changed file."""
    return {
        "netplan": [["netplan", "apply"]],
        "ifupdown": [["ifdown", "--force", interface], ["ifup", interface]],
        "networkd": [["networkctl", "reload"], ["networkctl", "reconfigure", interface]],
    }[network]


def unaddressed(facts: Mapping[str, Any], interface: str, address: str) -> str:
    """The reason why an interface will have no address; empty if it has or gets one, or if it is
    unknown."""
    if not interface or address:
        return ""
    facts_of_interface = facts["interfaces"].get(interface)
    if facts_of_interface is not None and (
        facts_of_interface["addresses"] is None or facts_of_interface["addresses"]
    ):
        return ""
    state = "has no address" if facts_of_interface else "does not exist yet"
    return (
        f"dlperf_interface is {interface}, which {state}. Set dlperf_interface_address per host,"
        f" such as 10.11.0.2/24, or give {interface} its address yourself"
    )


def load_failure(message: str, has_client: bool, module: str) -> str:
    """Explain modprobe's error about a peer memory module."""
    if re.search(rf"{CLIENT}|[Uu]nknown symbol|Invalid argument|Exec format", message):
        if has_client:
            return (
                f"{module} was built against another OFED than the loaded one. Restart openibd or"
                " reboot the node, then rebuild the module"
            )
        return (
            f"{module} needs {CLIENT}, which the loaded ib_core lacks. Install MLNX_OFED (method"
            " mlnx_ofed), or set dlperf_stack_overrides: {infiniband: {peer_memory: null}}: NCCL"
            " then uses DMA-BUF if kernel and driver support it"
        )
    if "not found" in message:
        return f"the running kernel has no module {module}: install the driver or build the module"
    return message.strip() or f"modprobe {module} failed without a message"
