"""The checks of the role infiniband on a node: its ports and links, as the doctor judges them, and
what the role has configured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..catalog.stack import InfiniBand
from ..provision.infiniband import CLIENT
from .fabric import port_findings, stale_driver


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
    found = []
    if has_cards:
        declared = InfiniBand(
            rate_gbps=rates_gbps["InfiniBand"] or None,
            roce_rate_gbps=rates_gbps["Ethernet"] or None,
        )
        found += [
            f"{each.check}: {each.found} instead of {each.expected}: {each.hint}"
            for each in port_findings("", declared, facts, is_named=True)
            if each.status == "failed"
        ]
    if ofed and facts["ofed"] != ofed:
        found.append(f"MLNX_OFED {ofed} was expected, found {facts['ofed'] or 'none'}")
    elif has_cards and ofed and stale_driver(facts):
        found.append(
            f"restart needed: MLNX_OFED {ofed} is installed, but the loaded mlx5_core is"
            f" {stale_driver(facts)}. Allow the restart with -e dlperf_reboot=true, or"
            " restart openibd or the node yourself, then run again"
        )
    if has_cards and peer_memory and not facts["gpu_direct"]:
        found.append(no_gpu_direct(facts, peer_memory))
    state = facts["interfaces"].get(interface)
    if address and (state is None or address not in (state["addresses"] or [])):
        has = ", ".join((state or {}).get("addresses") or []) or "none"
        found.append(f"{interface} was expected to have {address}, found {has}")
    return found


def no_gpu_direct(facts: Mapping[str, Any], module: str) -> str:
    """The reason why the cards cannot read GPU memory, and what to do."""
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
