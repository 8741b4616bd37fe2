"""The facts that provisioning queries and the arguments of its roles, from the catalogue."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from email import message_from_bytes
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

PATHS = ("requirements", "build_requirements")
ROOT = Path(__file__).parents[2]
UV, PYTHON, ENVIRONMENTS = "/opt/dlperf/uv", "/opt/dlperf/python", "/opt/dlperf/envs"


def query(choice: Mapping[str, Any], root: str = str(ROOT)) -> dict[str, Any]:
    """The arguments of the module node_facts, which provisioning runs before any change.

    `choice` holds the inventory's settings; playbooks/provision.yml lists its keys.
    """
    chosen = _chosen(choice, root)
    return {
        "interpreter": chosen.interpreter,
        "packages": [name.partition("=")[0] for name in chosen.packages],
        "user": choice["user"],
        "limits": choice["limits"],
        "environments": [UV, *(item["path"] for item in chosen.environments)],
        "builds": [PYTHON],
        "links": [ENVIRONMENTS],
    }


def for_node(
    choice: Mapping[str, Any],
    node: Mapping[str, Any],
    mesh: Mapping[str, Any],
    root: str = str(ROOT),
) -> dict[str, Any]:
    """The variables that provisioning sets on a node.

    `dlperf_node` holds the facts of the module node_facts, but for environments only the paths of
    those that match their pins (`complete`).
    `provision_roles` and `provision_preflights` list the roles to run and to check; all other
    variables are arguments of roles. Unless all nodes have verified the same `mesh`, the node's
    own record of it does not count.
    """
    chosen = _chosen(choice, root)
    stack, apt, environments = chosen.stack, chosen.stack["apt_packages"], chosen.environments
    openmpi = {"method": "package", "version": "", **stack.get("openmpi", {})}
    has_gpus, is_built = stack["accelerator"] == "gpu", openmpi["method"] == "source"
    pulled = images(choice["frameworks"], choice["stack"], root, choice["container_images"])
    if not any(item["libraries"] for item in environments):
        stack = {key: value for key, value in stack.items() if key != "cuda_libraries"}
    # If the interpreter is missing, the stack's own will be installed.
    version = node["python_version"] or chosen.python or None
    # Environments made with a Python that will be removed are lost.
    there = {} if node["builds"] and not chosen.python else node["environments"]
    link = choice["shared"] and f"{choice['shared']}/envs"
    if node["links"].get(ENVIRONMENTS, "") != link:  # the inventory means others
        there = {path: found for path, found in there.items() if not path.startswith(ENVIRONMENTS)}
    uv = {"path": UV, "requirements": f"{root}/requirements/uv.txt"}
    needed = {
        "node_base": True,
        "time_service": bool(choice["time"]),
        "gpu_node": has_gpus,
        "ssh_mesh": chosen.has_mesh,
        "openmpi": True,
        "python": bool(chosen.python or node["builds"]),
        "python_env": True,
        "framework": True,
        "horovod": True,
        "container": bool(chosen.has_containers or pulled),
        "dataset": bool(choice["datasets"]),
        "slurm": bool(choice["slurm"]),
    }
    refusing = {
        "node_base": bool(choice["mirror"]),
        "time_service": bool(choice["time"]),
        "python_env": True,
        "framework": bool(choice["shared"]),
        "gpu_node": has_gpus,
        "openmpi": is_built,
        "python": bool(chosen.python),
        "dataset": bool(choice["datasets"]),
        "slurm": bool(choice["slurm"]),
    }
    toolkit = re.match(r"\d+\.\d+", stack["cuda"]["version"]) if "cuda" in stack else None
    if "container_runtime" in stack:
        stack = {**stack, "container_runtime": choice["container_runtime"]}
    tensor = ("name", "path", "import_name", "tensor", "eager")
    keys = (*tensor, "device", "requirements", "operator_wheels", "libraries", "variables")
    keys = (*keys, "apt_packages")
    return {
        "provision_roles": [role for role, is_needed in needed.items() if is_needed],
        "provision_preflights": [role for role, is_needed in refusing.items() if is_needed],
        "dlperf_node": {
            **{key: value for key, value in node.items() if key != "environments"},
            "python_version": version,
            "complete": complete([uv, *environments], there, version or ""),
            "stamps": {k: v for k, v in node["stamps"].items() if mesh or k != "ssh_mesh"},
        },
        "node_base_packages": chosen.packages,
        "gpu_node_stack": stack if has_gpus else {},
        "ssh_mesh_packages": apt["ssh_mesh"],
        "openmpi_method": openmpi["method"],
        "openmpi_version": openmpi["version"],
        "openmpi_cuda": f"/usr/local/cuda-{toolkit.group()}" if toolkit else "",
        "openmpi_mpirun": choice["mpirun"],
        "openmpi_packages": apt["openmpi"],
        "python_version": chosen.python,
        "python_env_packages": apt["python_env"],
        "python_env_own_interpreter": chosen.own_interpreter,
        "python_env_environments": only(environments, "name", "requires_python"),
        "framework_environments": only(environments, *keys),
        "framework_interpreter": chosen.interpreter,
        "horovod_environments": only(
            environments,
            *("name", "path", "distribution", "tensor", "eager", "device"),
            *("requirements", "horovod"),
            "variables",
        ),
        "horovod_interpreter": chosen.interpreter,
        "horovod_mpirun": choice["mpirun"],
        "container_engine": choice["container_runtime"]["engine"],
        "container_packages": apt.get("container", ["podman"]),
        "container_environments": (
            only(environments, *tensor, "horovod")
            + only([item for item in environments if "horovod" not in item], *tensor)
            if chosen.has_containers
            else []
        ),
        "container_images": pulled,
        "container_mpirun": choice["mpirun"],
        "slurm_mpirun": choice["mpirun"],
    }


class _Chosen(NamedTuple):
    """Values that depend only on the inventory's settings, not on the node."""

    stack: dict[str, Any]
    environments: list[dict[str, Any]]
    packages: list[str]
    python: str
    own_interpreter: str
    interpreter: str
    has_mesh: bool
    has_containers: bool


