"""What an inventory chooses for provisioning, and what a bare node answers."""

from __future__ import annotations

from typing import Any

from filters import environments, load

stack = load("playbooks/filter_plugins/stack.py")
engines = load("playbooks/filter_plugins/container_engine.py")


def choice(**changed: Any) -> dict[str, Any]:
    """Four nodes of the lab without frameworks."""
    chosen: dict[str, Any] = {
        "stack": "cpu",
        "frameworks": [],
        "operator_wheels": {},
        "container_images": {},
        "container_engine": "",
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
    name, names = chosen.pop("stack"), chosen.pop("frameworks")
    wheels, digests = chosen.pop("operator_wheels"), chosen.pop("container_images")
    chosen["mpirun"] = chosen["mpirun"] or stack.mpirun(name, overrides)
    own = stack.document(name, overrides)
    return {
        "stack_document": own,
        "container_runtime": engines.chosen(own, chosen["container_engine"], chosen.pop("release")),
        "environments": environments.installed(names, name, operator_wheels=wheels, images=digests),
        "images": environments.images(names, name, digests),
        **chosen,
    }


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
