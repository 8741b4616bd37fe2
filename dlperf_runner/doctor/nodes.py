"""Check whether nodes are ready for the benchmarks: facts in, findings out, no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import Any

from ..catalog.holes import known_holes
from ..catalog.stack import Stack
from ..catalog.suites import CONTROLLERS, SYSTEMS, controller
from ..core.node import Node
from ..provision.preflight import sudo_hint
from .fabric import fabric_findings
from .findings import Facts, Finding, Status, check_finding, disk_findings
from .gpu import compute_finding, gpu_findings

# Why there are no results -> what to do.
SILENCE = {
    "no_dcgmi": "install DCGM from NVIDIA's repository (datacenter-gpu-manager, since version 4"
    " datacenter-gpu-manager-4-cuda12 or -cuda13) and start it: systemctl enable --now nvidia-dcgm",
    "timeout": "a GPU may hang: check the kernel log (dmesg), then reboot the node",
    "runtime_error": "check that nvidia-dcgm runs and that nothing else uses the GPUs; see"
    " /var/log/nvidia-dcgm/nvvs.log",
}
# The severity of an error (dcgmlib/dcgm_errors.h) -> what to do; the gravest stands first.
ADVICE = {
    2: "do not use this GPU: take the node out of use and have the GPU repaired or replaced",
    6: "end all work on the node and reset the GPU (nvidia-smi --gpu-reset), or reboot the node",
    4: "collect /var/log/nvidia-dcgm and the output of nvidia-bug-report.sh, and ask the vendor",
    5: "change the node's settings as the message says, then test again",
    1: "the GPU can be used: keep watching it",
}
UNKNOWN = "test this GPU again with nothing else on the node; if it fails again, ask the vendor"
# dcgmi's exit statuses are those of its library, modulo 256.
FAILED = {226: "a test failed", 205: "a GPU must not be used"}


def dcgm_findings(name: str, facts: Facts) -> Iterator[Finding]:
    """Each test that failed, warned or was skipped; else that all passed."""
    level, error, status = facts["level"], facts["error"], facts["exit_status"]
    check, expected = f"dcgm level {level}", f"dcgmi diag -r {level} gives results"
    if error:
        hint = SILENCE.get(error["kind"], f"run dcgmi diag -r {level} on the node")
        yield Finding(name, check, "failed", expected, error["message"], hint)
        return
    found = [finding for test in facts["tests"] if (finding := _finding(name, test))]
    yield from found
    passed = sum(_has(test, "pass") and not _has(test, "fail", "warn") for test in facts["tests"])
    has_failed = any(finding.status == "failed" for finding in found)
    if status and not has_failed:
        hint = f"run dcgmi diag -r {level} on the node and read its messages"
        summary = f"exit status {status}" + (f": {FAILED[status]}" if status in FAILED else "")
        yield Finding(name, check, "failed", "exit status 0", summary, hint)
    elif not has_failed:
        version = f", DCGM {facts['version']}" if facts["version"] else ""
        summary = f"{passed} of {len(facts['tests'])} tests passed{version}"
        yield Finding(name, check, "ok", "every test passes", summary)


def _has(test: Any, *statuses: str) -> bool:
    return any(result["status"] in statuses for result in test["results"])


def _finding(name: str, test: Any) -> Finding | None:
    """The worst results of a test, with the device of each; None if it passed."""
    meanings: dict[str, Status] = {"fail": "failed", "warn": "warning", "skip": "warning"}
    for status, meaning in meanings.items():
        results = [result for result in test["results"] if result["status"] == status]
        messages = [message for result in results for message in result["messages"]]
        if not results or (status == "skip" and not messages):
            continue  # a test that this GPU or this level does not have
        found = "; ".join(dict.fromkeys(map(_result_text, results)))
        severities = [5] if status == "skip" else [message["severity"] for message in messages]
        hint = next((text for number, text in ADVICE.items() if number in severities), UNKNOWN)
        return Finding(name, f"dcgm {test['name']}", meaning, "pass", found, hint)
    return None


def _result_text(result: Any) -> str:
    messages = " ".join(message["text"].strip() for message in result["messages"])
    status = {"skip": "skipped"}.get(result["status"], result["status"])
    return ": ".join(filter(None, (result["devices"], messages or status)))


def adopted_findings(node: Node, facts: Facts) -> Iterator[Finding]:
    """Compare each part with what provisioning recorded on the node, and say what it means."""
    before = facts["recorded"] or {}
    again = f"run ansible-playbook provision.yml --limit {node.name}, which checks and records it"
    for part in node.adopted:
        check, found = f"kept {part}", _text(facts["kept"].get(part))
        if part in facts["problems"]:
            hint = "provisioning refuses the node: do what this says"
            yield Finding(
                node.name, check, "failed", "runs the stack", facts["meanings"][part], hint
            )
        elif part not in before:
            yield Finding(node.name, check, "warning", "recorded by provisioning", found, again)
        else:
            is_same = before[part] == facts["kept"].get(part)
            hint = f"it has changed since provisioning: {again}. Compare only with later runs"
            meaning = facts["meanings"].get(part, found) if is_same else found
            yield check_finding(
                node.name, check, is_same, _text(before[part]), meaning, hint, "warning"
            )


def _text(versions: Mapping[str, Any] | None) -> str:
    """`version 535.161.07, cuda 12.2`; none if there is nothing."""
    parts = [f"{key} {value}" for key, value in (versions or {}).items() if value]
    return ", ".join(parts) or "none"


FREE_MIB = {"cpu": 5 * 1024, "gpu": 20 * 1024}
MAX_SKEW_S = 2.0
PROVISION = "ansible-playbook provision.yml"


def diagnose(
    nodes: Sequence[Node], stacks: Mapping[str, Stack], document: Mapping[str, Any]
) -> list[Finding]:
    """The findings of each node in inventory order, then those of the comparison between nodes.

    `stacks` are those of the nodes, by the nodes' names.
    `document` is what preflight.yml writes: `ansible_core`, and the facts by node, each null or
    with a `failed` message if it could not be gathered.
    """
    findings: list[Finding] = []
    by_node = document["nodes"]
    reached = sum(not facts.get("unreachable") for facts in by_node.values())
    for node in nodes:
        facts = by_node.get(node.name) or {"unreachable": "it was not asked"}
        stack, core = stacks[node.name], document["ansible_core"]
        findings += _of_node(node, stack, facts, core, reached - (node.name in by_node))
    findings += _of_cluster(nodes, by_node)
    return findings


def status_of(findings: Sequence[Finding]) -> Status:
    """The worst status of the findings."""
    found = {finding.status for finding in findings}
    return "failed" if "failed" in found else "warning" if "warning" in found else "ok"


def _of_node(node: Node, stack: Stack, facts: Facts, core: str, others: int) -> Iterator[Finding]:
    if facts.get("unreachable"):
        hint = "check the node's name, address and sshd, and your key (ssh NODE true)"
        yield Finding(node.name, "reached", "failed", "by SSH", facts["unreachable"], hint)
        return
    yield Finding(node.name, "reached", "ok", "by SSH", "yes")
    yield _python(node.name, core, facts.get("pythons") or [], facts.get("health"))
    parts: tuple[tuple[str, Callable[[Node, Stack, Facts], Iterator[Finding]]], ...] = (
        ("health", _health),
        ("gpu", gpu_findings),
        ("fabric", fabric_findings),
        ("dcgm", lambda node, _, part_facts: dcgm_findings(node.name, part_facts)),
        ("adopted", lambda node, _, part_facts: adopted_findings(node, part_facts)),
    )
    for part, check in parts:
        if part == "gpu" and stack.accelerator != "gpu":
            continue
        if part in ("dcgm", "adopted") and facts.get(part) is None:
            continue  # not asked for
        part_facts = facts.get(part)
        if not part_facts or part_facts.get("failed"):
            found = (part_facts or {}).get("failed") or "nothing"
            hint = sudo_hint(found) or "check the node's Python, and that you can become root"
            yield Finding(node.name, f"{part} facts", "failed", "facts", found, hint)
        else:
            yield from check(node, stack, part_facts)
    yield from _holes(node.name, facts)
    if (computed := facts.get("compute")) is not None:
        yield compute_finding(node.name, computed)
    # Compares the node's time with the controller's before and after.
    health = facts.get("health")
    if health and not health.get("failed"):
        yield _clock(node.name, health["time"], facts.get("asked"), facts.get("answered"))
    if (reached := facts.get("firewall")) is not None:
        yield _firewall(node, reached.get("failed"))
    called = (facts.get("ssh_mesh") or {}).get("called")
    for check_name, wanted, hint in (
        ("ssh mesh", _reached(called, others), f"{PROVISION} --tags ssh_mesh"),
        (
            "all-reduce",
            f"a sum over {node.interface or 'the network'}",
            f"{PROVISION} --tags openmpi",
        ),
    ):
        result = facts.get(check_name.replace(" ", "_").replace("-", "_"))
        if result is not None:
            failed = result.get("failed")
            yield check_finding(node.name, check_name, not failed, wanted, failed or "yes", hint)


def _firewall(node: Node, closed: str | None) -> Finding:
    """Check that the other nodes accept connections to ports of the system's choice."""
    way = f"ufw allow in on {node.interface or 'INTERFACE'}"
    zone = (
        f"firewall-cmd --permanent --zone=trusted --add-interface={node.interface or 'INTERFACE'}"
    )
    hint = f"MPI, NCCL and gloo use such ports. On the nodes that close them: {way}, or {zone}"
    found, expected = closed or "open", "the other nodes open to this one"
    return check_finding(node.name, "firewall", not closed, expected, found, hint, "warning")


