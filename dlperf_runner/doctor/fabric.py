"""Check a node's network: facts from fabric_info in, findings out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..catalog.stack import InfiniBand, Stack
from ..core.node import Node
from .findings import Facts, Finding, as_declared, judged


def fabric_findings(node: Node, stack: Stack, facts: Facts) -> Iterator[Finding]:
    """Check one node's interface, and its InfiniBand if the stack declares it."""
    if node.interface:
        yield from _interface(node, facts["interfaces"].get(node.interface))
    if facts["firewall"] is not None:
        yield _firewall(node, facts["firewall"])
    declared = stack.infiniband
    if declared is None:
        return
    again = f"ansible-playbook provision.yml --limit {node.name}"
    yield from _ports(node, declared, facts)
    if declared.version:
        yield as_declared(node.name, "ofed", declared.version, facts["ofed"], again)
    if declared.peer_memory:
        module = declared.peer_memory
        loaded = module in facts["peer_memory"]
        is_optional = module == "nv_peer_mem"
        yield judged(
            node.name,
            "peer memory",
            loaded or (None if is_optional else False),
            f"{module} is loaded",
            "loaded" if loaded else "not loaded",
            "optional; infiniband_peer_memory_archive names its source"
            if is_optional
            else f"modprobe {module}; rebuild it after any change of OFED or the driver",
        )
    unlimited = facts["memlock_unlimited"]
    limit = facts["memlock_kib"]
    found = "unlimited" if unlimited else None if limit is None else f"{limit} KiB"
    hint = f"{again} --tags node_base; InfiniBand must lock memory as user {node.user}"
    yield judged(node.name, "locked memory", unlimited, "unlimited", found, hint)


def _interface(node: Node, told: Facts | None) -> Iterator[Finding]:
    name, interface = node.name, node.interface
    if told is None:
        hint = f"correct dlperf_interface, or bring the interface up (ip link set {interface} up)"
        yield Finding(name, "interface", "failed", interface, "no such interface", hint)
        return
    # A loopback interface reports unknown.
    yield judged(
        name,
        "interface",
        None if told["state"] is None else told["state"] in ("up", "unknown"),
        f"{interface} is up",
        told["state"],
        f"bring it up: ip link set {interface} up; check the cable and the switch",
    )
    addresses = told["addresses"]
    if addresses is not None and None not in addresses and node.address[:1].isdigit():
        yield judged(
            name,
            "address",
            node.address in [address.partition("/")[0] for address in addresses],
            f"{node.address} on {interface}",
            ", ".join(addresses) or "none",
            "correct dlperf_address and dlperf_interface, or assign the address to the interface",
        )


# How to accept all that comes in by an interface, by the service that manages the packet filter.
_OPENED = {
    "ufw": "ufw allow in on {}",
    "firewalld": "firewall-cmd --permanent --zone=trusted --add-interface={},"
    " then firewall-cmd --reload",
}


def _firewall(node: Node, told: Facts) -> Finding:
    """Whether the node's packet filter lets the other nodes in; a rule may be unknown."""
    interface = node.interface or "INTERFACE"
    closed = [
        f"TCP {', '.join(ports)} closed to {address}"
        for address, ports in (told["closed"] or {}).items()
    ]
    more = f" and {len(closed) - 2} more nodes" if len(closed) > 2 else ""
    commands = [_OPENED[service].format(interface) for service in told["services"] or ()]
    return judged(
        node.name,
        "firewall",
        False if closed else None if told["unsure"] else True,
        "open to the other nodes",
        "; ".join(closed[:2]) + more or (None if told["unsure"] else "open"),
        "MPI, NCCL and gloo use ports of the system's choice: "
        + (" or ".join(commands) or f"accept what comes in by {interface} (nft list ruleset)"),
        "warning",
    )


def _ports(node: Node, declared: InfiniBand, facts: Facts) -> Iterator[Finding]:
    name = node.name
    ports = [(device["name"], port) for device in facts["devices"] for port in device["ports"]]
    if not ports:
        hint = "load the card's driver (lspci, modprobe mlx5_ib); run provision.yml"
        yield Finding(name, "rdma ports", "failed", "at least one", "none", hint)
        return
    used = [item for item in ports if item[1]["in_use"]]
    bad = [item for item in used if item[1]["fault"]]
    yield judged(
        name,
        "link state",
        not bad,
        "ACTIVE, LinkUp",
        "; ".join(f"{_name(item)} {_state(item[1])}" for item in bad)
        or ", ".join(f"{_name(item)} {item[1]['state']}" for item in used),
        "; ".join(dict.fromkeys(item[1]["fault"] for item in bad)),
    )
    full = declared.rate_gbps
    for item in used:
        rate = item[1]["rate_gbps"]
        if full is None or item[1]["fault"]:
            continue
        yield judged(
            name,
            "link rate",
            None if rate is None else rate >= full,
            f"{full} Gb/s",
            None if rate is None else f"{_name(item)} {rate} Gb/s {item[1]['speed'] or ''}".strip(),
            "the link trained below its rate: reseat or replace the cable, check the switch",
        )
    for item in used:
        port = item[1]
        if port["link_layer"] == "Ethernet" and not port["fault"]:
            kinds = sorted({str(gid["type"]) for gid in port["gids"]})
            hint = (
                "assign an address to the interface; NCCL_IB_GID_INDEX then selects its RoCE v2 GID"
            )
            found = ", ".join(kinds) or "no GID"
            good = "RoCE v2" in kinds
            yield judged(name, "roce", good, "a RoCE v2 GID", found, hint, "warning")
    told = facts["ibstat"] or {}
    for device, port in used:
        said = told.get(device, {}).get(str(port["port"]))
        if said and said["rate_gbps"] is not None and said["rate_gbps"] != port["rate_gbps"]:
            found = (
                f"{said['rate_gbps']} Gb/s from ibstat, {port['rate_gbps']} Gb/s from the kernel"
            )
            hint = "run the check again: the link is changing its rate"
            yield Finding(name, "ibstat", "warning", "same as the kernel", found, hint)


def _name(item: tuple[str, Any]) -> str:
    return f"{item[0]} port {item[1]['port']}"


def _state(port: Facts) -> str:
    return f"{port['state'] or 'unknown'}, {port['physical_state'] or 'unknown'}"
