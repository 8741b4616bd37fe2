"""The environments of frameworks on a stack: what the catalogue has, with the operator's wheels."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import stat
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
from ..core.files import read_bytes, read_text
from ..core.node import ENVIRONMENTS
from ..core.paths import shipped

HOROVODS_FILES = ("requirements", "build_requirements")


def installed(
    names: Sequence[str],
    stack: str,
    operator_wheels: Mapping[str, Any] | None = None,
    images: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """One environment per name (`<framework>` or `<framework>-<flavor>`), as arguments of roles,
    but for those that are an image. `images`: digests by image name. Raises UserError if there is
    no such environment on the stack, or if `operator_wheels` (the inventory's variable) lacks a
    wheel."""
    wheels = operator_wheels or {}
    chosen = ((name, *_environment(name, stack)) for name in names)
    return [
        _arguments(name, framework, environment.given(wheels), wheels)
        for name, framework, environment in chosen
        if not environment.given(wheels).image_with(images or {})
    ]


def images(names: Sequence[str], stack: str, digests: Mapping[str, str]) -> list[str]:
    """Registry names of the images that are environments."""
    named = (_environment(name, stack)[1].image_with(digests) for name in names)
    return [image for image in named if image]


def _environment(name: str, stack: str) -> tuple[Framework, Environment]:
    frameworks = {
        environment: framework
        for framework in own_frameworks().values()
        for environment in framework.environment_names
    }
    framework = lookup("framework", name, frameworks, "dlperf_frameworks")
    if environment := framework.environments_on(stack).get(name):
        return framework, environment
    stacks = [each for each in framework.stacks if name in framework.environments_on(each)]
    raise UserError(
        framework.why_not(stack),
        where=f"dlperf_frameworks: {name}",
        expected=f"one of the stacks {', '.join(stacks)}",
    )


def _arguments(
    name: str, framework: Framework, environment: Environment, wheels: Mapping[str, Any]
) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "name": name,
        "path": f"{ENVIRONMENTS}/{name}",
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
    """The operator's wheel under the name and version of its own metadata, with its sha256."""
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
    The message names another suitable interpreter of the node, or else the nearest release."""
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
        minor, other = (int(version.split(".")[1]) for version in (node["python_version"], python))
        return abs(minor - other)

    fitting = [(name, suite) for name, suite in SUITES.items() if suite.python in takes]
    if not fitting:
        return "no release known to this project has a suitable Python"
    name, suite = min(fitting, key=lambda item: distance(item[1].python))
    code = f" ({name})" if suite.distribution == "debian" else ""
    return (
        f"use {suite.distribution.title()} {suite.version}{code} with {suite.python}, or set"
        " python_env_interpreter to another interpreter of this node"
    )


def inputs(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Digests of the environment's pins, and what its libraries depend on."""
    digests: dict[str, Any] = {
        "requirements": hashlib.sha256(read_bytes(Path(environment["requirements"]))).hexdigest()
    }
    if device := environment.get("device"):
        digests["device"] = device
    if wheels := environment.get("operator_wheels"):
        digests["operator_wheels"] = [wheel["sha256"] for wheel in wheels]
    if libraries := environment.get("libraries"):
        digests["libraries"], digests["variables"] = list(libraries), environment["variables"]
    return digests


def stand(
    environments: Sequence[Mapping[str, Any]], complete: Sequence[str], proven: Mapping[str, Any]
) -> bool:
    """True if all environments are complete (by path) and verified with their current pins. The
    role horovod verifies those that have it."""
    return all(
        item["path"] in complete
        and ("horovod" in item or proven.get(f"framework-{item['name']}") == inputs(item))
        for item in environments
    )


def seen(host: str, folder: str) -> dict[str, Any]:
    """The check that a node sees what another one has written to a shared folder."""
    name = (
        f"the file that {host} has written, in the folder that all nodes share (dlperf_shared_dir)"
    )
    return {"name": name, "argv": ["cat", f"{folder}/{host}"], "expect": f"^{re.escape(host)}$"}


def groups(names: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Nodes that lack the same environment, in order: the first makes it, the others take it. Nodes
    whose facts provisioning has not gathered make their own, as do nodes that are alone with their
    release and Python."""
    lacking: dict[str, dict[str, Any]] = {}
    for name in names:
        facts = hostvars[name].get("ansible_facts", {})
        node = hostvars[name].get("dlperf_node") if facts.get("dlperf_node") else None
        if not node:
            continue
        system = [facts.get(key) for key in ("architecture", "distribution_release")]
        for item in hostvars[name].get("framework_environments", []):
            kind = [item["path"], system, node["python_version"], node["interpreter"], inputs(item)]
            if item["path"] not in node["complete"]:
                group = {"name": item["name"], "path": item["path"], "nodes": []}
                lacking.setdefault(json.dumps(kind), group)["nodes"].append(name)
    return [group for group in lacking.values() if len(group["nodes"]) > 1]


def places(groups: Sequence[Mapping[str, Any]], host: str, folder: str) -> list[dict[str, Any]]:
    """A node's place in the tree of each group: `sources` are the nodes above it, up to the one
    that makes the environment. Each node gives it to at most two others (`keep`: to any)."""
    placed = []
    for group in groups:
        nodes = group["nodes"]
        if host in nodes:
            place, sources = nodes.index(host), []
            while place:
                place = (place - 1) // 2
                sources.append(nodes[place])
            placed.append(
                {
                    "path": group["path"],
                    "archive": f"{folder}/{group['name']}.tar",
                    "sources": sources,
                    "keep": 2 * nodes.index(host) + 1 < len(nodes),
                }
            )
    return placed


def offer(place: Mapping[str, Any], hostvars: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """SHA-256 and size of the archive of the node that has made the environment; empty if it has
    failed."""
    offered = hostvars[place["sources"][-1]].get("__framework_offered", {}).get("results", [])
    keys = ("sha256", "size")
    for result in offered:
        if result["item"]["path"] == place["path"] and "sha256" in result:
            return {key: result[key] for key in keys}
    return {}


def horovod_build_options(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The configurable inputs of a wheel's build."""
    horovod = environment["horovod"]
    requirements = read_text(Path(horovod["requirements"])).rstrip()
    digest = hashlib.sha256(requirements.encode()).hexdigest()
    return {"environment": horovod["build_environment"], "requirements": digest}


def horovod_inputs(
    environment: Mapping[str, Any], mpirun: str, interface: str, arguments: Sequence[str]
) -> dict[str, Any]:
    """The inputs of the verification, except the wheel's key, which only the node knows."""
    variables = environment.get("variables")
    return {
        **({"variables": variables} if variables else {}),
        **({"device": environment["device"]} if environment.get("device") else {}),
        "version": environment["horovod"]["version"],
        "options": horovod_build_options(environment),
        "mpirun": mpirun,
        "interface": interface,
        "arguments": list(arguments),
    }


def horovod_stands(proven: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """True if these inputs were verified, with any wheel."""
    return {key: value for key, value in proven.items() if key != "wheel"} == wanted


def horovod_unproven(
    environments: Sequence[Mapping[str, Any]],
    proven: Mapping[str, Any],
    complete: Sequence[str] | None,
    *chosen: Any,
) -> list[Mapping[str, Any]]:
    """The environments in which Horovod was not verified as chosen (see `horovod_inputs`), and
    those that were not `complete` (paths; None if unknown) when provisioning began."""
    return [
        item
        for item in environments
        if (complete is not None and item["path"] not in complete)
        or not horovod_stands(
            proven.get(f"horovod-{item['name']}", {}), horovod_inputs(item, *chosen)
        )
    ]


def wheel_refusal(path: str) -> str:
    """The reason why a wheel of Horovod must not be installed; empty if it is safe. Root starts the
    environment's Python (uv asks for its version), which runs every .pth file: so the wheel may
    contain only the package, its metadata and its command."""
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        strange = [m.filename for m in archive.infolist() if not is_part_of_horovod(m)]
        for name in names - set(strange):
            text = archive.read(name).decode(errors="replace") if ".dist-info/" in name else ""
            if name.endswith("/RECORD"):  # what uninstalling removes
                strange += [row[0] for row in csv.reader(text.splitlines()) if row[0] not in names]
            elif name.endswith("/entry_points.txt"):
                commands = re.findall(r"(?m)^\s*([^\s=\[]+)\s*=", text)
                strange += [command for command in commands if command != "horovodrun"]
    if not strange:
        return ""
    return f"{path}: {strange[0]!r} is not part of Horovod. Inspect its source before you run again"


def is_part_of_horovod(member: zipfile.ZipInfo) -> bool:
    name, mode = member.filename, member.external_attr >> 16
    data = r"data/((pure|plat)lib/horovod/|scripts/horovodrun$)"
    within = rf"horovod/|horovod-[^/]+\.(dist-info/|{data})"
    is_plain = stat.S_IFMT(mode) in (0, stat.S_IFREG, stat.S_IFDIR) and not mode & 0o6000
    return bool(re.match(within, name)) and ".." not in name.split("/") and is_plain
