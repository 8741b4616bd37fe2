"""The inventory's changes of a stack (`dlperf_stack_overrides`, `dlperf_adopt`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The versions that a stack does not demand of a node that keeps what it has (`dlperf_adopt`).
ADOPTED: dict[str, Any] = {
    "driver": None,
    "container_runtime": None,
    "infiniband": {"version": None},
    "openmpi": None,
    "cuda": None,
    "cudnn": None,
    "nccl": None,
    "tuning": None,
    # No parts of a stack, but files of a node.
    "hosts": None,
    "known_hosts": None,
}


def plain(value: Any) -> Any:
    """A copy with ordinary dictionaries and lists. Ansible gives filters its own, whose members it
    computes when Python reads them; pydantic, which is no Python, would find what is behind."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def merged(own: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`changes` in `own`, recursively. A null removes the key; lists are replaced."""
    result = dict(own)
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            before = result.get(key)
            result[key] = merged(before if isinstance(before, Mapping) else {}, value)
        else:
            result[key] = value
    return result
