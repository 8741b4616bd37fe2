"""The facts gathered by preflight.yml, in the form that `dlperf doctor` reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# The doctor's name of each fact: suffix of the registered result.
PARTS = {
    "health": "health",
    "gpu": "gpu",
    "fabric": "fabric",
    "dcgm": "dcgm_facts",
    "adopted": "adopted",
    "software": "software",
}
PROOFS = ("compute", "ssh_mesh", "firewall", "all_reduce")
# Keys that Ansible adds to a result.
OVERHEAD = ("changed", "failed", "warnings", "deprecations", "ansible_facts", "invocation")


def facts(
    hostvars: Mapping[str, Mapping[str, Any]], names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """The facts of each node within --limit."""
    return {
        name: facts_of(hostvars[name])
        for name in names
        if "bootstrap_found" in hostvars.get(name, {})
    }


def facts_of(host: Mapping[str, Any]) -> dict[str, Any]:
    pythons = host["bootstrap_found"]
    if pythons.get("unreachable"):
        return {"unreachable": one_line(pythons) or "no connection"}
    lines = [line.split() for line in pythons.get("stdout", "").splitlines()]
    versions = [line[1] for line in lines if len(line) == 2 and line[0].startswith("/")]
    facts: dict[str, Any] = {"pythons": list(dict.fromkeys(versions))}
    for name, suffix in PARTS.items():
        result = host.get(f"preflight_{suffix}")
        if result is None or result.get("skipped"):
            facts[name] = None
        elif result.get("failed") or result.get("unreachable"):
            facts[name] = {"failed": one_line(result)}
        else:
            facts[name] = {key: value for key, value in result.items() if key not in OVERHEAD}
    for name in PROOFS:
        result = host.get(f"preflight_{name}") or {"skipped": True}
        is_bad = result.get("failed") or result.get("unreachable")
        told: dict[str, Any] = {"failed": one_line(result) if is_bad else None}
        if name == "compute":
            told |= {"kind": result.get("kind"), "count": len(result.get("devices") or ())}
        facts[name] = None if result.get("skipped") else told
    if facts["ssh_mesh"] is not None:
        facts["ssh_mesh"]["called"] = len(host.get("preflight_partners") or [])
    times = (host.get("preflight_asked"), host.get("preflight_answered"))
    facts["asked"], facts["answered"] = (float(time) if time else None for time in times)
    return facts


def one_line(result: Mapping[str, Any]) -> str:
    """The error message, or the last output line of a module that crashed."""
    said = str(result.get("msg") or "")
    module = str(result.get("module_stderr") or result.get("module_stdout") or "").strip()
    # The second is ansible-core's since 2.19, also where sudo printed an error.
    silent = ("MODULE FAILURE", "Module result deserialization failed")
    if module and (not said or said.startswith(silent)):
        said = module.splitlines()[-1]
    return " ".join(said.split())[-600:]
