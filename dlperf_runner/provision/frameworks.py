"""The inputs of a framework's verification, whether its record is still valid, and the way of an
environment from node to node."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.files import read_bytes


def inputs(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Digests of the environment's pins, and what its libraries depend on."""
    digests: dict[str, Any] = {
        "requirements": hashlib.sha256(read_bytes(Path(environment["requirements"]))).hexdigest()
    }
    if device := environment.get("device"):
        digests["device"] = device
    if wheels := environment.get("operator_wheels"):
        digests["operator_wheels"] = [wheel["sha256"] for wheel in wheels]
    if libraries := environment.get("libraries"):
        digests["libraries"], digests["variables"] = list(libraries), environment["variables"]
    return digests


def stand(
    environments: Sequence[Mapping[str, Any]], complete: Sequence[str], proven: Mapping[str, Any]
) -> bool:
    """True if all environments are complete (by path) and verified with their current pins."""
    return all(
        item["path"] in complete and proven.get(f"framework-{item['name']}") == inputs(item)
        for item in environments
    )


def seen(host: str, folder: str) -> dict[str, Any]:
    """The check that a node sees what another one has written to a shared folder."""
    name = (
        f"the file that {host} has written, in the folder that all nodes share (dlperf_shared_dir)"
    )
    return {"name": name, "argv": ["cat", f"{folder}/{host}"], "expect": f"^{re.escape(host)}$"}


def groups(names: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Nodes that lack the same environment, in order: the first makes it, the others take it.

    Nodes whose facts provisioning has not gathered make their own, as do nodes that are alone with
    their release and Python.
    """
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        facts = hostvars[name].get("ansible_facts", {})
        node = hostvars[name].get("dlperf_node") if facts.get("dlperf_node") else None
        if not node:
            continue
        system = [facts.get(key) for key in ("architecture", "distribution_release")]
        for item in hostvars[name].get("framework_environments", []):
            kind = [item["path"], system, node["python_version"], node["interpreter"], inputs(item)]
            if item["path"] not in node["complete"]:
                group = {"name": item["name"], "path": item["path"], "nodes": []}
                found.setdefault(json.dumps(kind), group)["nodes"].append(name)
    return [group for group in found.values() if len(group["nodes"]) > 1]


def places(found: Sequence[Mapping[str, Any]], host: str, folder: str) -> list[dict[str, Any]]:
    """A node's place in the tree of each group: `sources` are the nodes above it, up to the one
    that makes the environment. Each node gives it to at most two others (`keep`: to any)."""
    placed = []
    for group in found:
        nodes = group["nodes"]
        if host in nodes:
            place, sources = nodes.index(host), []
            while place:
                place = (place - 1) // 2
                sources.append(nodes[place])
            placed.append(
                {
                    "path": group["path"],
                    "archive": f"{folder}/{group['name']}.tar",
                    "sources": sources,
                    "keep": 2 * nodes.index(host) + 1 < len(nodes),
                }
            )
    return placed


def offer(place: Mapping[str, Any], hostvars: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """SHA-256 and size of the archive of the node that has made the environment; empty if it has
    failed."""
    told = hostvars[place["sources"][-1]].get("__framework_offered", {}).get("results", [])
    keys = ("sha256", "size")
    for one in told:
        if one["item"]["path"] == place["path"] and "sha256" in one:
            return {key: one[key] for key in keys}
    return {}
