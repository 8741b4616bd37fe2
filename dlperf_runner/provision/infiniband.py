"""Checks of the role infiniband, the interface's configuration files, and the links' problems."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

# The first version of NVIDIA's driver that includes nvidia-peermem.
PEERMEM_SINCE = 470
CLIENT = "ib_register_peer_memory_client"


def refusal(method: str, peer_memory: str, driver: str) -> str:
    """Why a stack's InfiniBand settings do not work with its driver; empty if they do."""
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
    known = {"netplan": "netplan", "ifup": "ifupdown", "networkctl": "networkd"}
    return next((system for program, system in known.items() if program in names), "")


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


def problems(
    facts: Mapping[str, Any],
    interface: str,
    rates_gbps: Mapping[str, int],
    ofed: str,
    peer_memory: str,
    address: str = "",
    has_cards: bool = True,
) -> list[str]:
    """Problems of a node's fabric, each with its remedy; `facts` come from fabric_info.

    `rates_gbps`: the full rate by link layer; 0 stands for unknown.
    Without `has_cards` (a container uses its host's) ports and modules are not checked.
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
            "no InfiniBand or RoCE port was found: check the card (lspci) and its driver"
            " (modprobe mlx5_ib)"
        )
    for name, port in [item for item in ports if item[1]["in_use"]]:
        if port["fault"]:
            state = f"{port['state']}, {port['physical_state']}"
            found.append(f"{name} is {state} instead of ACTIVE, LinkUp: {port['fault']}")
        else:
            found += slow_link(name, port, rates_gbps)
    if has_cards and facts["missing_rails"]:
        found.append(
            f"no port {', '.join(facts['missing_rails'])}, which NCCL_IB_HCA or infiniband.rails"
            f" names; there are {', '.join(name for name, _ in ports) or 'none'}"
        )
    if ofed and facts["ofed"] != ofed:
        found.append(f"MLNX_OFED {ofed} was expected, found {facts['ofed'] or 'none'}")
    elif has_cards and ofed and stale_driver(facts, ofed):
        found.append(
            f"restart needed: MLNX_OFED {ofed} is installed, but the loaded mlx5_core is"
            f" {stale_driver(facts, ofed)}. Allow the restart with -e dlperf_reboot=true, or"
            " restart openibd or the node yourself, then run again"
        )
    if peer_memory and not facts["gpu_direct"]:
        found.append(no_gpu_direct(facts, peer_memory))
    told = facts["interfaces"].get(interface)
    if address and (told is None or address not in (told["addresses"] or [])):
        has = ", ".join((told or {}).get("addresses") or []) or "none"
        found.append(f"{interface} was expected to have {address}, found {has}")
    return found


def slow_link(name: str, port: Mapping[str, Any], rates_gbps: Mapping[str, int]) -> list[str]:
    """A port below the full rate of its kind: an Ethernet port's own is that of its card."""
    is_roce, rate = port["link_layer"] == "Ethernet", port["rate_gbps"]
    full = rates_gbps["Ethernet" if is_roce else "InfiniBand"] or port["full_rate_gbps"]
    if not full or rate is None or rate >= full:
        return []
    key = "roce_rate_gbps" if is_roce else "rate_gbps"
    return [
        f"{name}{' (RoCE)' if is_roce else ''} runs at {rate} Gb/s instead of {full}: reseat or"
        " replace the cable, and check the switch's port. If this is the link's full rate, set"
        f" dlperf_stack_overrides: {{infiniband: {{{key}: {rate}}}}}"
    ]


def stale_driver(facts: Mapping[str, Any], ofed: str) -> str:
    """The version of a loaded mlx5_core that is not the installed MLNX_OFED's (5.0-2.1.8 is that of
    5.0-2.1.8.0); empty if it is, or if the module is not loaded."""
    loaded = str(facts["modules"].get("mlx5_core") or "")
    return "" if facts["ofed"] != ofed or ofed.startswith(loaded) else loaded


def no_gpu_direct(facts: Mapping[str, Any], module: str) -> str:
    """Why the cards cannot read GPU memory, and what to do."""
    lacks = " and ".join(facts["dma_buf"])
    if facts["peer_memory_client"] is False:
        return (
            f"the cards cannot read GPU memory: this kernel has no interface for {module}"
            f" ({CLIENT}), and DMA-BUF needs {lacks}. Provide it, install MLNX_OFED, or do without:"
            " dlperf_stack_overrides: {infiniband: {peer_memory: null}}"
        )
    return (
        f"{module} is not loaded: run modprobe {module} to see why. After a change of driver or"
        f" OFED it must be rebuilt. DMA-BUF, which needs no module, needs {lacks}"
    )


def unaddressed(facts: Mapping[str, Any], interface: str, address: str) -> str:
    """Why an interface will have no address; empty if it has or gets one, or if it is unknown."""
    if not interface or address:
        return ""
    told = facts["interfaces"].get(interface)
    if told is not None and (told["addresses"] is None or told["addresses"]):
        return ""
    state = "has no address" if told else "does not exist yet"
    return (
        f"dlperf_interface is {interface}, which {state}. Set dlperf_interface_address per host,"
        f" such as 10.11.0.2/24, or give {interface} its address yourself"
    )


def load_failure(said: str, has_client: bool, module: str) -> str:
    """Explain modprobe's error about a peer memory module."""
    if re.search(rf"{CLIENT}|[Uu]nknown symbol|Invalid argument|Exec format", said):
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
    if "not found" in said:
        return f"the running kernel has no module {module}: install the driver or build the module"
    return said.strip() or f"modprobe {module} failed without a message"
