"""The environments that a node's frameworks need, out of the catalogue."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement

PATHS = ("requirements", "build_requirements")
MPIRUN = {"package": "/usr/bin/mpirun", "source": "/usr/local/openmpi/bin/mpirun"}


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
    names: Sequence[str],
    stack: str,
    root: str,
    operator_wheels: Mapping[str, Any] | None = None,
    directory: str = "/opt/dlperf",
) -> list[dict[str, Any]]:
    """One environment per name (a framework's, or `<framework>-<flavor>`), as the roles take it;
    its files get `root` in front.

    One that is an image only is left out: there is nothing to be installed.
    One that is not there for the stack is refused, with the stacks that it has, and so is one that
    needs a wheel of the operator's which `operator_wheels` (the inventory's variable) lacks.
    """
    found = []
    for name in names:
        framework, stacks = _framework(name, root)
        if stack not in stacks:
            known = ", ".join(stacks)
            raise ValueError(f"{name} has no environment for the stack {stack}, only for: {known}")
        entry = stacks[stack]
        if "requirements" not in entry:
            continue
        environment = {
            "name": name,
            "path": f"{directory}/envs/{name}",
            "import_name": framework["import_name"],
            "tensor": entry.get("tensor") or framework["tensor"],
            "eager": entry.get("eager") or "",
            "distribution": entry.get("distribution") or framework["name"],
            "requires_python": entry["python"],
            "requirements": f"{root}/{entry['requirements']}",
            "operator_wheels": [
                _operator_wheel(name, wheel, operator_wheels or {})
                for wheel in entry.get("operator_wheels", [])
            ],
        }
        if "horovod" in entry:
            environment["horovod"] = {
                key: f"{root}/{value}" if key in PATHS else value
                for key, value in entry["horovod"].items()
            }
        found.append(environment)
    return found


def mpirun(stack: str, root: str) -> str:
    """Where the mpirun of a stack is: a build from source has a place of its own."""
    return MPIRUN[document(stack, root, "stacks").get("openmpi", {}).get("method", "package")]


def images(names: Sequence[str], stack: str, root: str) -> list[str]:
    """Images that are all there is of an environment, by the names of their registry."""
    entries = (_framework(name, root)[1].get(stack, {}) for name in names)
    return [
        entry["container"]["image"]
        for entry in entries
        if "container" in entry and "requirements" not in entry
    ]


def _framework(name: str, root: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A framework, and the environments per stack that go by this name."""
    folder = Path(root, "dlperf_runner", "catalog", "frameworks")
    own, _, _ = name.partition("-")
    for base in (name, *(f.stem for f in folder.glob(f"{own}*.yml") if name.startswith(f.stem))):
        if (folder / f"{base}.yml").is_file():
            framework = document(base, root, "frameworks")
            if base == name:
                return framework, framework["environments"]
            flavors = framework.get("flavors", {})
            if (flavor := name.removeprefix(f"{base}-")) in flavors:
                return framework, flavors[flavor]
    return document(name, root, "frameworks"), {}


def _operator_wheel(
    environment: str, wheel: Mapping[str, str], given: Mapping[str, Any]
) -> dict[str, str]:
    """The wheel with the operator's path and sha256; what is amiss names the variable."""
    name, version = wheel["distribution"], wheel["version"]
    said = given.get(name)
    variable = f"dlperf_operator_wheels: {{{name}: {{path: ..., sha256: ...}}}}"
    if said is None:
        raise ValueError(
            f"{environment} needs the wheel of {name} {version}, which you must provide"
            f" ({wheel['reason']}): name it in the inventory, {variable}"
        )
    path, sha256 = str(said.get("path", "")), str(said.get("sha256", ""))
    if not re.match(rf"{re.escape(name)}-{re.escape(version)}[-.+]\S*\.whl$", Path(path).name):
        raise ValueError(
            f"the wheel {path!r} is not one of {name} {version}: correct the inventory's {variable}"
        )
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise ValueError(f"64 hexadecimal digits were expected as sha256 in {variable}")
    if not Path(path).is_file():
        raise ValueError(f"there is no file {path} on the controller: correct {variable}")
    return {"distribution": name, "version": version, "path": path, "sha256": sha256}


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


def complete(
    items: Sequence[Mapping[str, Any]], there: Mapping[str, Any], python: str
) -> list[str]:
    """Names of the environments that are what their requirements files pin, where those that are
    `there` (by path, as the module node_state says it) are to be made with a version of Python."""
    return [
        item["name"]
        for item in items
        if as_pinned(
            Path(item["requirements"]).read_text(encoding="utf-8")
            + "".join(
                f"{wheel['distribution']}=={wheel['version']}\n"
                for wheel in item.get("operator_wheels", [])
            ),
            there.get(item["path"]),
            python,
        )
    ]


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "provision_as_pinned": as_pinned,
            "provision_complete": complete,
            "provision_document": document,
            "provision_environments": environments,
            "provision_images": images,
            "provision_mpirun": mpirun,
            "provision_only": only,
        }
