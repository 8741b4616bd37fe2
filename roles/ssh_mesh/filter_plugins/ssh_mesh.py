"""Members of the SSH mesh, and the logins that verify it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def members(
    names: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The mesh's members with their addresses, and the keys of those reached in this run."""
    entries = []
    for name in names:
        host = hostvars[name]
        addresses = [str(host[key]) for key in ("dlperf_address", "ansible_host") if host.get(key)]
        identity = host.get("__ssh_mesh_identity") or {}
        entries.append(
            {
                "name": name,
                "addresses": list(dict.fromkeys(addresses or [name])),
                "public_key": identity.get("public_key"),
                "host_keys": identity.get("host_keys") or [],
            }
        )
    return entries


def addresses(
    names: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[str]]:
    """The members' addresses by name."""
    return {member["name"]: member["addresses"] for member in members(names, hostvars)}


def agreed(proven: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mesh recorded by the stamps of all nodes; empty if their records differ."""
    meshes = [stamps.get("ssh_mesh", {}) for stamps in proven]
    return dict(meshes[0]) if meshes and all(one == meshes[0] for one in meshes) else {}


def stands(proven: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the wanted mesh was verified, with any keys."""
    return {key: value for key, value in proven.items() if key != "trust"} == wanted


def partners(hosts: Sequence[str], host: str, all_up_to: int) -> list[str]:
    """The nodes that a node calls: all others in a small mesh or from the first, else the next."""
    others = [name for name in hosts if name != host]
    if len(hosts) <= all_up_to or host == hosts[0]:
        return others
    return [hosts[(hosts.index(host) + 1) % len(hosts)]]


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "ssh_mesh_addresses": addresses,
            "ssh_mesh_agreed": agreed,
            "ssh_mesh_members": members,
            "ssh_mesh_partners": partners,
            "ssh_mesh_stands": stands,
        }
