"""What the role infiniband refuses, how it keeps an address, and whether it finds links up."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

# NVIDIA's driver brings nvidia-peermem since this version.
PEERMEM_SINCE = 470
CLIENT = "ib_register_peer_memory_client"


def refusal(method: str, peer_memory: str, driver: str) -> str:
    """Why a stack's InfiniBand cannot be had with its driver; empty where it can."""
    major = int(match.group()) if (match := re.match(r"\d+", driver)) else None
    if peer_memory == "nvidia-peermem" and major is not None and major < PEERMEM_SINCE:
        return (
            f"nvidia-peermem comes with drivers of {PEERMEM_SINCE} and newer, and the stack has"
            f" {driver}: take peer_memory nv_peer_mem (infiniband.peer_memory of the stack)"
        )
    if peer_memory == "nv_peer_mem" and method == "inbox":
        return (
            "nv_peer_mem is built against MLNX_OFED, and the stack has the distribution's drivers"
            " (inbox): take method mlnx_ofed, or peer_memory nvidia-peermem (infiniband of the"
            " stack)"
        )
    return ""


def network_of(programs: Sequence[str]) -> str:
    """What keeps the addresses of a node, by the programs that it has."""
    names = {path.rpartition("/")[2] for path in programs}
    known = {"netplan": "netplan", "ifup": "ifupdown", "networkctl": "networkd"}
    return next((system for program, system in known.items() if program in names), "")


def address_files(interface: str, address: str, network: str) -> list[dict[str, Any]]:
    """Files by which network systems give an interface its address: that of the node's has it,
    those of others, and all of them without one, are absent."""
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
            # netplan complains of files that others can read.
            "mode": "0600" if system == "netplan" else "0644",
        }
        for system, (path, text) in contents.items()
    ]


def address_commands(interface: str, network: str) -> list[list[str]]:
    """What makes a network system take up a changed file."""
    return {
        "netplan": [["netplan", "apply"]],
        "ifupdown": [["ifdown", "--force", interface], ["ifup", interface]],
        "networkd": [["networkctl", "reload"], ["networkctl", "reconfigure", interface]],
    }[network]


def problems(
    facts: Mapping[str, Any],
    interface: str,
    rate_gbps: int | None,
    ofed: str,
    peer_memory: str,
    address: str = "",
    has_cards: bool = True,
) -> list[str]:
    """What is amiss with a node's fabric, each with what to do; `facts` are those of fabric_info.

    Without `has_cards` (a container's are its host's) ports and modules are not looked at.
    """
    ports = [
        (f"{device['name']} port {port['port']}", port)
        for device in facts["devices"]
        for port in device["ports"]
    ]
    found = []
    if not has_cards:
        ports, peer_memory = [], ""
    elif not ports:
        found.append(
            "there is no port of InfiniBand or RoCE: look for the card (lspci) and its driver"
            " (modprobe mlx5_ib)"
        )
    for name, port in [item for item in ports if item[1]["in_use"]]:
        state, rate = f"{port['state']}, {port['physical_state']}", port["rate_gbps"]
        if port["fault"]:
            found.append(f"{name} is {state}, not ACTIVE, LinkUp: {port['fault']}")
        elif rate_gbps and rate is not None and rate < rate_gbps:
            found.append(
                f"{name} has trained at {rate} Gb/s, not at {rate_gbps}: reseat or replace the"
                " cable, look at the switch's port"
            )
    if ofed and facts["ofed"] != ofed:
        found.append(f"MLNX_OFED {ofed} was expected, found {facts['ofed'] or 'none'}")
    if peer_memory and peer_memory not in facts["peer_memory"]:
        found.append(
            f"{peer_memory} is not loaded: modprobe {peer_memory} says why; after a change of"
            " driver or OFED it has to be built anew"
        )
    told = facts["interfaces"].get(interface)
    if address and (told is None or address not in (told["addresses"] or [])):
        has = ", ".join((told or {}).get("addresses") or []) or "none"
        found.append(f"{interface} was expected to have {address}, found {has}")
    return found


def load_failure(said: str, has_client: bool, module: str) -> str:
    """What modprobe's complaint about a peer memory module means."""
    if re.search(rf"{CLIENT}|[Uu]nknown symbol|Invalid argument|Exec format", said):
        if has_client:
            return (
                f"{module} was built against another OFED than the one that is loaded: build it"
                " anew, after openibd was restarted or the node was rebooted"
            )
        return (
            f"the loaded ib_core has no {CLIENT}, which {module} needs: install MLNX_OFED (method"
            " mlnx_ofed), or leave peer_memory out, and NCCL uses DMA-BUF where kernel and driver"
            " have it"
        )
    if "not found" in said:
        return f"{module} is not there for the running kernel: install the driver, or build it"
    return said.strip() or f"modprobe {module} says nothing"


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "fabric_address_commands": address_commands,
            "fabric_address_files": address_files,
            "fabric_load_failure": load_failure,
            "fabric_network": network_of,
            "fabric_problems": problems,
            "fabric_refusal": refusal,
        }
