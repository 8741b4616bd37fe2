"""What the roles of GPU nodes install from vendors: repositories and files, where they come from,
and by what each is known. Read from the roles' release tables, the only place that says it.

A mirror has it at `vendor/<host>/<path>`, as the vendor has it at `https://<host>/<path>`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from ..catalog.framework import Environment
from ..catalog.reader import Catalog
from ..catalog.stack import Stack
from ..core.errors import UserError

ROOT = Path(__file__).parents[2]
FOLDER = "vendor"
# Systems by the code names that stacks have, as the roles call them.
SYSTEMS = {
    "xenial": "ubuntu16.04",
    "bionic": "ubuntu18.04",
    "focal": "ubuntu20.04",
    "jammy": "ubuntu22.04",
    "noble": "ubuntu24.04",
    "bookworm": "debian12",
}


@dataclass(frozen=True)
class VendorItem:
    """A repository's packages or a file; `known_by` is a key, a checksum, or the variable that
    the operator has to give a checksum in."""

    kind: str
    name: str
    wanted_by: str
    source: str
    known_by: str


@dataclass(frozen=True)
class VendorFile:
    """A file, by its address and checksum. The variables are the roles': where the operator gives
    another source, and the checksum that the table has not."""

    name: str
    wanted_by: str
    url: str
    sha256: str
    source_variable: str
    sha256_variable: str
    has_login: bool = False
    packages: str = ""

    @property
    def item(self) -> VendorItem:
        name = f"{self.name} {self.packages}".strip()
        source = self.url or f"{self.source_variable} of the operator"
        known_by = f"sha256 {self.sha256 or 'in ' + self.sha256_variable}"
        return VendorItem("file", name, self.wanted_by, source, known_by)


@dataclass(frozen=True)
class VendorRepository:
    """What a family takes of a repository; `pins` are (names or globs, version or glob)."""

    name: str
    wanted_by: str
    uri: str
    suite: str
    components: tuple[str, ...]
    key: str
    fingerprints: tuple[str, ...]
    key_sha256: str
    packages: tuple[tuple[str, str], ...]
    pins: tuple[tuple[tuple[str, ...], str], ...]

    @property
    def item(self) -> VendorItem:
        packages = " ".join(f"{name}={version}" for name, version in self.packages)
        source, known_by = f"{self.uri} {self.suite}", "key " + " ".join(self.fingerprints)
        return VendorItem("repository", packages, self.wanted_by, source, known_by)


@dataclass(frozen=True)
class _Table:
    role: str
    name: str
    version: str
    title: str
    source_variable: str = ""
    checksum_variable: str = ""


def vendor_items(stack: Stack, suite: str, root: Path = ROOT) -> list[VendorItem]:
    """`wanted` as it is listed."""
    return [thing.item for thing in wanted(stack, suite, root=root)]


def wanted(
    stack: Stack, suite: str, keys: Mapping[str, list[str]] | None = None, root: Path = ROOT
) -> list[VendorRepository | VendorFile]:
    """Everything that the stack's roles fetch from vendors for one system; what a role refuses
    there is left out. `keys` are dlperf_vendor_keys."""
    system = SYSTEMS.get(suite, suite)
    found: list[VendorRepository | VendorFile] = []
    for table in _tables(stack):
        variables = _variables(root / "roles" / table.role / "vars/main.yml")
        releases = variables[f"__{table.role}_{table.name}"]
        arguments = (releases, table.version, system, table.title, "the stack")
        if not _rules().refusal(*arguments):
            entry = _rules().release(*arguments)
            repositories = variables.get(f"__{table.role}_repositories", {})
            if "repository" in entry:
                found.append(_repository(table, entry, repositories, system, keys or {}))
            else:
                found.append(_file(table, entry))
    return [*found, *_sources(stack, root)]


def _sources(stack: Stack, root: Path) -> Iterator[VendorFile]:
    """What is built on a node, whatever its system."""
    for role, version in _built(stack).items():
        releases = _variables(root / f"roles/{role}/vars/main.yml")[f"__{role}_releases"]
        # A version that is not there comes with the operator's archive.
        entry = releases.get(version, {})
        url = entry.get("url", "")
        yield VendorFile(
            url.rpartition("/")[2] or f"{role}-{version}",
            role,
            url,
            entry.get("sha256", ""),
            f"{role}_archive",
            f"{role}_sha256",
        )
    if stack.infiniband and stack.infiniband.peer_memory == "nv_peer_mem":
        variables = ("infiniband_peer_memory_archive", "infiniband_peer_memory_sha256")
        yield VendorFile("nv_peer_mem", "infiniband", "", "", *variables)


def _built(stack: Stack) -> dict[str, str]:
    """Versions of what is built from source, by role."""
    built = {}
    if stack.openmpi and stack.openmpi.method == "source" and stack.openmpi.version:
        built["openmpi"] = stack.openmpi.version
    if stack.python:
        built["python"] = stack.python.version
    return built


def of_distribution(stack: Stack, root: Path = ROOT) -> Iterator[tuple[str, list[str]]]:
    """Packages of the distribution that only some nodes or methods need, by role; the headers of
    the nodes' kernel, which only nodes know, are not among them."""
    if stack.driver and stack.driver.method == "runfile":
        yield "nvidia_driver", ["gcc", "make"]
    if stack.infiniband and stack.infiniband.peer_memory == "nv_peer_mem":
        yield "infiniband (nv_peer_mem)", ["dkms", "gcc", "make"]
    if (runtime := stack.container_runtime) and not runtime.version:
        variables = _variables(root / "roles/container_runtime/vars/main.yml")
        engines = variables["__container_runtime_distribution_packages"]
        yield f"container_runtime ({runtime.engine})", engines[runtime.engine]
    if stack.infiniband and stack.infiniband.method == "inbox":
        defaults = _variables(root / "roles/infiniband/defaults/main.yml")
        yield "infiniband", defaults["infiniband_packages"]
    for role in _built(stack):
        defaults = _variables(root / f"roles/{role}/defaults/main.yml")
        yield f"{role} (building node)", defaults[f"{role}_build_packages"]


