"""What preflight.yml has found out of the nodes, as `python -m dlperf_runner doctor` reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# Registered results by the name that the doctor has for them.
PARTS = {"health": "health", "gpu": "gpu", "fabric": "fabric"}
PROOFS = {"ssh_mesh": "ssh_mesh", "all_reduce": "all_reduce"}
# Of Ansible itself, not of the node.
OVERHEAD = ("changed", "failed", "warnings", "deprecations", "ansible_facts", "invocation")


def facts(
    hostvars: Mapping[str, Mapping[str, Any]], names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """The facts of each node that the run was for; those outside its --limit were not asked."""
    return {
        name: facts_of(hostvars[name])
        for name in names
        if "preflight_pythons" in hostvars.get(name, {})
    }


def facts_of(host: Mapping[str, Any]) -> dict[str, Any]:
    pythons = host["preflight_pythons"]
    if pythons.get("unreachable"):
        return {"unreachable": one_line(pythons) or "no connection"}
    found: dict[str, Any] = {"pythons": pythons.get("stdout", "").split()}
    for name, suffix in PARTS.items():
        result = host.get(f"preflight_{suffix}")
        if result is None or result.get("skipped"):
            found[name] = None
        elif result.get("failed") or result.get("unreachable"):
            found[name] = {"failed": one_line(result)}
        else:
            found[name] = {key: value for key, value in result.items() if key not in OVERHEAD}
    for name, suffix in PROOFS.items():
        result = host.get(f"preflight_{suffix}") or {"skipped": True}
        is_bad = result.get("failed") or result.get("unreachable")
        told = {"failed": one_line(result) if is_bad else None}
        found[name] = None if result.get("skipped") else told
    if found["ssh_mesh"] is not None:
        found["ssh_mesh"]["called"] = len(host.get("preflight_partners") or [])
    times = (host.get("preflight_asked"), host.get("preflight_answered"))
    found["asked"], found["answered"] = (float(time) if time else None for time in times)
    return found


def one_line(result: Mapping[str, Any]) -> str:
    """What went wrong: its message, or the last line of what a module that broke has said."""
    said = str(result.get("msg") or "")
    module = str(result.get("module_stderr") or result.get("module_stdout") or "").strip()
    if module and (not said or said.startswith("MODULE FAILURE")):
        said = module.splitlines()[-1]
    return " ".join(said.split())[-600:]


def partners(hosts: Sequence[str], host: str, all_up_to: int) -> list[str]:
    """Whom a node calls, beginning with the one behind it, so that no node is called by all at once
    (sshd turns away whoever comes eleventh).

    All others in a cluster of up to `all_up_to`, and from the first node of any; else those that
    are 1, 2, 4, 8, ... behind it: each node calls and is called a few times, over all of the mesh.
    """
    start = hosts.index(host)
    others = [hosts[(start + step) % len(hosts)] for step in range(1, len(hosts))]
    if len(hosts) <= all_up_to or start == 0:
        return others
    return [others[(1 << power) - 1] for power in range(len(others).bit_length())]


def call(name: str, user: str) -> dict[str, Any]:
    """The command that shows that a node is reached: it must say who it is logged in as there."""
    options = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]
    return {"name": name, "argv": ["ssh", *options, name, "id", "-un"], "expect": f"^{user}$"}


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "preflight_call": call,
            "preflight_facts": facts,
            "preflight_partners": partners,
        }
