"""The nodes' addresses and NVLink domains, the logins that prove the SSH mesh, and the commands of
verifications across nodes: the named interface, one process per host entry."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from ..launchers.mpirun import interface_options

# OpenMPI's layers for messages, by dlperf_mpi_transport.
TRANSPORTS = {"tcp": ("ob1", "--mca", "btl", "tcp,self"), "ucx": ("ucx", "--mca", "btl", "^openib")}
Hostvars = Mapping[str, Mapping[str, Any]]


def hosts(names: Sequence[str], hostvars: Hostvars) -> dict[str, str]:
    """The cluster's entries in /etc/hosts, by name: dlperf_address, or what the controller uses.
    Nodes without an IP address there are left to the site's name service, and the controller
    itself, as the only node, needs no entry."""
    entries = {name: _addresses(name, hostvars[name])[0] for name in names}
    return {
        name: address
        for name, address in entries.items()
        if name != address and (ip := _ip(address)) and not ip.is_loopback
    }


def unaddressed(names: Sequence[str], hostvars: Hostvars) -> list[str]:
    """The nodes that only the site's name service can resolve, as the inventory has no IP address
    of them, or its nodes keep their /etc/hosts."""
    if len(names) == 1:
        return []  # alone, it calls no other
    keeps = [str(hostvars[name].get("dlperf_adopt") or "") for name in names]
    if any(re.search(r"\b(all|hosts)\b", adopted) for adopted in keeps):
        return list(names)
    return [name for name in names if not _ip(_addresses(name, hostvars[name])[0])]


def _ip(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    with suppress(ValueError):
        return ipaddress.ip_address(address)
    return None


def unresolved_refusal(names: Sequence[str]) -> str:
    """The reason why a node cannot reach others whose names it cannot resolve; empty if it can."""
    if not names:
        return ""
    return (
        f"the node cannot resolve {', '.join(names)}, and the inventory has no IP address for it."
        " Set dlperf_address (or ansible_host) of each node to its IP address, or add the names to"
        " the site's name service"
    )


def sshd_refusal(obstacles: Sequence[str], user: str) -> str:
    """The reason why other nodes cannot log in to a node; empty if they can."""
    if not obstacles:
        return ""
    return (
        f"the nodes log in to each other as {user}, and this node's sshd refuses it:"
        f" {'; '.join(obstacles)} (sshd -T). Allow {user} to log in by ~/.ssh/authorized_keys from"
        " the nodes' addresses (Match User and Address in sshd_config), or set node_base_user to a"
        " user that may"
    )


def connections(names: Sequence[str], hostvars: Hostvars, program: str) -> list[dict[str, Any]]:
    """Commands for the module proof: `program` connects to a port of each node, by its address in
    the benchmark's network."""
    return [
        {
            "name": name,
            "argv": ["/usr/bin/python3", "-c", program, name, _addresses(name, hostvars[name])[0]],
            "expect": "^open$",
        }
        for name in names
    ]


def members(names: Sequence[str], hostvars: Hostvars) -> list[dict[str, Any]]:
    """The mesh's members with their addresses, and the keys of those reached in this run."""
    entries = []
    for name in names:
        identity = hostvars[name].get("__ssh_mesh_identity") or {}
        entries.append(
            {
                "name": name,
                "addresses": _addresses(name, hostvars[name]),
                "public_key": identity.get("public_key"),
                "host_keys": identity.get("host_keys") or [],
            }
        )
    return entries


def addresses(names: Sequence[str], hostvars: Hostvars) -> dict[str, list[str]]:
    """The members' addresses by name."""
    return {name: _addresses(name, hostvars[name]) for name in names}


def _addresses(name: str, host: Mapping[str, Any]) -> list[str]:
    """The address in the benchmark's network first; the name if the inventory has none."""
    stated = [str(host[key]) for key in ("dlperf_address", "ansible_host") if host.get(key)]
    return list(dict.fromkeys(stated or [name]))


def agreed(proven: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mesh recorded by the stamps of all nodes; empty if their records differ."""
    meshes = [stamps.get("ssh_mesh", {}) for stamps in proven]
    return dict(meshes[0]) if meshes and all(mesh == meshes[0] for mesh in meshes) else {}


def stands(proven: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """True if the wanted mesh was verified, with any keys."""
    return {key: value for key, value in proven.items() if key != "trust"} == wanted


def login_check(name: str, user: str) -> dict[str, Any]:
    """The login of a user from one node to another one: `id -un` there must print the name."""
    options = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]
    return {"name": name, "argv": ["ssh", *options, name, "id", "-un"], "expect": f"^{user}$"}


def partners(hosts: Sequence[str], host: str, all_up_to: int, ahead: bool = False) -> list[str]:
    """The nodes that a node calls, starting with the next one, so that not all nodes call the same
    node at once (sshd rejects the eleventh connection).

    In a cluster of up to `all_up_to` nodes, and from the first node of any, these are all others.
    Else it is the next one; with `ahead`, these are the nodes 1, 2, 4, 8, ... positions further:
    few calls that cover the whole mesh.
    """
    start = hosts.index(host)
    others = [hosts[(start + step) % len(hosts)] for step in range(1, len(hosts))]
    if len(hosts) <= all_up_to or start == 0:
        return others
    return [others[(1 << power) - 1] for power in range(len(others).bit_length() if ahead else 1)]


def nvlink_domains(
    names: Mapping[str, str], hostvars: Hostvars, variable: str = "dlperf_nvlink_domain"
) -> dict[str, list[str]]:
    """The nodes of each NVLink domain (GB200 NVL72), by `names`: names or addresses where they
    are used. Without `variable`, a node is in the domain of `dlperf_nvlink_domain`."""
    members: dict[str, list[str]] = {}
    for name, member in names.items():
        host = hostvars[name]
        if domain := host.get(variable, host.get("dlperf_nvlink_domain")):
            members.setdefault(str(domain), []).append(member)
    return members


# ---- MPI


def mpi_argv(
    mpirun: str,
    hosts: Sequence[str],
    interface: str,
    arguments: Sequence[str] = (),
    exported: Iterable[str] = (),
    transport: str = "tcp",
) -> list[str]:
    """The command line up to the program to start. `exported`: names of variables. The transport is
    forced: another one, or a silent fallback to shared memory, must not pass."""
    slots = ",".join(f"{host}:{count}" for host, count in Counter(hosts).items())
    command = [mpirun, "-np", str(len(hosts)), "--bind-to", "none"]
    command += ["--mca", "pml", *TRANSPORTS[transport], "--host", slots]
    command += interface_options(interface)
    for name in exported:
        command += ["-x", name]
    return [*command, *arguments]


def next_of(hosts: Sequence[str], host: str) -> str:
    """The next host in the list; the first follows the last."""
    return hosts[(hosts.index(host) + 1) % len(hosts)]


def build_refusal(version: str, prefix: str, mpirun: str) -> str:
    """The reason why the inventory's mpirun is not that of a build from source; empty if it is."""
    wanted = f"{prefix}/bin/mpirun"
    if mpirun == wanted:
        return ""
    return (
        f"The mpirun of OpenMPI {version} is {wanted}, but dlperf_mpirun is {mpirun}. Remove"
        " dlperf_mpirun from the inventory: the stack determines it."
    )


def container_command(name: str, **options: Any) -> dict[str, Any]:
    """The command that tests an image in containers called `name`. `options`: see proof_command."""
    from ..plan.containers import proof_command

    command = proof_command(name, **options)
    # ansible-core 2.16 makes texts of tuples.
    return asdict(command) | {"argv": list(command.argv), "cleanup": list(command.cleanup)}
