"""The environments that a node's frameworks need, out of the catalogue."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement

PATHS = ("requirements", "build_requirements")


def document(name: str, root: str, kind: str) -> dict[str, Any]:
    """A document of the catalogue; an unknown name lists the known ones of its kind.

    Ansible's own from_yaml takes 20 ms for it, and a variable is evaluated wherever it is used.
    """
    folder = Path(root, "dlperf_runner", "catalog", kind)
    path = folder / f"{name}.yml"
    if not path.is_file():
        known = ", ".join(sorted(entry.stem for entry in folder.glob("*.yml")))
        raise ValueError(f"{name} was expected to be one of the {kind} {known}")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506  both are safe


def environments(
    names: Sequence[str], stack: str, root: str, directory: str = "/opt/dlperf"
) -> list[dict[str, Any]]:
    """One environment per framework, as the roles take it; its files get `root` in front.

    A framework without an environment for the stack is refused, with the stacks that it has.
    """
    found = []
    for name in names:
        framework = document(name, root, "frameworks")
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


def as_pinned(requirements: str, environment: Mapping[str, Any] | None, python: str) -> bool:
    """Whether an environment (as the module node_state says it) is what requirements pin.

    `python` is the version of the interpreter that it is to be made with.
    """
    minor = ".".join(python.split(".")[:2])
    if not environment or ".".join(environment["python"].split(".")[:2]) != minor:
        return False
    have = environment["distributions"]
    for line in requirements.replace("\\\n", " ").splitlines():
        text = line.split(" #")[0].split(" --hash")[0].strip()
        if not text or text.startswith(("#", "-")):
            continue
        pin = Requirement(text)
        if pin.marker and not pin.marker.evaluate(
            {"python_version": minor, "python_full_version": python}
        ):
            continue
        found = have.get(re.sub(r"[-_.]+", "-", pin.name).lower())
        if not found or found["version"] not in pin.specifier or pin.url:
            return False
    return True


def complete(items: Sequence[Mapping[str, Any]], node: Mapping[str, Any]) -> list[str]:
    """Names of the environments that are what their requirements files pin, on a node."""
    return [
        item["name"]
        for item in items
        if as_pinned(
            Path(item["requirements"]).read_text(encoding="utf-8"),
            node["environments"].get(item["path"]),
            node["python_version"],
        )
    ]


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "provision_as_pinned": as_pinned,
            "provision_complete": complete,
            "provision_document": document,
            "provision_environments": environments,
            "provision_only": only,
        }
