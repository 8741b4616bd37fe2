"""Check a node's GPUs before their speed is trusted: facts from gpu_info in, findings
out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .fabric import pcie_finding
from .findings import Facts, Finding, Status, as_declared, check_finding

# Slurm's prolog runs this module without the rest of the package.
if TYPE_CHECKING:
    from ..catalog.stack import Stack
    from ..core.node import Node

# Why nvidia-smi gives no answer -> what to do.
SILENCE = {
    "no_nvidia_smi": "install the driver: ansible-playbook provision.yml --tags nvidia_driver",
    "operators_driver": "the driver is that of NVIDIA's GPU Operator, which programs of the node"
    " cannot use: install one on the node, and tell the operator (driver.enabled=false)",
    "no_amdgpu": "load AMD's driver (modprobe amdgpu), and look for amdgpu in the kernel log",
    "no_driver": "the driver is not loaded: check dkms status, modprobe nvidia, or reboot",
    "version_mismatch": "the installed driver is not the loaded one: reboot the node",
    "gpu_lost": "reboot the node; if the GPU is lost again, reseat or replace it",
    "no_devices": "look for the GPUs on the bus (lspci) and check the kernel log",
    "timeout": "the driver hangs: check the kernel log, then reboot the node",
    "no_permission": "give Ansible's become user access to /dev/nvidia*",
}
# Faults of the hardware or the driver; most other numbers are caused by the program that ran.
# https://docs.nvidia.com/deploy/xid-errors/
FATAL_XID = frozenset({48, 62, 63, 64, 74, 79, 92, 94, 95, 109, 119, 120, 122, 123, 136, 140})
# Those of NVLink 5, and of NVSwitches from 10000 on (SXid), say in their message whether they are.
LINK_XID = frozenset({*range(144, 151)})
SXID = 10000
# Reasons that make a GPU slower than it should be and that nobody chose.
SLOWED = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
SERVICE = "nvidia-fabricmanager"
# What nvidia-smi says of a fabric's health where nothing is wrong.
WELL = ("Healthy", "Not Supported")
CHOSEN = ("sw_power_cap", "sync_boost", "applications_clocks_setting", "display_clocks_setting")


def gpu_findings(node: Node, stack: Stack, facts: Facts) -> Iterator[Finding]:
    """Check one node that has GPUs."""
    name, gpus, error = node.name, facts["gpus"], facts["error"]
    if error:
        hint = SILENCE.get(error["kind"], "run nvidia-smi on the node and read its message")
        found = f"{error['kind']}: {error['message']}"
        program = "amdgpu" if facts["is_amd"] else "nvidia-smi"
        yield Finding(name, program, "failed", "it answers", found, hint)
    yield from _versions(node, stack, facts)
    if not gpus:
        return
    count = len(gpus)
    expected = f"{node.devices_per_node} (dlperf_devices_per_node)"
    hint = (
        "a GPU is missing: look for it with lspci and in the kernel log; or set the actual number"
        " in the inventory"
    )
    is_good = count >= node.devices_per_node
    yield check_finding(name, "gpu count", is_good, expected, count, hint)
    if facts["pci"] is not None and len(facts["pci"]) != count:
        seen = {gpu["bus_id"] for gpu in gpus}
        missing = ", ".join(sorted(set(facts["pci"]) - seen)) or "none"
        expected = f"{len(facts['pci'])}, the number on the bus"
        found = f"{count}; the driver does not see {missing}"
        hint = "look for these addresses in the kernel log; reseat or replace the GPU"
        yield Finding(name, "gpus on the bus", "failed", expected, found, hint)
    models = sorted({str(gpu["model"]) for gpu in gpus})
    wanted = stack.gpu.models if stack.gpu else ()
    fitting = dict.fromkeys([node.accelerator, *wanted])
    is_good = len(models) == 1 and models[0] in fitting
    hint = "change dlperf_accelerator or dlperf_stack of this node, or exclude the node"
    yield check_finding(name, "gpu model", is_good, " or ".join(fitting), ", ".join(models), hint)
    if corrupted := facts["inforom"]:
        hint = "its record of bad memory is lost: reboot the node; if it stays, replace the GPU"
        found = f"corrupted: {', '.join(corrupted)}"
        yield Finding(name, "infoROM", "warning", "readable", found, hint)
    yield from _health(name, gpus)
    yield from _fabric(name, facts)
    yield from pcie_finding(name, "GPU", _links(gpus, facts["pcie"] or {}), "generation")
    yield from _speed(name, gpus, facts["is_amd"])
    if not facts["is_amd"]:
        yield _xid(name, facts["xid"])


def _links(gpus: list[Any], links: Facts) -> Facts:
    """The PCIe links with their generations, which should be those of the node's best slot. The
    host's maximum of nvidia-smi is no measure (NVIDIA/k8s-test-infra#692)."""
    generations = {gpu["bus_id"]: gpu.get("pcie_generation") for gpu in gpus}
    best = max(filter(None, generations.values()), default=None)
    return {
        bus: link and {**link, "generation": generations.get(bus), "max_generation": best}
        for bus, link in links.items()
    }