def _reached(called: int | None, others: int) -> str:
    """The expectation of the mesh check: in a large mesh, a node calls only some of the others."""
    some = called is not None and called < others
    return f"reaches {called} of {others} other nodes" if some else "reaches every other node"


def _python(name: str, core: str, pythons: Sequence[str], health: Facts | None) -> Finding:
    """Check the interpreter that ran the modules; if none ran, those that the node has."""
    ran = health.get("python") if health and not health.get("failed") else None
    found = [ran] if ran else list(pythons)
    shown = ", ".join(found) or "none"
    supported = controller(core)
    if supported is None:
        expected = f"one that ansible-core {core} supports on nodes"
        # An interpreter that ran a module is supported.
        hint = "this ansible-core is newer than this check; see its list of supported targets"
        return check_finding(name, "python", True if ran else None, expected, shown, hint)
    expected = f"{supported}, for ansible-core {core}"
    cores = [other for other, entry in CONTROLLERS.items() if any(map(entry.fits, found))]
    hint = "install python3 on the node"
    if found and cores:
        hint = (
            f"manage it with ansible-core {cores[-1]} (pip install 'ansible-core=={cores[-1]}.*')"
        )
    return check_finding(name, "python", any(map(supported.fits, found)), expected, shown, hint)


def _health(node: Node, stack: Stack, facts: Facts) -> Iterator[Finding]:
    name = node.name
    wanted = [*(SYSTEMS[suite] for suite in stack.suites if suite in SYSTEMS), *stack.systems]
    if wanted:
        hint = (
            f"stack {stack.name} does not support it: choose another (dlperf_stack), or reinstall"
        )
        good = None if facts["system"] is None else facts["system"] in wanted
        yield check_finding(name, "system", good, " or ".join(wanted), facts["system"], hint)
    yield from disk_findings(name, facts["disks"], FREE_MIB[stack.accelerator])
    services, is_set = ", ".join(facts["time_services"] or ()), facts["synchronized"]
    found = None if is_set is None else f"{'yes' if is_set else 'no'}; {services or 'none'} runs"
    hint = "start a time service (apt-get install chrony)"
    if services:
        hint = "check the service's servers (chronyc sources, timedatectl timesync-status)"
    expected = "the kernel's clock is synchronized"
    yield check_finding(name, "time service", is_set, expected, found, hint, "warning")
    dead = [f"{address}: {why}" for address, why in sorted(facts["addresses"].items()) if why]
    if facts["addresses"]:
        found = "; ".join(dead) or f"{len(facts['addresses'])} answer"
        hint = "check the mirror, the proxy and the route, or set dlperf_mirror"
        yield check_finding(name, "package sources", not dead, "all answer", found, hint)
    against = facts.get("signatures")
    if against is not None:
        found = "; ".join(against) or "it does"
        hint = "run provision.yml to install the current keys; a new mirror signs with a new key"
        expected = "apt accepts every signed list"
        yield check_finding(name, "package signatures", not against, expected, found, hint)
    declared = stack.openmpi.version if stack.openmpi else None
    openmpi = facts["openmpi"]
    good = openmpi is not None and declared in (None, openmpi)
    yield check_finding(name, "openmpi", good, declared or "any", openmpi or "none", PROVISION)


