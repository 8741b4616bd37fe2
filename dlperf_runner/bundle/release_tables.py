"""Vendors' items that a stack's roles install: repositories and files, with their addresses and the
keys or checksums that verify them.

The roles' release tables (roles/*/vars/main.yml) and playbooks/vars/vendor_repositories.yml say it;
here they are read as data. A mirror has https://<host>/<path> at `vendor/<host>/<path>`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import yaml

from ..catalog.stack import Stack
from ..catalog.suites import RELEASES, SYSTEMS
from ..core import paths
from ..core.errors import UserError
from ..core.files import read_text
from ..provision import vendor

# The version of a package of which nodes install the newest.
ANY = "*"


class VendorItem(NamedTuple):
    """A repository's packages, or a file. `known_by`: a key, a checksum, or the variable in which
    the operator gives the checksum."""

    kind: str
    name: str
    wanted_by: str
    source: str
    known_by: str


@dataclass(frozen=True)
class VendorFile:
    """A file with its address and checksum. In the two role variables the operator gives another
    source, and a checksum that the table lacks."""

    name: str
    wanted_by: str
    url: str
    sha256: str
    source_variable: str
    sha256_variable: str
    has_login: bool = False
    packages: str = ""
    is_optional: bool = False  # wanted only if the operator gives it

    @property
    def item(self) -> VendorItem:
        name = f"{self.name} {self.packages}".strip()
        source = self.url or f"{self.source_variable} of the operator"
        known_by = f"sha256 {self.sha256 or 'in ' + self.sha256_variable}"
        return VendorItem("file", name, self.wanted_by, source, known_by)


@dataclass(frozen=True)
class VendorRepository:
    """The packages that a role installs from a repository. `pins`: (names or globs, version or
    glob). `unpacked`: packages that the role unpacks beside installed ones, without their
    dependencies."""

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
    unpacked: tuple[tuple[str, str], ...] = ()

    @property
    def item(self) -> VendorItem:
        packages = " ".join(f"{n}={version}" for n, version in (*self.packages, *self.unpacked))
        source, known_by = f"{self.uri} {self.suite}", "key " + " ".join(self.fingerprints)
        return VendorItem("repository", packages, self.wanted_by, source, known_by)


@dataclass(frozen=True)
class ReleaseTable:
    """A role's release table, and the version that the stack takes from it."""

    role: str
    name: str
    version: str
    title: str
    source_variable: str = ""
    sha256_variable: str = ""
    packages: Mapping[str, str] | None = None

    def arguments(self, system: str) -> tuple[Any, ...]:
        """The arguments of vendor.release and vendor.refusal."""
        releases = role_variables(self.role)[f"__{self.role}_{self.name}"]
        return (releases, self.version, system, self.title, "the stack", self.packages)


def wanted(
    stack: Stack, suite: str, keys: Mapping[str, list[str]] | None = None
) -> list[VendorRepository | VendorFile]:
    """Everything that the stack's roles fetch from vendors for one system, without what a role
    refuses there. `keys`: as dlperf_vendor_keys."""
    system = _system(stack, suite)
    things: list[VendorRepository | VendorFile] = []
    for table in tables(RELEASES.on(suite, stack)):
        if vendor.refusal(*table.arguments(system)):
            continue
        entry = vendor.release(*table.arguments(system))
        if "repository" in entry:
            things += _repositories(table, entry, system, keys or {})
        elif "parts" not in entry:
            things.append(_file(table, entry))
        for part in entry.get("parts", ()):
            things.append(_repository(table.role, part, system, keys or {}, is_unpacked=True))
        if source := entry.get("source"):
            # What nodes build without the operator's archive.
            things.append(_source(f"{table.role}_source", table.role, source))
    for role, version in _built(stack).items():
        # The operator gives the archive of a version that the table lacks.
        source = role_variables(role)[f"__{role}_releases"].get(version, {})
        things.append(_source(role, role, source, f"{role}-{version}"))
    if stack.infiniband and stack.infiniband.peer_memory == "nv_peer_mem":
        names = ("infiniband_peer_memory_archive", "infiniband_peer_memory_sha256")
        things.append(VendorFile("nv_peer_mem", "infiniband", "", "", *names, is_optional=True))
    return things


def _source(variables: str, role: str, entry: Mapping[str, Any], name: str = "") -> VendorFile:
    url, sha256 = entry.get("url", ""), entry.get("sha256", "")
    name = url.rpartition("/")[2] or name
    return VendorFile(name, role, url, sha256, f"{variables}_archive", f"{variables}_sha256")


def _built(stack: Stack) -> dict[str, str]:
    """Versions of what nodes build from source, by role."""
    built = {}
    if stack.openmpi and stack.openmpi.method == "source" and stack.openmpi.version:
        built["openmpi"] = stack.openmpi.version
    if stack.python:
        built["python"] = stack.python.version
    return built


def of_distribution(stack: Stack, suite: str) -> Iterator[tuple[str, list[str]]]:
    """Packages of the distribution that only some methods need, by role; without the headers of
    the nodes' kernel, whose version only the nodes know."""
    stack = RELEASES.on(suite, stack)
    if stack.driver and stack.driver.method == "runfile":
        yield "nvidia_driver", ["gcc", "make"]
    if stack.infiniband and stack.infiniband.peer_memory == "nv_peer_mem":
        yield "infiniband (nv_peer_mem)", ["dkms", "gcc", "make"]
    if (runtime := stack.container_runtime) and not runtime.version:
        engines = role_variables("container_runtime")["__container_runtime_distribution_packages"]
        yield f"container_runtime ({runtime.engine})", engines[runtime.engine]
    if stack.infiniband and stack.infiniband.method == "inbox":
        yield "infiniband", role_variables("infiniband", "defaults")["infiniband_packages"]
    for role in _built(stack):
        packages = role_variables(role, "defaults")[f"{role}_build_packages"]
        yield f"{role} (building node)", packages


