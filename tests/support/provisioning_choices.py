"""What an inventory chooses for provisioning, and what a bare node answers."""

from __future__ import annotations

from typing import Any


def choice(**changed: Any) -> dict[str, Any]:
    """Four nodes of the lab without frameworks."""
    chosen: dict[str, Any] = {
        "stack": "cpu",
        "frameworks": [],
        "operator_wheels": {},
        "container_engine": "",
        "container_images": {},
        "interpreter": "",
        "python": "",
        "mpirun": "",
        "mirror": "",
        "nodes": 4,
        "user": "dlperf",
        "limits": {"memlock": "unlimited"},
        "datasets": {},
    }
    return chosen | changed


def node(**changed: Any) -> dict[str, Any]:
    """A bare node, as node_facts finds it."""
    found: dict[str, Any] = {
        "interpreter": "/usr/bin/python3",
        "python_version": "3.11.2",
        "interpreters": [],
        "packages": {},
        "user": {},
        "limits": {},
        "environments": {},
        "builds": {},
        "stamps": {},
    }
    return found | changed