def _holes(name: str, facts: Facts) -> Iterator[Finding]:
    """Report releases with published holes. The remedy is always a newer one."""
    driver = (facts.get("gpu") or {}).get("driver_running") or (facts.get("gpu") or {}).get(
        "driver"
    )
    software = facts.get("software") or {}
    docker = ((software.get("container_runtime") or {}).get("docker") or {}).get("version")
    versions = {"driver": driver, "docker": docker}
    versions |= {part: software.get(part) for part in ("containerd", "toolkit")}
    hint = (
        "choose a newer release (dlperf_stack_overrides), or update it yourself: provisioning"
        " leaves a newer driver of the branch"
    )
    for found in known_holes(versions):
        expected = "a release without published holes"
        yield Finding(name, "known holes", "warning", expected, found, hint)


def _clock(name: str, time: float, asked: float | None, answered: float | None) -> Finding:
    """The least error of the clock: it was read between two times on this machine."""
    expected = f"within {MAX_SKEW_S:g} s of this machine's"
    hint = "start a time service on the node (chrony, systemd-timesyncd)"
    if asked is None or answered is None:
        return check_finding(name, "clock", None, expected, None, hint)
    least = max(asked - time, time - answered, 0.0)
    found = f"off by at least {least:.1f} s" if least else f"right, to {answered - asked:.1f} s"
    return check_finding(name, "clock", least <= MAX_SKEW_S, expected, found, hint)


