"""What an inventory chooses for provisioning, and what a bare node answers."""

from __future__ import annotations

from typing import Any

from filters import load

stack = load("playbooks/filter_plugins/stack.py")
engines = load("playbooks/filter_plugins/container_engine.py")


def choice(**changed: Any) -> dict[str, Any]:
    """Four nodes of the lab without frameworks."""
    chosen: dict[str, Any] = {
        "stack": "cpu",
        "frameworks": [],
        "operator_wheels": {},
        "container_engine": "",
        "container_images": {},
        "release": "jammy",
        "interpreter": "",
        "python": "",
        "mpirun": "",
        "mirror": "",
        "nodes": 4,
        "user": "dlperf",
        "limits": {"memlock": "unlimited"},
        "datasets": {},
        "shared": "",
        "time": "",
        "slurm": False,
    }
    chosen |= changed
    overrides = chosen.pop("stack_overrides", {})
    chosen["mpirun"] = chosen["mpirun"] or stack.mpirun(chosen["stack"], overrides)
    own = stack.document(chosen["stack"], overrides)
    runtime = engines.chosen(own, chosen["container_engine"], chosen.pop("release"))
    return {"stack_document": own, "container_runtime": runtime} | chosen


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
        "links": {},
        "stamps": {},
    }
    return found | changed
