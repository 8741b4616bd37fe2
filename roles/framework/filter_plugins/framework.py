"""What the proof of a framework depends on, and whether it stands."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def inputs(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The pins of the environment, as digests."""
    found: dict[str, Any] = {
        "requirements": hashlib.sha256(Path(environment["requirements"]).read_bytes()).hexdigest()
    }
    if wheels := environment.get("operator_wheels"):
        found["operator_wheels"] = [wheel["sha256"] for wheel in wheels]
    return found


def stand(
    environments: Sequence[Mapping[str, Any]], complete: Sequence[str], proven: Mapping[str, Any]
) -> bool:
    """Whether all of them are complete (by path), and proven with the pins that they have now."""
    return all(
        item["path"] in complete and proven.get(f"framework-{item['name']}") == inputs(item)
        for item in environments
    )


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"framework_inputs": inputs, "framework_stand": stand}