def _chosen(choice: Mapping[str, Any], root: str) -> _Chosen:
    stack = choice["stack_document"]
    given, stacks_own = choice["interpreter"], stack.get("python", {}).get("version", "")
    python = "" if given else choice["python"] or stacks_own
    own_interpreter = f"{PYTHON}/bin/python3" if python else "/usr/bin/python3"
    # A single node needs neither a mesh nor sshd.
    has_mesh = int(choice["nodes"]) > 1
    # A GPU stack pins and installs its own container engine.
    has_containers = bool(choice["container_engine"]) and stack["accelerator"] == "cpu"
    has = {"ssh_mesh": has_mesh, "container": has_containers, "time_service": choice["time"]}
    # The role slurm installs these itself, on its controller.
    has |= {"slurm": choice["slurm"], "slurm_accounting": False}
    packages = [
        name
        for role, names in stack["apt_packages"].items()
        if has.get(role, True)
        for name in names
    ]
    wheels, digests = choice["operator_wheels"], choice["container_images"]
    chosen = environments(choice["frameworks"], choice["stack"], root, wheels, images=digests)
    # NumPy stands for a framework without tensors.
    for item in chosen:
        on_gpu = stack["accelerator"] == "gpu" and not item["tensor"].startswith("numpy.")
        item["device"] = "gpu" if on_gpu else ""
    packages += [name for item in chosen for name in item["apt_packages"]]
    return _Chosen(
        stack=stack,
        environments=chosen,
        packages=list(dict.fromkeys(packages)),
        python=python,
        own_interpreter=own_interpreter,
        interpreter=given or own_interpreter,
        has_mesh=has_mesh,
        has_containers=has_containers,
    )


def refusal(choice: Mapping[str, Any], root: str = str(ROOT)) -> str:
    """Why the catalogue and the operator's wheels cannot serve the choice; empty if they can."""
    try:
        _chosen(choice, root)
    except ValueError as error:
        return str(error)
    return ""


def document(name: str, root: str, kind: str = "") -> dict[str, Any]:
    """A document of the catalogue; the error for an unknown name lists the known ones.

    Ansible's from_yaml would take 20 ms per document.
    """
    files = _files(root, kind)
    path = files.get(name)
    if path is None:
        known = ", ".join(sorted(files))
        raise ValueError(f"unknown name {name} in {kind}; known names: {known}")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506  both are safe


def _files(root: str, kind: str) -> dict[str, Path]:
    """The documents of a kind by name: the catalogue's, and those of the user's own folder."""
    own = os.environ.get("DLPERF_CATALOG")
    folders = [*([Path(own)] if own else []), Path(root, "dlperf_runner", "catalog")]
    return {path.stem: path for folder in folders for path in (folder / kind).glob("*.yml")}


def _place(root: str, name: str) -> str:
    """The folder below which the files of a framework lie."""
    path = _files(root, "frameworks")[name]
    return root if path.is_relative_to(Path(root, "dlperf_runner")) else str(path.parents[1])


def environments(
    names: Sequence[str],
    stack: str,
    root: str,
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


def images(names: Sequence[str], stack: str, root: str, digests: Mapping[str, str]) -> list[str]:
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
    files = _files(root, "frameworks")
    for base in (name, *(stem for stem in files if name.startswith(stem))):
        if base in files:
            framework = document(base, root, "frameworks")
            if base == name:
                return framework, framework["environments"]
            flavors = framework.get("flavors", {})
            if (flavor := name.removeprefix(f"{base}-")) in flavors:
                return framework, flavors[flavor]
    return document(name, root, "frameworks"), {}


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


def only(items: Sequence[Mapping[str, Any]], *keys: str) -> list[dict[str, Any]]:
    """The items reduced to these keys; items that lack a key are left out."""
    return [{key: item[key] for key in keys} for item in items if all(key in item for key in keys)]


def as_pinned(requirements: str, environment: Mapping[str, Any] | None, python: str) -> bool:
    """Whether an environment (from the module node_facts) matches the pinned requirements.

    `python` is the version of the interpreter to make it with.
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
        installed = have.get(re.sub(r"[-_.]+", "-", pin.name).lower())
        if not installed or installed["version"] not in pin.specifier or pin.url:
            return False
    return True


def complete(
    items: Sequence[Mapping[str, Any]], there: Mapping[str, Any], python: str
) -> list[str]:
    """Paths of the environments that match their requirements files and Python version.

    `there` holds the existing environments by path, from the module node_facts."""
    return [
        item["path"]
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
            "provision_for_node": for_node,
            "provision_only": only,
            "provision_query": query,
            "provision_refusal": refusal,
        }
