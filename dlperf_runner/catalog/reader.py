"""The only reader of catalog/: frameworks, workloads and stacks as frozen, validated values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel

from .. import logs
from ..core.errors import UserError, unknown_name
from ..core.files import read_bytes
from ..core.node import Node
from ..core.paths import PACKAGE, own_catalog
from ..core.units import SAMPLES, Unit, per_second
from .entry import CATALOG as CATALOG
from .entry import display_path, load_entry, validated
from .stack import ADOPTED, merged, plain
from .workload import Environment, Framework, Stack, Workload


@dataclass(frozen=True)
class Catalog:
    """All frameworks, workloads and stacks, by name."""

    frameworks: Mapping[str, Framework]
    workloads: Mapping[str, Workload]
    stacks: Mapping[str, Stack]

    def framework(self, name: str, where: str | None = None) -> Framework:
        return lookup("framework", name, self.frameworks, where)

    def workload(self, name: str, where: str | None = None) -> Workload:
        return lookup("workload", name, self.workloads, where)

    def stack(self, name: str, where: str | None = None) -> Stack:
        return lookup("stack", name, self.stacks, where)

    def stack_of(self, node: Node) -> Stack:
        """The stack of a node, with the inventory's changes."""
        stack = self.stack(node.stack, f"host {node.name}: dlperf_stack")
        if not node.stack_overrides and not node.adopted:
            return stack
        where = f"host {node.name}: dlperf_stack_overrides"
        stack = changed_stack(stack, node.stack_overrides, where)
        values = stack.model_dump(exclude_unset=True)
        kept = {part: ADOPTED[part] for part in node.adopted if part in values}
        if "driver" in node.adopted and stack.rocm:  # of AMD
            kept.setdefault("rocm", {"driver": None})
        return validated(merged(values, kept), Stack, where) if kept else stack


def changed_stack(stack: Stack, overrides: Mapping[str, Any], where: str) -> Stack:
    """The stack with an inventory's changes (`dlperf_stack_overrides`)."""
    if "name" in overrides:
        raise UserError("a stack keeps its name", where=where, found="the key name")
    _refuse_unknown_nulls(Stack, overrides, where)
    return validated(merged(stack.model_dump(exclude_unset=True), plain(overrides)), Stack, where)


_T = TypeVar("_T")
_M = TypeVar("_M", Framework, Workload, Stack)


def lookup(kind: str, name: str, values: Mapping[str, _T], where: str | None = None) -> _T:
    """The value with this name. Raises a UserError that lists the known names if not found."""
    try:
        return values[name]
    except KeyError:
        raise unknown_name(kind, name, values, where) from None


def load_catalog(root: Path = CATALOG, kept: tuple[Path, ...] = ()) -> Catalog:
    """Read and validate the whole catalogue in `root`. This project's own is read once. `kept`: as
    in `own_workloads`."""
    if root != CATALOG:
        return _load_catalog(root)
    return _own_catalog(_folders(kept))


@cache
def _own_catalog(folders: tuple[Path, ...]) -> Catalog:
    return _load_catalog(CATALOG, folders)


def _refuse_unknown_nulls(model: type[BaseModel], changes: Mapping[str, Any], where: str) -> None:
    """A null removes a key, also from validation: one that no stack has would change nothing."""
    fields = model.model_fields
    for key, value in changes.items():
        if value is None and key not in fields:
            raise unknown_name("key", key, fields, where)
        kind = fields[key].annotation if key in fields else None
        parts = [each for each in get_args(kind) if hasattr(each, "model_fields")]
        if parts and isinstance(value, Mapping):
            _refuse_unknown_nulls(parts[0], value, f"{where}: {key}")


@cache
def own_stacks() -> Mapping[str, Stack]:
    """This project's stacks, without the rest of the catalogue."""
    return _load_all(CATALOG / "stacks", Stack)


def own_frameworks() -> Mapping[str, Framework]:
    """This project's frameworks and those of the user, without the rest of the catalogue."""
    return _frameworks(CATALOG, _folders())