def _versions(node: Node, stack: Stack, facts: Facts) -> Iterator[Finding]:
    again = f"ansible-playbook provision.yml --limit {node.name}"
    if stack.driver:
        yield as_declared(node.name, "driver", stack.driver.version, facts["driver"], again)
        running = facts["driver_running"]
        if facts["driver"] and running and running != facts["driver"]:
            hint = "reboot the node: the installed driver is not the loaded one"
            yield Finding(node.name, "loaded driver", "failed", facts["driver"], running, hint)
    elif stack.rocm and stack.rocm.driver:
        wanted = f"AMD's module of driver {stack.rocm.driver}"
        found = facts["driver"] or "the kernel's own amdgpu"
        hint = f"reboot the node, or {again} -e dlperf_reboot=true"
        yield check_finding(node.name, "driver", bool(facts["driver"]), wanted, found, hint)
    elif "driver" in node.adopted and stack.cuda:
        yield _adopted_driver(node.name, stack.cuda.version, facts["driver"], facts["driver_cuda"])
    declared = {"cuda": stack.cuda, "cudnn": stack.cudnn, "nccl": stack.nccl, "rocm": stack.rocm}
    for check, release in declared.items():
        if release:
            yield as_declared(node.name, check, release.version, facts[check], again)
    if kernel := facts["next_kernel"]:
        expected, found = "a driver's module for the newest kernel", f"{kernel} has none"
        hint = (
            f"if the node boots it, no GPU works: install linux-headers-{kernel} (on RHEL"
            f" kernel-devel-{kernel}; dkms then builds the module), or with Ubuntu's signed modules"
            f" linux-modules-nvidia-...-{kernel}"
        )
        yield Finding(node.name, "next kernel", "warning", expected, found, hint)
    if "nouveau" in facts["modules"]:
        hint = "blacklist nouveau and reboot the node"
        yield Finding(node.name, "nouveau", "failed", "not loaded", "loaded", hint)


def _adopted_driver(name: str, cuda: str, driver: str | None, native: str | None) -> Finding:
    """Check that a driver that the node keeps runs programs of the stack's CUDA."""
    # Not on nodes, where this module runs alone and no driver is adopted.
    from ..provision.adoption import support_of

    expected = f"a driver for CUDA {cuda}"
    found = f"{driver or 'no driver'}, for CUDA {native or 'unknown'}"
    if native and support_of(native, cuda) == "limited":
        hint = "programs run, but PTX is not compiled: compare only with runs on this driver"
        return Finding(name, "driver", "warning", expected, found, hint)
    is_good = support_of(native, cuda) == "full" if native else None
    hint = "update the node's driver, or leave driver out of dlperf_adopt"
    return check_finding(name, "driver", is_good, expected, found, hint)


