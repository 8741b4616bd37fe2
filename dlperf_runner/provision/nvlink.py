"""NVLink domains, whose nodes reach each other's GPU memory (GB200 and GB300 NVL72)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def domains(
    names: Mapping[str, str],
    hostvars: Mapping[str, Mapping[str, Any]],
    variable: str = "dlperf_nvlink_domain",
) -> dict[str, list[str]]:
    """The nodes of each domain, by `names`: their names or addresses where they are used. Without
    `variable`, a node is in the domain of `dlperf_nvlink_domain`."""
    members: dict[str, list[str]] = {}
    for name, member in names.items():
        host = hostvars[name]
        if domain := host.get(variable, host.get("dlperf_nvlink_domain")):
            members.setdefault(str(domain), []).append(member)
    return members