@cache
def _frameworks(root: Path, folders: tuple[Path, ...]) -> Mapping[str, Framework]:
    frameworks = _load_all(root / "frameworks", Framework)
    for name, (path, framework) in _of_user(folders, "frameworks", Framework, frameworks).items():
        frameworks[name] = _with_paths(framework, path.parents[1])
    return frameworks


def own_workloads(kept: tuple[Path, ...] = ()) -> Mapping[str, Workload]:
    """This project's workloads and those of the user, without the rest of the catalogue. `kept`:
    the folders in which campaigns keep the user's entries that they used; those of the user's own
    folder come first."""
    return _workloads(_folders(kept))[0]


def format_named(name: str) -> logs.Format | None:
    """The log format with this name, built-in or of the user."""
    return logs.formats().get(name) or _workloads(_folders())[1].get(name)


def forget() -> None:
    """Read the user's folder again when it is needed: a file was written there."""
    _workloads.cache_clear()
    _frameworks.cache_clear()
    _own_catalog.cache_clear()


def files_to_keep(workloads: Iterable[str]) -> Iterator[tuple[Path, bytes]]:
    """The user's files that describe these workloads and their frameworks, with their paths in the
    user's folder."""
    folder = own_catalog()
    if folder is None:
        return
    entries = own_workloads()
    names = sorted(workloads)
    frameworks = sorted({entries[name].framework for name in names if name in entries})
    for kind, chosen in (("workloads", names), ("frameworks", frameworks)):
        for path in (folder / kind / f"{name}.yml" for name in chosen):
            if path.is_file():
                yield path.relative_to(folder), read_bytes(path, inside=folder)


def _folders(kept: tuple[Path, ...] = ()) -> tuple[Path, ...]:
    """The user's folder, then those of campaigns."""
    folder = own_catalog()
    return ((folder,) if folder else ()) + kept


def folder_of(workload: str) -> Path:
    """The folder in which the files of a workload lie: the user's own, or else the package's."""
    folder = own_catalog()
    is_own = folder is not None and (folder / "workloads" / f"{workload}.yml").is_file()
    return folder if folder is not None and is_own else PACKAGE.parent


@cache
def _workloads(
    folders: tuple[Path, ...],
) -> tuple[Mapping[str, Workload], Mapping[str, logs.Format]]:
    """The workloads, and the formats that their entries describe."""
    built_in = _load_all(CATALOG / "workloads", Workload)
    added = _of_user(folders, "workloads", Workload, built_in)
    forms = {
        workload.log_format: workload.log_pattern.format_named(workload.log_format)
        for workload in built_in.values()
        if workload.log_pattern is not None
    }
    for name, (path, workload) in added.items():
        built_in[name] = workload
        if workload.log_pattern is not None:
            where = f"{path}: log_format"
            _refuse_known("log format", workload.log_format, logs.formats(), where)
            forms[workload.log_format] = workload.log_pattern.format_named(workload.log_format)
    return built_in, forms


def _of_user(
    folders: tuple[Path, ...], kind: str, model: type[_M], built_in: Mapping[str, _M]
) -> dict[str, tuple[Path, _M]]:
    """The entries of a kind in the user's folders, each with its file. The first folder with a name
    counts if it is the user's own; those of campaigns must agree."""
    entries: dict[str, tuple[Path, _M]] = {}
    user_folder = own_catalog()
    for folder in folders:
        if not folder.is_dir():
            raise UserError(
                "no such directory",
                where=f"--catalog or DLPERF_CATALOG: {folder}",
                hint="create a workload in it: dlperf --catalog DIR init-workload",
            )
        for name, entry in _load_all(folder / kind, model).items():
            path = folder / kind / f"{name}.yml"
            _refuse_known(kind.removesuffix("s"), name, built_in, f"{path}: name")
            before, first = entries.setdefault(name, (path, entry))
            if first != entry and not (user_folder and before.is_relative_to(user_folder)):
                raise UserError(
                    "two campaigns have different files of a workload or framework",
                    where=str(path),
                    expected=f"that of {before}",
                    hint="name the folder to use: dlperf --catalog DIR",
                )
    return entries


