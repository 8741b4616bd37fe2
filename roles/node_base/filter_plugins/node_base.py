"""The cluster's entries in the nodes' /etc/hosts."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
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


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"node_base_hosts": hosts}
