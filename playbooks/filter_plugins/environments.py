"""The environments of frameworks on a stack: what the catalogue has, with the operator's wheels."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from email import message_from_bytes
from pathlib import Path
from typing import Any

import yaml
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

PATHS = ("requirements", "build_requirements")
ROOT = Path(__file__).parents[2]


def _document(name: str, root: str) -> dict[str, Any]:
    """A framework of the catalogue; the error for an unknown name lists the known ones.

    Ansible's from_yaml would take 20 ms per document.
    """
    files = _files(root)
    path = files.get(name)
    if path is None:
        known = ", ".join(sorted(files))
        raise ValueError(f"unknown name {name} in frameworks; known names: {known}")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506  both are safe


def _files(root: str) -> dict[str, Path]:
    """The frameworks by name: the catalogue's, and those of the user's own folder."""
    own = os.environ.get("DLPERF_CATALOG")
    folders = [*([Path(own)] if own else []), Path(root, "dlperf_runner", "catalog")]
    return {path.stem: path for folder in folders for path in (folder / "frameworks").glob("*.yml")}


def _place(root: str, name: str) -> str:
    """The folder below which the files of a framework lie."""
    path = _files(root)[name]
    return root if path.is_relative_to(Path(root, "dlperf_runner")) else str(path.parents[1])


def installed(
    names: Sequence[str],
    stack: str,
    root: str = str(ROOT),
    operator_wheels: Mapping[str, Any] | None = None,
    directory: str = "/opt/dlperf",
    images: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """One environment per name (`<framework>` or `<framework>-<flavor>`), as arguments of roles,
    with file paths below `root`.

    Environments that are an image are left out: there is nothing to install. `images`: digests by
    image name, the inventory's variable. Raises ValueError if an environment does not support the
    stack, or needs an operator's wheel that `operator_wheels` (the inventory's variable) lacks.
    """
    chosen = []
    for name in names:
        framework, stacks = _framework(name, root)
        if stack not in stacks:
            why = framework.get("unavailable", {}).get(stack)
            known = f": {why}" if why else f", only for: {', '.join(stacks)}"
            raise ValueError(f"{name} has no environment for the stack {stack}{known}")
        entry = _given(stacks[stack], operator_wheels or {})
        if _image(entry, images or {}):
            continue
        environment = {
            "name": name,
            "path": f"{directory}/envs/{name}",
            "import_name": framework["import_name"],
            "tensor": entry.get("tensor") or framework["tensor"],
            "eager": entry.get("eager") or "",
            "distribution": entry.get("distribution") or framework["name"],
            "variables": entry.get("variables", {}),
            "libraries": entry.get("libraries", []),
            "apt_packages": list(entry.get("apt_packages", [])),
            "requires_python": entry["python"],
            "requirements": f"{_place(root, framework['name'])}/{entry['requirements']}",
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
        chosen.append(environment)
    return chosen


def _given(entry: Mapping[str, Any], wheels: Mapping[str, Any]) -> Mapping[str, Any]:
    """The environment, or its alternative if the operator gives the wheels that this one needs."""
    other: Mapping[str, Any] = entry.get("alternative", {})
    needed = {wheel["distribution"] for wheel in other.get("operator_wheels", [])}
    return other if needed and needed <= set(wheels) else entry


def images(
    names: Sequence[str], stack: str, digests: Mapping[str, str], root: str = str(ROOT)
) -> list[str]:
    """Registry names of the images that are environments."""
    entries = (_framework(name, root)[1].get(stack, {}) for name in names)
    return [image for image in (_image(entry, digests) for entry in entries) if image]


def _image(entry: Mapping[str, Any], digests: Mapping[str, str]) -> str:
    """The image that the environment is: because there is nothing else, or because the inventory
    has a digest for it, with whatever tag. Empty for one that is installed on the node."""
    image = str(entry.get("container", {}).get("image", ""))
    bare = [re.sub(r":[^:/]*$", "", name) for name in (image, *digests)]
    return image if "requirements" not in entry or bare[0] in bare[1:] else ""


def _framework(name: str, root: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The framework of an environment's name, and its environments by stack."""
    files = _files(root)
    for base in (name, *(stem for stem in files if name.startswith(stem))):
        if base in files:
            framework = _document(base, root)
            if base == name:
                return framework, framework["environments"]
            flavors = framework.get("flavors", {})
            if (flavor := name.removeprefix(f"{base}-")) in flavors:
                return framework, flavors[flavor]
    return _document(name, root), {}


def _operator_wheel(
    environment: str, wheel: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, str]:
    """The operator's wheel under the name and version of its own metadata, with its sha256.

    Errors name the inventory's variable.
    """
    key, version = wheel["distribution"], wheel["version"]
    names = [key, *wheel.get("names", [])]
    said = given.get(key)
    variable = f"dlperf_operator_wheels: {{{key}: {{path: ..., sha256: ...}}}}"
    if said is None:
        raise ValueError(
            f"{environment} needs the wheel of {key} {version}, which you must provide"
            f" ({wheel['reason']}). Add it to the inventory: {variable}"
        )
    path, sha256 = Path(said.get("path") or ""), str(said.get("sha256", ""))
    if not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise ValueError(f"the sha256 must have 64 hexadecimal digits in {variable}")
    if not path.is_file():
        raise ValueError(f"the controller has no file {path}. Correct {variable}")
    name, built = _wheel_metadata(path)
    if (
        canonicalize_name(name) not in map(canonicalize_name, names)
        or built not in SpecifierSet(f"=={version}.*", prereleases=True)
        or canonicalize_name(path.name.partition("-")[0]) != canonicalize_name(name)
    ):
        raise ValueError(
            f"{str(path)!r} is not a wheel of {' or '.join(names)} {version}: its metadata"
            f" say {name or 'no name'} {built}. The file must have the name that it was built"
            f" with. Correct the inventory's {variable}"
        )
    # uv and pip refuse a wheel of another name than the requirement's.
    return {"distribution": name, "version": built, "path": str(path), "sha256": sha256.lower()}


def _wheel_metadata(path: Path) -> tuple[str, str]:
    """Name and version as the wheel itself states them; empty and 0 if it is no wheel."""
    try:
        with zipfile.ZipFile(path) as archive:
            (member,) = (
                n for n in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n)
            )
            metadata = message_from_bytes(archive.read(member))
    except (zipfile.BadZipFile, ValueError):
        return "", "0"
    return metadata["Name"] or "", metadata["Version"] or "0"


def refusal(names: Sequence[str], stack: str, **choice: Any) -> str:
    """Why the catalogue and the operator's wheels cannot serve the choice; empty if they can."""
    try:
        installed(names, stack, **choice)
    except ValueError as error:
        return str(error)
    return ""


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "environments_images": images,
            "environments_installed": installed,
            "environments_refusal": refusal,
        }