def _by_gpu(gpus: list[Any], problem: Any) -> str:
    """`GPU 3: 2 uncorrected; GPU 5: ...` from `problem` of each GPU; empty if there is none."""
    problems = ((gpu["index"], problem(gpu)) for gpu in gpus)
    return "; ".join(
        f"GPU {'?' if index is None else index}: {text}" for index, text in problems if text
    )


def _health(name: str, gpus: list[Any]) -> Iterator[Finding]:
    unread = _by_gpu(
        gpus, lambda gpu: ", ".join(f"{k} {v}" for k, v in sorted(gpu["errors"].items()))
    )
    hint = "reboot the node; if the error persists, replace the GPU"
    yield check_finding(name, "gpu answers", not unread, "values", unread or "values", hint)
    if failed := _by_gpu(gpus, _broken_memory):
        hint = (
            "reset the GPU or reboot the node to repair the memory; if that fails, replace the GPU"
        )
        yield Finding(name, "ecc", "failed", "no uncorrected error", failed, hint)
    elif worn := _by_gpu(gpus, _worn_memory):
        hint = "errors from earlier boots, or a changed ECC mode: keep watching this GPU"
        yield Finding(name, "ecc", "warning", "no uncorrected error", worn, hint)
    else:
        has_ecc = any(gpu["ecc"]["enabled"] is not None for gpu in gpus)
        found = "none" if has_ecc else "these GPUs have no ECC"
        yield Finding(name, "ecc", "ok", "no uncorrected error", found)
    if due := _by_gpu(gpus, lambda gpu: gpu.get("recovery") or ""):
        hint = (
            "end all work on the node, then do what the driver asks for: reset the GPU (nvidia-smi"
            " --gpu-reset -i INDEX), or reboot the node. Until then programs fail on this GPU"
        )
        yield Finding(name, "gpu recovery", "failed", "nothing to do", due, hint)
    if mig := _by_gpu(gpus, lambda gpu: "MIG is on" if gpu["mig"] else ""):
        hint = "nvidia-smi -mig 0: the published tests used whole GPUs"
        yield Finding(name, "mig", "failed", "off", mig, hint)


def _broken_memory(gpu: Any) -> str:
    volatile, pages, rows = gpu["ecc"]["volatile"], gpu["retired_pages"], gpu["remapped_rows"] or {}
    errors = volatile["uncorrected"]
    faults = [f"{errors} uncorrected since boot" if errors else ""]
    faults.append("pages pending retirement" if pages["pending"] else "")
    faults.append("row remapping failed" if rows.get("failure") else "")
    faults.append("rows pending remapping" if rows.get("pending") else "")
    return ", ".join(filter(None, faults))


def _worn_memory(gpu: Any) -> str:
    ecc, count = gpu["ecc"], gpu["ecc"]["aggregate"]["uncorrected"]
    faults = [f"{count} uncorrected over its lifetime" if count else ""]
    faults.append("ECC is off" if ecc["enabled"] is False else "")
    is_changing = None not in (ecc["enabled"], ecc["pending"]) and ecc["enabled"] != ecc["pending"]
    faults.append("ECC mode changes at the next boot" if is_changing else "")
    return ", ".join(filter(None, faults))


def _fabric(name: str, facts: Facts) -> Iterator[Finding]:
    """Check that the GPUs are registered with their NVLink fabric, and who registers them."""
    if manager := facts["fabric_manager"]:
        hint = f"systemctl enable --now {SERVICE}; its log is /var/log/fabricmanager.log"
        found = {True: "active", False: "not active", None: None}[manager["is_active"]]
        yield check_finding(name, "fabric manager", manager["is_active"], "active", found, hint)
        driver, version = facts["driver_running"] or facts["driver"], manager["version"]
        if version != driver:
            hint = "install the driver's own version: provision.yml --tags nvidia_driver"
            yield Finding(
                name, "fabric manager version", "failed", str(driver), version or "none", hint
            )
    if imex := facts["imex"]:
        yield _imex(name, imex)
    if bad := _by_gpu(facts["gpus"], _unregistered):
        expected = "Completed, Success"
        hint = (
            f"without it CUDA fails with error 802, or NVLink carries nothing: restart {SERVICE},"
            " read /var/log/fabricmanager.log, then reset the GPUs (nvidia-smi -r). With NVLink 5"
            " it needs nvlsm and the modules mlx5_ib and ib_umad; on NVL72 the switches' manager"
            " (NMX) must know the node"
        )
        yield Finding(name, "nvlink fabric", "failed", expected, bad, hint)
    elif any(gpu["fabric"] for gpu in facts["gpus"]):
        yield Finding(name, "nvlink fabric", "ok", "Completed, Success", "Completed, Success")
    if facts["nvswitches"] or any(gpu["fabric"] for gpu in facts["gpus"]):
        # A card that only shows pictures may be beside the board.
        models = Counter(gpu["model"] for gpu in facts["gpus"]).most_common(1)
        board = {f"GPU{n}" for n, gpu in enumerate(facts["gpus"]) if gpu["model"] == models[0][0]}
        yield from _nvlinks(name, board, (facts["topology"] or {}).get("links") or {})