COLUMNS = ("kind", "name", "wanted by", "source", "known by")


def listing(
    catalog: Catalog, stack: Stack, suite: str, further: Sequence[str] = ()
) -> list[tuple[str, ...]]:
    """Everything that the stack needs on a system, in COLUMNS: from vendors, from the distribution
    (`further`: what the operator asks for besides), from the index of Python packages, from the
    operator. What packages depend on is known to the archives only."""
    require_suite(stack, suite)
    items = vendor_items(stack, suite)
    rows: list[tuple[str, ...]]
    rows = [(i.kind, i.name, i.wanted_by, i.source, i.known_by) for i in items]
    rows += [
        ("deb", " ".join(names), role, "the distribution", "its own key")
        for role, names in [
            *stack.apt_packages.items(),
            *of_distribution(stack),
            ("--package", further),
        ]
        if names
    ]
    rows.append(_requirements("requirements/uv.txt", "python_env"))
    interpreters: dict[str, list[str]] = {}
    for framework in catalog.frameworks.values():
        for name, environment in framework.environments_on(stack.name).items():
            rows += _of_environment(name, environment)
            # One that the stack builds is among the files.
            if environment.python and not stack.python:
                interpreters.setdefault(environment.python, []).append(name)
    source = "python_env_interpreter of the operator, where the distribution has none"
    rows += [
        ("interpreter", f"Python {python}", ", ".join(names), source, "its version")
        for python, names in interpreters.items()
    ]
    return rows


def _of_environment(name: str, environment: Environment) -> Iterator[tuple[str, ...]]:
    if path := environment.requirements:
        yield _requirements(path, name)
    for wheel in environment.operator_wheels:
        source = "dlperf_operator_wheels of the operator"
        yield ("wheel", f"{wheel.distribution} {wheel.version}", name, source, "sha256 in it")
    if horovod := environment.horovod:
        by = f"horovod ({name})"
        yield _requirements(horovod.requirements, by)
        yield _requirements(horovod.build_requirements, f"{by}, its build")
        if packages := " ".join(horovod.apt_build_packages):
            yield ("deb", packages, f"{by}, its build", "the distribution", "its own key")
    if image := environment.container:
        known_by = "digest in dlperf_container_images"
        yield ("image", image.image, name, "its registry", known_by)


def _requirements(path: str, wanted_by: str) -> tuple[str, ...]:
    return ("requirements", path, wanted_by, "a package index", "hashes in it")


