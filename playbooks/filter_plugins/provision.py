"""The environments that a node's frameworks need, out of the catalogue's documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

PATHS = ("requirements", "build_requirements")


def environments(
    frameworks: Sequence[Mapping[str, Any]], stack: str, root: str, directory: str = "/opt/dlperf"
) -> list[dict[str, Any]]:
    """One environment per framework, as the roles take it; its files get `root` in front.

    A framework without an environment for the stack is refused, with the stacks that it has.
    """
    found = []
    for framework in frameworks:
        name = framework["name"]
        if stack not in framework["environments"]:
            known = ", ".join(framework["environments"])
            raise ValueError(f"{name} has no environment for the stack {stack}, only for: {known}")
        entry = framework["environments"][stack]
        environment = {
            "name": name,
            "path": f"{directory}/envs/{name}",
            "import_name": framework["import_name"],
            "tensor": framework["tensor"],
            "distribution": entry.get("distribution") or name,
            "requires_python": entry["python"],
            "requirements": f"{root}/{entry['requirements']}",
        }
        if "horovod" in entry:
            environment["horovod"] = {
                key: f"{root}/{value}" if key in PATHS else value
                for key, value in entry["horovod"].items()
            }
        found.append(environment)
    return found


def only(items: Sequence[Mapping[str, Any]], *keys: str) -> list[dict[str, Any]]:
    """The items with these keys and no others; an item that lacks one of them is left out."""
    return [{key: item[key] for key in keys} for item in items if all(key in item for key in keys)]


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"provision_environments": environments, "provision_only": only}
