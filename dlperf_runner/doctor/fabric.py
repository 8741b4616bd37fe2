"""Check a node's network: facts from fabric_info in, findings out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .findings import Facts, Finding, Status, as_declared, check_finding

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
    is_named = bool(node.env.get("NCCL_IB_HCA") or declared.rails)
    yield from port_findings(node.name, declared, facts, is_named)
    if declared.version:
        yield as_declared(node.name, "ofed", declared.version, facts["ofed"], again)
        if loaded := stale_driver(facts):
            hint = "restart the drivers: /etc/init.d/openibd restart, or reboot the node"
            yield Finding(node.name, "loaded ofed", "failed", facts["ofed"], loaded, hint)
    for item in _used(facts):
        yield from _gid(node, item)
        yield from _p_key(node, item)
    yield from _flapping(node.name, facts)
    yield from pcie_finding(node.name, "card", {d["name"]: d["pcie"] for d in facts["devices"]})
    if stack.accelerator == "gpu":
        yield from _bare_metal(node.name, facts)
    if declared.peer_memory:
        yield _gpu_direct(node.name, declared.peer_memory, facts)
    unlimited = facts["memlock_unlimited"]
    limit = facts["memlock_kib"]
    found = "unlimited" if unlimited else None if limit is None else f"{limit} KiB"
    hint = f"{again} --tags node_base; InfiniBand must lock memory as user {node.user}"
    yield check_finding(node.name, "locked memory", unlimited, "unlimited", found, hint)
    if (limit := facts.get("slurmd_memlock_kib")) is not None:
        hint = (
            "its jobs get this limit: LimitMEMLOCK=infinity (systemctl edit slurmd), then restart"
        )
        found, check = f"{limit} KiB", "locked memory of slurmd"
        yield Finding(node.name, check, "warning", "unlimited", found, hint)


def _interface(node: Node, state: Facts | None) -> Iterator[Finding]:
    name, interface = node.name, node.interface
    if state is None:
        hint = f"correct dlperf_interface, or bring the interface up (ip link set {interface} up)"
        yield Finding(name, "interface", "failed", interface, "no such interface", hint)
        return
    # A loopback interface reports unknown.
    is_good = None if state["state"] is None else state["state"] in ("up", "unknown")
    hint = f"bring it up: ip link set {interface} up; check the cable and the switch"
    yield check_finding(name, "interface", is_good, f"{interface} is up", state["state"], hint)
    addresses = state["addresses"]
    if addresses is not None and None not in addresses and node.address[:1].isdigit():
        is_good = node.address in [address.partition("/")[0] for address in addresses]
        expected, found = f"{node.address} on {interface}", ", ".join(addresses) or "none"
        hint = "correct dlperf_address and dlperf_interface, or assign the address to the interface"
        yield check_finding(name, "address", is_good, expected, found, hint)


def _gpu_direct(name: str, module: str, facts: Facts) -> Finding:
    """Check that the cards can read GPU memory: by DMA-BUF, which NCCL prefers, or by a module."""
    found = facts["gpu_direct"]
    hint = f"modprobe {module}; rebuild it after any change of OFED or the driver"
    if not found and module.replace("-", "_") in facts["modules"]:
        hint = (
            f"{module} is loaded, but ib_core does not know it (no /sys/kernel/mm/memory_peers):"
            " it was built for another OFED. Reinstall the driver after OFED, and load it again"
        )
    if module == "nv_peer_mem":
        hint = "optional; infiniband_peer_memory_archive names its source"
    elif facts["peer_memory_client"] is False and module.replace("-", "_") not in facts["modules"]:
        hint = (
            f"this kernel has no interface for {module}, and DMA-BUF needs"
            f" {' and '.join(facts['dma_buf'])}"
        )
    is_good = bool(found) or (None if module == "nv_peer_mem" else False)
    way = found[0] if found else "none: NCCL copies through the host's memory"
    return check_finding(name, "peer memory", is_good, f"DMA-BUF or {module}", way, hint)


def _used(facts: Facts) -> list[Any]:
    """(device, port) of each port that NCCL uses and that is up."""
    ports = [(device["name"], port) for device in facts["devices"] for port in device["ports"]]
    return [item for item in ports if item[1]["in_use"] and not item[1]["fault"]]


def _gid(node: Node, item: Any) -> Iterator[Finding]:
    """Check the GID that NCCL_IB_GID_INDEX names: the tables of ports differ, and change."""
    index, port = str(node.env.get("NCCL_IB_GID_INDEX", "")), item[1]
    if port["link_layer"] != "Ethernet" or not index.isdigit():
        return
    table = port["gid_table"] or {}
    gid, kind = table.get(index) or (None, None)
    expected = f"a routable RoCE v2 GID at {index} (NCCL_IB_GID_INDEX)"
    others = ", ".join(n for n, (gid, kind) in sorted(table.items()) if _is_good(gid, kind))
    hint = (
        "leave NCCL_IB_GID_INDEX out of dlperf_env: NCCL 2.21 and newer choose it for each port;"
        f" of this port, {others or 'none'} would do"
    )
    found = f"{_name(item)}: {gid}, {kind or 'unknown type'}" if gid else f"{_name(item)}: none"
    # Within one network segment a link-local address may do.
    status: Status = "warning" if gid and kind == "RoCE v2" else "failed"
    yield check_finding(node.name, "pinned gid", _is_good(gid, kind), expected, found, hint, status)


def _is_good(gid: str | None, kind: str | None) -> bool:
    return bool(gid) and kind == "RoCE v2" and not str(gid).startswith("fe80")


def _p_key(node: Node, item: Any) -> Iterator[Finding]:
    """Check the P_Key of InfiniBand that NCCL uses: a limited member reaches full members only."""
    keys, index = item[1]["pkeys"], str(node.env.get("NCCL_IB_PKEY", 0))
    if item[1]["link_layer"] != "InfiniBand" or not keys or not index.isdigit():
        return
    key = keys[int(index)] if int(index) < len(keys) else None
    is_good = bool(key) and int(str(key), 16) & 0x8000 != 0
    expected = f"full membership at index {index} (NCCL_IB_PKEY)"
    full = [str(n) for n, each in enumerate(keys) if each and int(each, 16) & 0x8000]
    hint = (
        "make the node a full member of its partition in the subnet manager (partitions.conf), or"
        f" set NCCL_IB_PKEY in dlperf_env to an index that is ({', '.join(full) or 'none here'})"
    )
    found = f"{_name(item)} has {key or 'none'}"
    yield check_finding(node.name, "p_key", is_good, expected, found, hint)


def _flapping(name: str, facts: Facts) -> Iterator[Finding]:
    """Report links that went down more than once, or that count errors."""
    bad = []
    for item in _used(facts):
        counts = item[1]["counters"] or {}
        # It went down once when the switch or the cable was set up.
        many = {key: n for key, n in counts.items() if key != "link_downed" or (n or 0) > 1}
        if many:
            bad.append(f"{_name(item)} {', '.join(f'{k} {n}' for k, n in sorted(many.items()))}")
    if bad:
        hint = (
            "clear the counters (perfquery -R), run, and look again: if they grow, reseat or"
            " replace the cable or transceiver, and check the switch's port"
        )
        yield Finding(name, "link errors", "warning", "none", "; ".join(bad), hint)


PCIE_SPEEDS = {"speed": "{:g} GT/s", "generation": "generation {:g}"}


def pcie_finding(name: str, what: str, links: Facts, speed: str = "speed") -> Iterator[Finding]:
    """Compare the PCIe links of cards with what the cards can. `speed`: `generation` for GPUs."""
    bad = []
    for device, link in links.items():
        for key, text in (("width", "x{:g}"), (speed, PCIE_SPEEDS[speed])):
            now, most = (link or {}).get(key), (link or {}).get(f"max_{key}")
            if now and most and now < most:
                bad.append(f"{device} {text.format(now)} of {text.format(most)}")
    readable = [link for link in links.values() if link and link["width"]]
    if bad or readable:
        hint = (
            "reseat the card and its riser, look for AER errors in the kernel log, and check the"
            " slot's generation and bifurcation in the firmware's setup"
        )
        found = "; ".join(bad) or "they do"
        expected = f"each {what} has the width and {speed} that it can"
        yield check_finding(name, f"pcie of {what}s", not bad, expected, found, hint, "warning")


def _bare_metal(name: str, facts: Facts) -> Iterator[Finding]:
    """Report ACS and address translation on bare metal: they send traffic between devices through
    the processor, which slows NCCL or hangs it (NVIDIA/nccl#1737, #2079, #667)."""
    if bridges := facts["acs"]:
        found = f"on {len(bridges)} PCI bridges, first {bridges[0]}"
        hint = (
            "turn ACS off in the firmware's setup, or for this boot: setpci -s BRIDGE"
            " ECAP_ACS+6.w=0 on each. Only virtual machines need it"
        )
        yield Finding(name, "acs", "warning", "off on bare metal", found, hint)
    if translating := [kind for kind in facts["iommu"] or () if kind.startswith("DMA")]:
        hint = "boot the kernel with iommu=pt, or turn the IOMMU off in the firmware's setup"
        found = f"it translates ({', '.join(translating)})"
        yield Finding(name, "iommu", "warning", "off or passthrough on bare metal", found, hint)


def stale_driver(facts: Facts) -> str:
    """The version of a loaded mlx5_core that is not the installed MLNX_OFED's (5.0-2.1.8 is that of
    5.0-2.1.8.0); empty if it is, or if the module is not loaded."""
    loaded = str(facts["modules"].get("mlx5_core") or "")
    return loaded if facts["ofed"] and not facts["ofed"].startswith(loaded) else ""


def port_findings(
    name: str, declared: InfiniBand, facts: Facts, is_named: bool
) -> Iterator[Finding]:
    """Check the ports that NCCL uses, their links and rates. `is_named`: the inventory or the stack
    names them."""
    ports = [(device["name"], port) for device in facts["devices"] for port in device["ports"]]
    if not ports:
        hint = (
            "load the card's driver (lspci, modprobe mlx5_ib); run provision.yml. If the nodes have"
            " Ethernet only: dlperf_stack_overrides: {infiniband: null}"
        )
        yield Finding(name, "rdma ports", "failed", "at least one", "none", hint)
        return
    used = [item for item in ports if item[1]["in_use"]]
    yield from _rails(name, ports, used, facts["missing_rails"], is_named)
    if not is_named:
        yield from _slow_others(name, ports, used, declared)
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


def _slow_others(
    name: str, ports: list[Any], used: list[Any], declared: InfiniBand
) -> Iterator[Finding]:
    """Report slow links of ports that NCCL takes, too, because nothing names its rails."""
    others = [item for item in ports if item not in used and not item[1]["fault"]]
    rates = [finding for item in others for finding in _rate(name, item, declared)]
    slow = [finding for finding in rates if finding.status == "failed"]
    if slow:
        found, expected = "; ".join(each.found for each in slow), slow[0].expected
        hint = (
            "NCCL uses them, too: replace the cable, or name the rails without them (dlperf_env:"
            " {NCCL_IB_HCA: ...}, or infiniband.rails in dlperf_stack_overrides)"
        )
        yield Finding(name, "other link rates", "warning", expected, found, hint)


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