def require_suite(stack: Stack, suite: str) -> None:
    """Refuse a system that the stack is not made for, with what its roles say against it."""
    if suite not in stack.suites:
        why = refusals(stack, suite)
        raise UserError(
            "the stack is not made for this suite",
            where="--suite",
            expected=" or ".join(stack.suites) or "a stack that names suites",
            found=suite,
            hint=why[0] if why else None,
        )


def as_text(rows: list[tuple[str, ...]]) -> str:
    """A paragraph per row: names and addresses are too long for columns."""
    return "\n".join(
        f"{kind} for {wanted_by}\n  {name}\n  from {source}\n  known by {known_by}\n"
        for kind, name, wanted_by, source, known_by in rows
    )


def refusals(stack: Stack, suite: str, root: Path = ROOT) -> list[str]:
    """Why what the stack names cannot be installed on a system."""
    system = SYSTEMS.get(suite, suite)
    said = []
    for table in _tables(stack):
        variables = _variables(root / "roles" / table.role / "vars/main.yml")
        releases = variables[f"__{table.role}_{table.name}"]
        said.append(_rules().refusal(releases, table.version, system, table.title, "the stack"))
    return [text for text in said if text]


def _tables(stack: Stack) -> Iterator[_Table]:
    if driver := stack.driver:
        name = "releases" if driver.method == "package" else "runfiles"
        variables = ("nvidia_driver_runfile", "nvidia_driver_sha256")
        yield _Table("nvidia_driver", name, driver.version, "the driver", *variables)
    if (fabric := stack.infiniband) and fabric.method == "mlnx_ofed" and fabric.version:
        variables = ("infiniband_archive", "infiniband_archive_sha256")
        yield _Table("infiniband", "ofeds", fabric.version, "MLNX_OFED", *variables)
    if stack.cuda:
        yield _Table("cuda", "releases", stack.cuda.version, "CUDA")
    if stack.cudnn:
        yield _Table("cudnn", "releases", stack.cudnn.version, "cuDNN")
    if stack.nccl:
        variables = ("nccl_archive", "nccl_archive_sha256")
        yield _Table("nccl", "releases", stack.nccl.version, "NCCL", *variables)
    if runtime := stack.container_runtime:
        if runtime.version:
            yield _Table("container_runtime", "engines", runtime.version, "Docker")
        yield _Table("container_runtime", "toolkits", runtime.toolkit, "the toolkit")


def _repository(
    table: _Table,
    entry: Mapping[str, Any],
    repositories: Mapping[str, Any],
    system: str,
    keys: Mapping[str, list[str]],
) -> VendorRepository:
    one = _rules().repository(repositories, entry["repository"], system, None, keys)
    return VendorRepository(
        one["name"],
        table.role,
        one["uri"],
        entry.get("suite", one["suite"]),
        tuple(one["components"]),
        one["key"],
        tuple(one["fingerprints"]),
        one.get("key_sha256", ""),
        tuple(entry["packages"].items()),
        tuple((tuple(pin["packages"]), pin["version"]) for pin in entry.get("pins", [])),
    )


def _file(table: _Table, entry: Mapping[str, Any]) -> VendorFile:
    file = entry.get("archive", entry)
    packages = entry.get("packages", {}).items()
    return VendorFile(
        file.get("name", file["url"].rpartition("/")[2]),
        table.role,
        file["url"],
        file.get("sha256", ""),
        table.source_variable,
        table.checksum_variable,
        # An archive that holds packages is what a vendor gives to who logs in.
        has_login="archive" in entry,
        packages=" ".join(f"{name}={version}" for name, version in packages),
    )


def address(url: str, mirror: str) -> str:
    """Where the roles look for a vendor's address behind a mirror."""
    found: str = _rules().address(url, mirror)
    return found


@cache
def _variables(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


def _rules() -> ModuleType:
    """The filters by which the roles themselves read their tables."""
    return of_the_roles("playbooks/filter_plugins/vendor.py")


@cache
def of_the_roles(name: str) -> ModuleType:
    """A module that Ansible has for nodes or roles, by its path in the project."""
    path = ROOT / name
    spec = importlib.util.spec_from_file_location(f"dlperf_roles_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
