"""What an inventory chooses for provisioning, and what a bare node answers."""

from typing import Any

import yaml
from standins import PROJECT

from dlperf_runner.provision import arguments

(CHECK, *_) = yaml.safe_load((PROJECT / "playbooks/provision.yml").read_text())
NAMES: list[str] = CHECK["vars"]["provision_names"]
OTHERS = {
    "interpreter": "python_env_interpreter",
    "limits": "node_base_limits",
    "nodes": "provision_nodes",
    "python": "python_version",
    "shared": "dlperf_shared_dir",
    "user": "node_base_user",
}


def settings(**changed: Any) -> dict[str, Any]:
    """The variables of an inventory with four nodes of the lab without frameworks."""
    chosen: dict[str, Any] = {
        "stack": "cpu",
        "frameworks": [],
        "nodes": 4,
        "user": "dlperf",
        "limits": {"memlock": "unlimited"},
    }
    named = {OTHERS.get(key, f"dlperf_{key}"): value for key, value in (chosen | changed).items()}
    assert set(named) <= set(NAMES)
    return dict.fromkeys(NAMES, False) | named


def choice(release: str = "jammy", **changed: Any) -> arguments.StackChoice:
    return arguments.choice(settings(**changed), release)


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