def require_suite(stack: Stack, suite: str) -> None:
    """Refuse a system that the stack does not support, with the reason."""
    suites = [name for name in stack.suites if name in SYSTEMS]
    if suite not in suites:
        expected = " or ".join(suites) or "a stack that names suites"
        why = next(iter(refusals(stack, suite).values()), None)
        problem = "the stack does not support this suite"
        raise UserError(problem, where="--suite", expected=expected, found=suite, hint=why)


def refusals(stack: Stack, suite: str) -> dict[str, str]:
    """The versions of the stack that cannot be installed on a system, with the reasons."""
    system = _system(stack, suite)
    return {
        f"{table.title} {table.version}": reason
        for table in tables(RELEASES.on(suite, stack))
        if (reason := vendor.refusal(*table.arguments(system)))
    }


def _system(stack: Stack, suite: str) -> str:
    """The name of the suite, with the processor of the folder's nodes, in the tables."""
    return vendor.on_processor(SYSTEMS.get(suite, suite), stack.processors[0])


def tables(stack: Stack) -> Iterator[ReleaseTable]:
    """The table of a role for each part that the stack installs from its vendor."""
    if driver := stack.driver:
        name = "releases" if driver.method == "package" else "runfiles"
        files = ("nvidia_driver_runfile", "nvidia_driver_sha256")
        arguments = (name, driver.version, "the driver", *files, driver.packages)
        yield ReleaseTable("nvidia_driver", *arguments)
    if (fabric := stack.infiniband) and fabric.method == "mlnx_ofed" and fabric.version:
        files = ("infiniband_archive", "infiniband_archive_sha256")
        yield ReleaseTable("infiniband", "ofeds", fabric.version, "MLNX_OFED", *files)
    titles = {"cuda": "CUDA", "cudnn": "cuDNN", "cuda_libraries": "CUDA's libraries"}
    for role, title in titles.items():
        if part := getattr(stack, role):
            yield ReleaseTable(role, "releases", part.version, title)
    if stack.nccl:
        files = ("nccl_archive", "nccl_archive_sha256")
        yield ReleaseTable("nccl", "releases", stack.nccl.version, "NCCL", *files)
    if rocm := stack.rocm:
        yield ReleaseTable("rocm", "releases", rocm.version, "ROCm")
        if rocm.driver:
            yield ReleaseTable("rocm", "drivers", rocm.driver, "AMD's driver")
    if runtime := stack.container_runtime:
        role = "container_runtime"
        if version := runtime.version:
            engines = ("engines", version, "Docker")
            yield ReleaseTable(role, *engines, packages=runtime.packages)
        if runtime.toolkit:
            yield ReleaseTable(role, "toolkits", runtime.toolkit, "the toolkit")


def _repositories(
    table: ReleaseTable, entry: Mapping[str, Any], system: str, keys: Mapping[str, list[str]]
) -> Iterator[VendorRepository]:
    """The packages of a release for every node, and those for boards with NVSwitch, or with Arm
    processors for NVLink domains (NVL72), whose NVSwitches are in trays of their own."""
    yield _repository(table.role, entry, system, keys)
    role, packages = "fabric_manager", dict(entry.get("fabric_packages", {}))
    if system.endswith(vendor.ARM):
        role, packages = "imex", entry.get("imex_packages", {})
    elif nvlink5 := entry.get("nvlink5_packages"):
        names = role_variables(role)["__fabric_manager_nvlink5_packages"]
        packages |= nvlink5 | dict.fromkeys(names, ANY)
    if packages:
        yield _repository(role, {**entry, "packages": packages, "pins": []}, system, keys)


def _repository(
    role: str,
    entry: Mapping[str, Any],
    system: str,
    keys: Mapping[str, list[str]],
    *,
    is_unpacked: bool = False,
) -> VendorRepository:
    one = vendor.repository(entry["repository"], system, None, keys)
    packages = tuple(entry["packages"].items())
    return VendorRepository(
        one["name"],
        role,
        one["uri"],
        entry.get("suite", one["suite"]),
        tuple(one["components"]),
        one["key"],
        tuple(one["fingerprints"]),
        one.get("key_sha256", ""),
        () if is_unpacked else packages,
        tuple((tuple(pin["packages"]), pin["version"]) for pin in entry.get("pins", [])),
        packages if is_unpacked else (),
    )


def _file(table: ReleaseTable, entry: Mapping[str, Any]) -> VendorFile:
    file = entry.get("archive", entry)
    packages = entry.get("packages", {}).items()
    return VendorFile(
        file.get("name", file["url"].rpartition("/")[2]),
        table.role,
        file["url"],
        file.get("sha256", ""),
        table.source_variable,
        table.sha256_variable,
        # A vendor gives an archive of packages only after a login.
        has_login="archive" in entry,
        packages=" ".join(f"{name}={version}" for name, version in packages),
        is_optional="source" in entry,
    )


@cache
def role_variables(role: str, part: str = "vars") -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(
        read_text(paths.shipped() / f"roles/{role}/{part}/main.yml")
    )
    return loaded