def _nvlinks(name: str, board: set[str], links: Facts) -> Iterator[Finding]:
    """Compare the NVLinks between each two GPUs of a board whose switches connect all alike:
    `NV18`. GPUs compute without them, too, and NCCL is then slow."""
    kinds = {(a, b): links[a][b] for a in links for b in links[a] if {a, b} <= board}
    full = max((kind for kind in kinds.values() if kind[:2] == "NV"), key=_width, default="NV")
    if bad := [f"{a}-{b} {kind}" for (a, b), kind in kinds.items() if kind != full and a < b]:
        hint = (
            "look for NVLink in the kernel log, for NVreg_NvLinkDisable in /etc/modprobe.d, and at"
            f" nvidia-smi nvlink -s; restart {SERVICE}, then reset the GPUs (nvidia-smi -r)"
        )
        found = ", ".join(bad[:8]) + (f" and {len(bad) - 8} more" if len(bad) > 8 else "")
        yield Finding(name, "nvlinks", "failed", f"{full} between all GPUs", found, hint)


def _width(kind: str) -> int:
    return int(kind[2:] or 0)


def _imex(name: str, imex: Any) -> Finding:
    """Check that the node shares GPU memory with the other nodes of its NVLink domain."""
    is_up = imex["domain"] in (None, "UP")
    is_good = None if imex["is_active"] is None else imex["is_active"] and imex["channels"] > 0
    found = f"{'active' if imex['is_active'] else 'not active'}, {imex['channels']} channels"
    if not is_up:
        found += f", domain {imex['domain']}, not ready: {', '.join(imex['missing']) or 'unknown'}"
    hint = (
        "set dlperf_nvlink_domain to the name of the node's rack and provision all its nodes (role"
        " imex), or write them into /etc/nvidia-imex/nodes_config.cfg, the same on each, and"
        " restart nvidia-imex. Without it NCCL reaches other nodes by the network only, or fails"
    )
    expected = "active, with a channel, domain UP"
    return check_finding(name, "imex", is_good and is_up, expected, found, hint)


def _unregistered(gpu: Any) -> str:
    """The reason why a GPU is not in its NVLink fabric: `In Progress`, `Insufficient Resources`."""
    fabric = gpu["fabric"]
    if not fabric:
        return ""
    bad = [fabric["state"] if fabric["state"] != "Completed" else ""]
    bad.append(fabric["status"] if fabric["status"] not in (None, "Success") else "")
    bad.append(f"health {fabric['health']}" if fabric["health"] not in (None, *WELL) else "")
    # Boards of their own (HGX) have zeros; on NVL72 they mean that no domain has the GPU.
    is_lost = re.search(r"\bGB\d", str(gpu["model"])) and not (fabric["cluster_uuid"] or "").strip(
        "0-"
    )
    bad.append("no ClusterUUID" if is_lost else "")
    return ", ".join(filter(None, bad))


