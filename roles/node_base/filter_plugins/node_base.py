"""The cluster's entries in the nodes' /etc/hosts, and the place of the mirror's key."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def hosts(names: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The nodes' addresses by name: dlperf_address, or the address that the controller uses.

    Nodes without an IP address there are left to the site's name service, and the controller
    itself, as the only node, needs no entry.
    """
    addresses = {}
    for name in names:
        host = hostvars[name]
        address = str(host.get("dlperf_address") or host.get("ansible_host") or name)
        try:
            loopback = ipaddress.ip_address(address).is_loopback
        except ValueError:
            continue
        if not loopback and name != address:
            addresses[name] = address
    return addresses


def mirror_key(stack: str, suite: str) -> str:
    """Where `bundle` leaves the public key of the mirror that it makes by default."""
    cache = os.environ.get("DLPERF_CACHE") or Path(__file__).parents[3] / ".cache"
    return str(Path(cache, "mirror", f"{stack}-{suite}", "apt/dlperf-mirror.asc"))


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"node_base_hosts": hosts, "node_base_mirror_key": mirror_key}
