"""What the roles of GPU nodes install from vendors: repositories and files, where they come from,
and by what each is known. Read from the roles' release tables, the only place that says it.

A mirror has it at `vendor/<host>/<path>`, as the vendor has it at `https://<host>/<path>`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from dlperf_runner.catalog import Catalog
from dlperf_runner.entry_stack import Stack

ROOT = Path(__file__).parents[2]
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
class _Table:
    role: str
    name: str
    version: str
    title: str
    checksum_variable: str = ""


def vendor_items(stack: Stack, suite: str, root: Path = ROOT) -> list[VendorItem]:
    """Everything that the stack's roles fetch from vendors for one system; what a role refuses
    there is left out."""
    system = SYSTEMS.get(suite, suite)
    found: list[VendorItem] = []
    for table in _tables(stack):
        variables = _variables(root / "roles" / table.role / "vars/main.yml")
        releases = variables[f"__{table.role}_{table.name}"]
        arguments = (releases, table.version, system, table.title, "the stack")
        if not _rules().refusal(*arguments):
            entry = _rules().release(*arguments)
            found += _items(table, entry, variables.get(f"__{table.role}_repositories", {}), system)
    return [*found, *_sources(stack, root)]


def _sources(stack: Stack, root: Path) -> Iterator[VendorItem]:
    """What is built on a node, whatever its system."""
    if stack.openmpi and stack.openmpi.method == "source":
        releases = _variables(root / "roles/openmpi/vars/main.yml")["__openmpi_releases"]
        # A version that is not there comes with the operator's archive.
        entry = releases.get(stack.openmpi.version, {})
        url = entry.get("url", "openmpi_archive of the operator")
        name = url.rpartition("/")[2] if entry else f"openmpi-{stack.openmpi.version}"
        known_by = f"sha256 {entry.get('sha256', 'in openmpi_sha256')}"
        yield VendorItem("file", name, "openmpi", url, known_by)
    if stack.infiniband and stack.infiniband.peer_memory == "nv_peer_mem":
        source = "infiniband_peer_memory_archive of the operator"
        known_by = "sha256 in infiniband_peer_memory_sha256"
        yield VendorItem("file", "nv_peer_mem", "infiniband", source, known_by)


def _distribution(stack: Stack, root: Path) -> Iterator[tuple[str, list[str]]]:
    """Packages of the distribution that only some nodes or methods need, by role."""
    if stack.infiniband and stack.infiniband.method == "inbox":
        defaults = _variables(root / "roles/infiniband/defaults/main.yml")
        yield "infiniband", defaults["infiniband_packages"]
    if stack.openmpi and stack.openmpi.method == "source":
        defaults = _variables(root / "roles/openmpi/defaults/main.yml")
        yield "openmpi (building node)", defaults["openmpi_build_packages"]


COLUMNS = ("kind", "name", "wanted by", "source", "known by")


def listing(catalog: Catalog, stack: Stack, suite: str) -> list[tuple[str, ...]]:
    """Everything that the stack needs on a system, in COLUMNS: from vendors, from the distribution,
    from the index of Python packages."""
    items = vendor_items(stack, suite)
    rows: list[tuple[str, ...]]
    rows = [(i.kind, i.name, i.wanted_by, i.source, i.known_by) for i in items]
    rows += [
        ("deb", " ".join(names), role, "the distribution", "its own key")
        for role, names in [*stack.apt_packages.items(), *_distribution(stack, ROOT)]
    ]
    for framework in catalog.frameworks.values():
        environment = framework.environments.get(stack.name)
        if environment and (path := environment.requirements):
            rows.append(("requirements", path, framework.name, "a package index", "hashes in it"))
    return rows


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
        yield _Table("nvidia_driver", name, driver.version, "the driver", "nvidia_driver_sha256")
    if (fabric := stack.infiniband) and fabric.method == "mlnx_ofed" and fabric.version:
        yield _Table(
            "infiniband", "ofeds", fabric.version, "MLNX_OFED", "infiniband_archive_sha256"
        )
    if stack.cuda:
        yield _Table("cuda", "releases", stack.cuda.version, "CUDA")
    if stack.cudnn:
        yield _Table("cudnn", "releases", stack.cudnn.version, "cuDNN")
    if stack.nccl:
        yield _Table("nccl", "releases", stack.nccl.version, "NCCL", "nccl_archive_sha256")
    if runtime := stack.container_runtime:
        if runtime.version:
            yield _Table("container_runtime", "engines", runtime.version, "Docker")
        yield _Table("container_runtime", "toolkits", runtime.toolkit, "the toolkit")


def _items(
    table: _Table, entry: Mapping[str, Any], repositories: Mapping[str, Any], system: str
) -> Iterator[VendorItem]:
    packages = " ".join(f"{name}={version}" for name, version in entry.get("packages", {}).items())
    if "repository" in entry:
        one = _rules().repository(repositories, entry["repository"], system, None, {})
        suite = entry.get("suite", one["suite"])
        source = f"{one['uri']} {suite}"
        known_by = "key " + " ".join(one["fingerprints"])
        yield VendorItem("repository", packages, table.role, source, known_by)
        return
    file = entry.get("archive", entry)
    checksum = file.get("sha256")
    known_by = f"sha256 {checksum}" if checksum else f"sha256 in {table.checksum_variable}"
    name = file.get("name", file["url"].rpartition("/")[2])
    yield VendorItem("file", f"{name} {packages}".strip(), table.role, file["url"], known_by)


@cache
def _variables(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


@cache
def _rules() -> ModuleType:
    """The filters by which the roles themselves read their tables."""
    path = ROOT / "playbooks/filter_plugins/vendor.py"
    spec = importlib.util.spec_from_file_location("dlperf_vendor_rules", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
