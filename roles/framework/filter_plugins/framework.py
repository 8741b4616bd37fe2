"""The inputs of a framework's verification, and whether its record is still valid."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def inputs(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Digests of the environment's pins, and what its libraries depend on."""
    digests: dict[str, Any] = {
        "requirements": hashlib.sha256(Path(environment["requirements"]).read_bytes()).hexdigest()
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
    """Whether all environments are complete (by path) and verified with their current pins."""
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


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"framework_inputs": inputs, "framework_seen": seen, "framework_stand": stand}
