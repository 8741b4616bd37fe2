"""What stands in the nodes' /etc/hosts."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any


def hosts(names: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The nodes' addresses in the cluster: dlperf_address, or how the controller reaches them.

    A node that is named instead of numbered there is left to the site's own name service, and
    the controller itself, as the only node, needs no name.
    """
    found = {}
    for name in names:
        host = hostvars[name]
        address = str(host.get("dlperf_address") or host.get("ansible_host") or name)
        try:
            loopback = ipaddress.ip_address(address).is_loopback
        except ValueError:
            continue
        if not loopback and name != address:
            found[name] = address
    return found


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"node_base_hosts": hosts}