def compute_finding(name: str, result: Facts) -> Finding:
    """Judge the proof that every GPU creates a CUDA context and runs a kernel."""
    failed = result.get("failed")
    # Another program has the GPUs: the node may still be well.
    is_busy = result.get("kind") in ("busy", "memory")
    found = failed or f"{result.get('count') or 'they'} did"
    hint = "the message says what to do; until then no job can run on this node"
    is_good = None if failed and is_busy else not failed
    return check_finding(name, "gpu compute", is_good, "a kernel ran on every GPU", found, hint)


def _speed(name: str, gpus: list[Any], is_amd: bool) -> Iterator[Finding]:
    if capped := _by_gpu(gpus, _power_cap):
        tool = "amd-smi reset -o" if is_amd else "nvidia-smi -pl <default>"
        hint = f"run {tool}, unless this limit was set on purpose"
        yield Finding(name, "power limit", "warning", "the default", capped, hint)
    if is_amd:
        return  # the kernel tells neither reasons nor processes

    def reasons(gpu: Any, among: tuple[str, ...]) -> str:
        return ", ".join(reason for reason in gpu["throttle_reasons"] or () if reason in among)

    slowed = _by_gpu(gpus, lambda gpu: reasons(gpu, SLOWED))
    chosen = _by_gpu(gpus, lambda gpu: reasons(gpu, CHOSEN))
    is_known = any(gpu["throttle_reasons"] is not None for gpu in gpus)
    hint = "check cooling and power: runs are slower than they should be until this is fixed"
    if slowed or not chosen:
        is_good, found = (not slowed, slowed or "none") if is_known else (None, slowed or None)
        yield check_finding(name, "throttling", is_good, "none", found, hint)
    else:
        hint = "the GPU runs at its power or clock limit: see nvidia-smi -q -d CLOCK,POWER"
        yield Finding(name, "throttling", "warning", "none", chosen, hint)
    if off := _by_gpu(gpus, lambda gpu: "off" if gpu["persistence"] is False else ""):
        hint = "systemctl enable --now nvidia-persistenced: without it the first run starts slowly"
        yield Finding(name, "persistence", "warning", "on", off, hint)
    unseen = all(gpu["processes"] is None for gpu in gpus)
    busy = _by_gpu(gpus, lambda gpu: ", ".join(map(_process, gpu["processes"] or ())))
    drawn = all(p["type"] == "G" for gpu in gpus for p in gpu["processes"] or ())
    is_good, found = (None, None) if unseen else (not busy, busy or "none")
    hint = "end them, or wait for them: they share the GPUs' time and memory"
    status: Status = "warning" if drawn else "failed"
    yield check_finding(name, "other processes", is_good, "none", found, hint, status)


def _process(process: Any) -> str:
    memory = process["memory_mib"]
    return f"pid {process['pid']} {process['name']}" + (f" {memory} MiB" if memory else "")


def _power_cap(gpu: Any) -> str:
    limit, default = gpu["power_limit_w"], gpu["power_default_limit_w"]
    if limit is None or default is None or limit >= default:
        return ""
    return f"{limit:g} W of {default:g} W"


def _is_fatal(error: Any) -> bool:
    is_link = error["xid"] in LINK_XID or error["xid"] >= SXID
    return error["xid"] in FATAL_XID or (
        is_link and bool(re.search(r"\bFatal\b", error["message"]))
    )


def _xid(name: str, errors: list[Any] | None) -> Finding:
    if errors is None:
        hint = "the kernel log could not be read: look for Xid in dmesg as root"
        return Finding(name, "xid errors", "warning", "none since boot", "unknown", hint)
    text = "; ".join(
        f"{e['bus_id']} {'S' if e['xid'] >= SXID else ''}Xid {e['xid']} ({e['count']} times)"
        f" {e['message']}"
        for e in errors
    )
    if any(map(_is_fatal, errors)):
        hint = "a fault of the GPU or its links: reboot the node; if it recurs, replace the GPU"
        return Finding(name, "xid errors", "failed", "none since boot", text, hint)
    hint = "usually caused by a faulty program; a reboot clears the record"
    return check_finding(
        name, "xid errors", not errors, "none since boot", text or "none", hint, "warning"
    )
