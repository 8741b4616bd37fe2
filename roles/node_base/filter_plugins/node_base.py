"""The address by which the other nodes call a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def address(host: Mapping[str, Any]) -> str:
    """A host's address in the cluster: dlperf_address, or how the controller reaches it."""
    for name in ("dlperf_address", "ansible_host", "inventory_hostname"):
        if host.get(name):
            return str(host[name])
    raise ValueError("a host without dlperf_address, ansible_host and name")


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"node_base_address": address}