def _each(facts: Facts, *path: str) -> Any:
    """One value if all GPUs of a node agree, else the list of all values."""
    values = [reduce(getitem, path, gpu) for gpu in facts["gpu"]["gpus"]]
    return values[0] if values and all(value == values[0] for value in values) else values


def _links(facts: Facts) -> Any:
    topology = facts["gpu"]["topology"]
    if topology is None:
        return None
    # Network cards are named differently on each node; only links between GPUs are compared.
    links = topology["links"]
    return {
        a: {b: links[a][b] for b in links[a] if b[:3] == "GPU"} for a in links if a[:3] == "GPU"
    }


def _ports(facts: Facts, key: str) -> Any:
    return sorted(str(p[key]) for device in facts["fabric"]["devices"] for p in device["ports"])


# What must be the same on every node: check, status if it differs, and where to read it in the
# facts, which also have the node's `interface` of the inventory.
ALIKE: tuple[tuple[str, Status, Callable[[Facts], Any]], ...] = (
    ("system", "failed", lambda facts: facts["health"]["system"]),
    ("kernel", "warning", lambda facts: facts["health"]["kernel"]),
    ("architecture", "failed", lambda facts: facts["health"]["architecture"]),
    ("python", "warning", lambda facts: facts["health"]["python"]),
    ("cpus", "warning", lambda facts: facts["health"]["cpus"]),
    ("openmpi", "failed", lambda facts: facts["health"]["openmpi"]),
    ("gpu count", "failed", lambda facts: len(facts["gpu"]["gpus"]) or None),
    ("gpu model", "failed", lambda facts: _each(facts, "model")),
    ("gpu memory", "failed", lambda facts: _each(facts, "memory_mib")),
    ("gpu bios", "warning", lambda facts: _each(facts, "vbios")),
    ("pcie generation", "warning", lambda facts: _each(facts, "pcie_generation")),
    ("ecc mode", "failed", lambda facts: _each(facts, "ecc", "enabled")),
    ("power limit", "failed", lambda facts: _each(facts, "power_limit_w")),
    ("application clocks", "failed", lambda facts: _each(facts, "clocks_mhz", "application")),
    ("max clocks", "failed", lambda facts: _each(facts, "clocks_mhz", "max")),
    ("driver", "failed", lambda facts: facts["gpu"]["driver"]),
    ("rocm", "failed", lambda facts: facts["gpu"]["rocm"]),
    ("cuda", "failed", lambda facts: facts["gpu"]["cuda"]),
    ("cudnn", "failed", lambda facts: facts["gpu"]["cudnn"]),
    ("nccl", "failed", lambda facts: facts["gpu"]["nccl"]),
    ("nvlink topology", "failed", _links),
    ("rdma rates", "failed", lambda facts: _ports(facts, "rate_gbps")),
    ("rdma link layers", "failed", lambda facts: _ports(facts, "link_layer")),
    ("rdma p_keys", "warning", lambda facts: _ports(facts, "pkeys")),
    ("rdma firmware", "warning", lambda facts: [d["firmware"] for d in facts["fabric"]["devices"]]),
    ("ofed", "failed", lambda facts: facts["fabric"]["ofed"]),
    ("mtu", "failed", lambda facts: facts["fabric"]["interfaces"][facts["interface"]]["mtu"]),
)


