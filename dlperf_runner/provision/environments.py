"""The environments of frameworks on a stack: what the catalogue has, with the operator's wheels."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from email import message_from_bytes
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from ..catalog.framework import Environment, Framework, OperatorWheel
from ..catalog.reader import lookup, own_frameworks
from ..catalog.suites import SUITES
from ..core.errors import UserError
from ..core.paths import shipped

HOROVODS_FILES = ("requirements", "build_requirements")


def installed(
    names: Sequence[str],
    stack: str,
    operator_wheels: Mapping[str, Any] | None = None,
    directory: str = "/opt/dlperf",
    images: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """One environment per name (`<framework>` or `<framework>-<flavor>`), as arguments of roles.

    Environments that are an image are left out: there is nothing to install. `images`: digests by
    image name, the inventory's variable. Raises UserError if there is no such environment on the
    stack, or if it needs an operator's wheel that `operator_wheels` (the inventory's variable)
    lacks.
    """
    wheels = operator_wheels or {}
    chosen = ((name, *_environment(name, stack)) for name in names)
    return [
        _arguments(name, framework, environment.given(wheels), wheels, directory)
        for name, framework, environment in chosen
        if not environment.given(wheels).image_with(images or {})
    ]


def images(names: Sequence[str], stack: str, digests: Mapping[str, str]) -> list[str]:
    """Registry names of the images that are environments."""
    found = (_environment(name, stack)[1].image_with(digests) for name in names)
    return [image for image in found if image]


def _environment(name: str, stack: str) -> tuple[Framework, Environment]:
    known = {
        environment: framework
        for framework in own_frameworks().values()
        for environment in framework.environment_names
    }
    framework = lookup("framework", name, known, "dlperf_frameworks")
    if environment := framework.environments_on(stack).get(name):
        return framework, environment
    stacks = [each for each in framework.stacks if name in framework.environments_on(each)]
    raise UserError(
        framework.why_not(stack),
        where=f"dlperf_frameworks: {name}",
        expected=f"one of the stacks {', '.join(stacks)}",
    )


def _arguments(
    name: str,
    framework: Framework,
    environment: Environment,
    wheels: Mapping[str, Any],
    directory: str,
) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "name": name,
        "path": f"{directory}/envs/{name}",
        "import_name": framework.import_name,
        "tensor": environment.tensor or framework.tensor,
        "eager": environment.eager or "",
        "distribution": environment.distribution or framework.name,
        "variables": environment.variables,
        "libraries": list(environment.libraries),
        "apt_packages": list(environment.apt_packages),
        "requires_python": environment.python,
        # The user's own are absolute.
        "requirements": str(shipped() / (environment.requirements or "")),
        "operator_wheels": [
            _operator_wheel(name, wheel, wheels) for wheel in environment.operator_wheels
        ],
    }
    if horovod := environment.horovod:
        files = {key: str(shipped() / getattr(horovod, key)) for key in HOROVODS_FILES}
        arguments["horovod"] = horovod.model_dump(mode="json") | files
    return arguments


def _operator_wheel(
    environment: str, wheel: OperatorWheel, given: Mapping[str, Any]
) -> dict[str, str]:
    """The operator's wheel under the name and version of its own metadata, with its sha256.

    Errors name the inventory's variable.
    """
    key, version = wheel.distribution, wheel.version
    names = [key, *wheel.names]
    variable = f"dlperf_operator_wheels: {{{key}: {{path: ..., sha256: ...}}}}"
    if key not in given:
        raise UserError(
            f"{environment} needs the wheel of {key} {version}, which you must provide"
            f" ({wheel.reason}). Add it to the inventory: {variable}"
        )
    path, sha256 = Path(given[key].get("path") or ""), str(given[key].get("sha256", ""))
    if not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise UserError(f"the sha256 must have 64 hexadecimal digits in {variable}")
    if not path.is_file():
        raise UserError(f"the controller has no file {path}. Correct {variable}")
    name, built = _wheel_metadata(path)
    if (
        canonicalize_name(name) not in map(canonicalize_name, names)
        or built not in SpecifierSet(f"=={version}.*", prereleases=True)
        or canonicalize_name(path.name.partition("-")[0]) != canonicalize_name(name)
    ):
        raise UserError(
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


def python_refusal(environments: Sequence[Mapping[str, Any]], node: Mapping[str, Any]) -> str:
    """The reason why a node (facts from node_facts) cannot have an environment; empty if it can.

    The message names another suitable interpreter of the node, or else the nearest release.
    """
    version = node["python_version"]
    for environment in environments:
        name, takes = environment["name"], SpecifierSet(environment["requires_python"])
        if version is None:
            return (
                f"{node['interpreter']} is missing or cannot be started. The environment of {name}"
                f" needs Python {takes}: set python_env_interpreter to another interpreter"
            )
        if version not in takes:
            return (
                f"the environment of {name} needs Python {environment['requires_python']}, but this"
                f" node's {node['interpreter']} is {version}; {_other_python(takes, node)}"
            )
    return ""


def _other_python(takes: SpecifierSet, node: Mapping[str, Any]) -> str:
    others = [path for path in node["interpreters"] if re.split("python", path)[-1] in takes]
    if others:
        return f"this node also has {others[-1]}: set python_env_interpreter to it"

    def distance(python: str) -> int:
        own, other = (int(version.split(".")[1]) for version in (node["python_version"], python))
        return abs(own - other)

    fitting = [(name, suite) for name, suite in SUITES.items() if suite.python in takes]
    if not fitting:
        return "no release known to this project has a suitable Python"
    name, suite = min(fitting, key=lambda item: distance(item[1].python))
    code = f" ({name})" if suite.distribution == "debian" else ""
    return (
        f"use {suite.distribution.title()} {suite.version}{code} with {suite.python}, or set"
        " python_env_interpreter to another interpreter of this node"
    )
