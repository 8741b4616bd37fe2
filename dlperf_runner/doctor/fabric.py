"""Check a node's network: facts from fabric_info in, findings out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .findings import Facts, Finding, as_declared, check_finding

# Slurm's prolog runs this module without the rest of the package.
if TYPE_CHECKING:
    from ..catalog.stack import InfiniBand, Stack
    from ..core.node import Node


def fabric_findings(node: Node, stack: Stack, facts: Facts) -> Iterator[Finding]:
    """Check one node's interface, and its InfiniBand if the stack declares it."""
    if node.interface:
        yield from _interface(node, facts["interfaces"].get(node.interface))
    declared = stack.infiniband
    if declared is None:
        return
    again = f"ansible-playbook provision.yml --limit {node.name}"
    yield from _ports(node, declared, facts)
    if declared.version:
        yield as_declared(node.name, "ofed", declared.version, facts["ofed"], again)
        loaded = facts["modules"].get("mlx5_core")
        if facts["ofed"] and loaded and not facts["ofed"].startswith(loaded):
            hint = "restart the drivers: /etc/init.d/openibd restart, or reboot the node"
            yield Finding(node.name, "loaded ofed", "failed", facts["ofed"], loaded, hint)
    if declared.peer_memory:
        yield _gpu_direct(node.name, declared.peer_memory, facts)
    unlimited = facts["memlock_unlimited"]
    limit = facts["memlock_kib"]
    found = "unlimited" if unlimited else None if limit is None else f"{limit} KiB"
    hint = f"{again} --tags node_base; InfiniBand must lock memory as user {node.user}"
    yield check_finding(node.name, "locked memory", unlimited, "unlimited", found, hint)


def _interface(node: Node, told: Facts | None) -> Iterator[Finding]:
    name, interface = node.name, node.interface
    if told is None:
        hint = f"correct dlperf_interface, or bring the interface up (ip link set {interface} up)"
        yield Finding(name, "interface", "failed", interface, "no such interface", hint)
        return
    # A loopback interface reports unknown.
    is_good = None if told["state"] is None else told["state"] in ("up", "unknown")
    hint = f"bring it up: ip link set {interface} up; check the cable and the switch"
    yield check_finding(name, "interface", is_good, f"{interface} is up", told["state"], hint)
    addresses = told["addresses"]
    if addresses is not None and None not in addresses and node.address[:1].isdigit():
        is_good = node.address in [address.partition("/")[0] for address in addresses]
        expected, found = f"{node.address} on {interface}", ", ".join(addresses) or "none"
        hint = "correct dlperf_address and dlperf_interface, or assign the address to the interface"
        yield check_finding(name, "address", is_good, expected, found, hint)


def _gpu_direct(name: str, module: str, facts: Facts) -> Finding:
    """Check that the cards can read GPU memory: by DMA-BUF, which NCCL prefers, or by a module."""
    found = facts["gpu_direct"]
    hint = f"modprobe {module}; rebuild it after any change of OFED or the driver"
    if module == "nv_peer_mem":
        hint = "optional; infiniband_peer_memory_archive names its source"
    elif facts["peer_memory_client"] is False:
        hint = (
            f"this kernel has no interface for {module}, and DMA-BUF needs"
            f" {' and '.join(facts['dma_buf'])}"
        )
    is_good = bool(found) or (None if module == "nv_peer_mem" else False)
    way = found[0] if found else "none: NCCL copies through the host's memory"
    return check_finding(name, "peer memory", is_good, f"DMA-BUF or {module}", way, hint)


def _ports(node: Node, declared: InfiniBand, facts: Facts) -> Iterator[Finding]:
    name = node.name
    ports = [(device["name"], port) for device in facts["devices"] for port in device["ports"]]
    if not ports:
        hint = "load the card's driver (lspci, modprobe mlx5_ib); run provision.yml"
        yield Finding(name, "rdma ports", "failed", "at least one", "none", hint)
        return
    used = [item for item in ports if item[1]["in_use"]]
    is_named = bool(node.env.get("NCCL_IB_HCA") or declared.rails)
    yield from _rails(name, ports, used, facts["missing_rails"], is_named)
    bad = [item for item in used if item[1]["fault"]]
    found = "; ".join(f"{_name(item)} {_state(item[1])}" for item in bad)
    found = found or ", ".join(f"{_name(item)} {item[1]['state']}" for item in used)
    hint = "; ".join(dict.fromkeys(item[1]["fault"] for item in bad))
    yield check_finding(name, "link state", not bad, "ACTIVE, LinkUp", found, hint)
    for item in used:
        if not item[1]["fault"]:
            yield from _rate(name, item, declared)
    for item in used:
        port = item[1]
        if port["link_layer"] == "Ethernet" and not port["fault"]:
            kinds = port["gids"]
            hint = (
                "assign an address to the interface; NCCL_IB_GID_INDEX then selects its RoCE v2 GID"
            )
            found = ", ".join(kinds) or "no GID"
            good = "RoCE v2" in kinds
            yield check_finding(name, "roce", good, "a RoCE v2 GID", found, hint, "warning")


def _rails(
    name: str, ports: list[Any], used: list[Any], missing: list[str], is_named: bool
) -> Iterator[Finding]:
    """Check that the named ports exist. If none is named, report other ports that are down."""
    if missing:
        found = f"no port {', '.join(missing)}, only {', '.join(map(_name, ports))}"
        hint = "look for the card (lspci, dmesg), or correct NCCL_IB_HCA or infiniband.rails"
        yield Finding(name, "rails", "failed", "a port for each name", found, hint)
    down = [item for item in ports if item not in used and item[1]["fault"]]
    others = [item for item in ports if item not in used and not item[1]["fault"]]
    if down and not is_named:
        found = "; ".join(f"{_name(item)} {_state(item[1])}" for item in down)
        used_names = ", ".join(map(_name, [*used, *others])) or "none"
        hint = (
            f"NCCL uses the ports that are ACTIVE ({used_names}). Name those that it must have"
            " (dlperf_env: {NCCL_IB_HCA: ...}, or infiniband.rails in dlperf_stack_overrides)"
        )
        yield Finding(name, "other links", "warning", "ACTIVE, or rails named", found, hint)


def _rate(name: str, item: Any, declared: InfiniBand) -> Iterator[Finding]:
    """Compare a link with the full rate of its kind: Ethernet's is not InfiniBand's."""
    port = item[1]
    is_roce, rate = port["link_layer"] == "Ethernet", port["rate_gbps"]
    key = "roce_rate_gbps" if is_roce else "rate_gbps"
    full = (declared.roce_rate_gbps or port["full_rate_gbps"]) if is_roce else declared.rate_gbps
    found = None if rate is None else f"{_name(item)} {rate} Gb/s {port['speed'] or ''}".strip()
    hint = (
        "reseat or replace the cable, check the switch's port; if this is the link's full rate:"
        f" dlperf_stack_overrides: {{infiniband: {{{key}: {rate or '...'}}}}}"
    )
    if full is None and is_roce:
        hint = f"install ethtool on the node, or set infiniband.{key} (dlperf_stack_overrides)"
        yield check_finding(name, "link rate", None, "the full rate of the card", found, hint)
    elif full is not None:
        good = None if rate is None else rate >= full
        yield check_finding(name, "link rate", good, f"{full} Gb/s", found, hint)


def _name(item: tuple[str, Any]) -> str:
    return f"{item[0]} port {item[1]['port']}"


def _state(port: Facts) -> str:
    return f"{port['state'] or 'unknown'}, {port['physical_state'] or 'unknown'}"