def _of_cluster(nodes: Sequence[Node], by_node: Mapping[str, Any]) -> Iterator[Finding]:
    """Differences among nodes of one stack. Missing facts have their own findings."""
    for stack in dict.fromkeys(node.stack for node in nodes):
        same = [node for node in nodes if node.stack == stack]
        for check, otherwise, where in ALIKE:
            yield from _alike(check, otherwise, where, same, by_node)


def _alike(
    check: str,
    otherwise: Status,
    where: Callable[[Facts], Any],
    nodes: Sequence[Node],
    by_node: Mapping[str, Any],
) -> Iterator[Finding]:
    values: dict[str, str] = {}
    for node in nodes:
        try:
            value = where({**by_node[node.name], "interface": node.interface})
        except (KeyError, TypeError, IndexError):
            continue  # this part of its facts could not be gathered
        if value not in (None, [], {}):
            values[node.name] = str(value)
    if len(values) < 2:
        return
    by_value = Counter(values.values()).most_common()
    usual = by_value[0][0]
    if len(by_value) == 1:
        found = usual if len(usual) <= 60 else "the same"
        yield Finding("", check, "ok", "the same on every node", found)
        return
    odd = "; ".join(
        f"{', '.join(n for n in values if values[n] == value)}: {_short(value, usual)}"
        for value, _ in by_value[1:]
    )
    rest = ", ".join(n for n in values if values[n] == usual)
    hint = (
        "results of different nodes are not comparable: make the nodes the same, or exclude these"
    )
    found = f"{odd}; {rest}: {_short(usual, by_value[1][0])}"
    yield Finding("", check, otherwise, "the same on every node", found, hint)


def _short(value: str, other: str) -> str:
    """A long value, cut to start shortly before the first difference."""
    if len(value) <= 80:
        return value
    pairs = enumerate(zip(value, other, strict=False))
    start = max(next((at for at, (a, b) in pairs if a != b), len(other)) - 30, 0)
    return ("..." if start else "") + value[start : start + 70] + "..."