def _refuse_known(kind: str, name: str, built_in: Mapping[str, object], where: str) -> None:
    if name in built_in:
        raise UserError(
            f"the name of a built-in {kind}", where=where, expected="another name", found=name
        )


def unit_of(workload: str | None) -> Unit:
    """The unit that the throughput of a workload counts; samples if the catalogue does not have
    it."""
    entry = own_workloads().get(workload or "")
    return entry.unit if entry else SAMPLES


def printed_unit(workload: str) -> str:
    """The unit of the rates in the log of a workload, such as tokens/s/device."""
    entry = own_workloads().get(workload)
    per = entry.rule.rates_are_per if entry else "world"
    if per == "step":
        return "steps/s"
    return per_second(unit_of(workload)) + ("" if per == "world" else f"/{per}")


def _load_catalog(root: Path, folders: tuple[Path, ...] = ()) -> Catalog:
    frameworks = _frameworks(root, folders)
    is_own = root == CATALOG
    workloads = _workloads(folders)[0] if is_own else _load_all(root / "workloads", Workload)
    stacks = own_stacks() if is_own else _load_all(root / "stacks", Stack)
    forms = {**logs.formats(), **_workloads(folders)[1]}
    for workload in workloads.values():
        path = _shown_path(root, folders, "workloads", workload.name)
        lookup("log format", workload.log_format, forms, f"{path}: log_format")
        if not workload.sources.items():
            continue
        framework = lookup("framework", workload.framework, frameworks, f"{path}: framework")
        for source_name, source in workload.sources.items():
            where = f"{path}: sources.{source_name}"
            if source.flavor is not None:
                lookup("flavor", source.flavor, framework.flavors, f"{where}.flavor")
            for stack in source.stacks:
                lookup("stack", stack, stacks, f"{where}.stacks")
    for framework in frameworks.values():
        path = _shown_path(root, folders, "frameworks", framework.name)
        for stack in framework.stacks:
            lookup("stack", stack, stacks, f"{path}: environments")
    return Catalog(frameworks, workloads, stacks)


def _with_paths(framework: Framework, folder: Path) -> Framework:
    """A framework of the user; the paths of its requirements are absolute."""

    def absolute(environments: Mapping[str, Environment]) -> dict[str, Environment]:
        return {
            stack: environment.model_copy(update={"requirements": f"{folder}/{path}"})
            if (path := environment.requirements)
            else environment
            for stack, environment in environments.items()
        }

    flavors = {name: absolute(stacks) for name, stacks in framework.flavors.items()}
    changes = {"environments": absolute(framework.environments), "flavors": flavors}
    return framework.model_copy(update=changes)


def _shown_path(root: Path, folders: tuple[Path, ...], kind: str, name: str) -> str:
    """The file of an entry, as shown to the user."""
    paths = [folder / kind / f"{name}.yml" for folder in (root, *folders)]
    return display_path(next((path for path in paths if path.is_file()), paths[0]))


def _load_all(directory: Path, model: type[_M]) -> dict[str, _M]:
    entries = (load_entry(path, model) for path in sorted(directory.glob("*.yml")))
    return {entry.name: entry for entry in entries}


PATHS = {"package": "/usr/bin/mpirun", "source": "/usr/local/openmpi/bin/mpirun"}


def mpirun_of(stack: str, overrides: Mapping[str, Any] | None = None) -> str:
    """The path of mpirun on nodes of the stack, with the inventory's changes. An unknown stack has
    the distribution's."""
    entry = own_stacks().get(stack)
    base = entry.openmpi.model_dump() if entry and entry.openmpi else {}
    openmpi = merged({"openmpi": base}, overrides or {}).get("openmpi")
    # Wrong values are reported where the stack is validated.
    method = openmpi.get("method") if isinstance(openmpi, Mapping) else None
    return PATHS.get(str(method), PATHS["package"])
