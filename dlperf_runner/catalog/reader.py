"""The only reader of catalog/: frameworks, workloads and stacks as frozen, validated values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from .. import logs
from ..core.errors import UserError
from ..core.units import SAMPLES, Unit, per_second
from .entry import CATALOG as CATALOG
from .entry import load_entry as load_entry
from .entry import read_entry as read_entry
from .entry import shown
from .types import listed
from .workload import Framework, Stack, Workload


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


_T = TypeVar("_T")
_M = TypeVar("_M", Framework, Workload, Stack)


def lookup(kind: str, name: str, known: Mapping[str, _T], where: str | None = None) -> _T:
    """The value with this name. Raises a UserError that lists the known names if not found."""
    try:
        return known[name]
    except KeyError:
        raise UserError(
            f"unknown {kind} {name!r}", where=where, expected=f"one of {listed(known)}"
        ) from None


def load_catalog(root: Path = CATALOG) -> Catalog:
    """Read and validate the whole catalogue in `root`. This project's own is read once."""
    return _own_catalog() if root == CATALOG else _load_catalog(root)


@cache
def _own_catalog() -> Catalog:
    return _load_catalog(CATALOG)


@cache
def own_workloads() -> Mapping[str, Workload]:
    """This project's workloads, without the rest of the catalogue."""
    return _load_all(CATALOG / "workloads", Workload)


def unit_of(workload: str | None) -> Unit:
    """What the throughput of a workload counts; samples if the catalogue does not have it."""
    entry = own_workloads().get(workload or "")
    return entry.unit if entry else SAMPLES


def printed_unit(workload: str) -> str:
    """The unit of the rates in the log of a workload, such as tokens/s/device."""
    entry = own_workloads().get(workload)
    per = entry.rule.rates_are_per if entry else "world"
    if per == "step":
        return "steps/s"
    return per_second(unit_of(workload)) + ("" if per == "world" else f"/{per}")


def _load_catalog(root: Path) -> Catalog:
    frameworks = _load_all(root / "frameworks", Framework)
    workloads = own_workloads() if root == CATALOG else _load_all(root / "workloads", Workload)
    stacks = _load_all(root / "stacks", Stack)
    for workload in workloads.values():
        path = root / "workloads" / f"{workload.name}.yml"
        of = lookup("framework", workload.framework, frameworks, f"{shown(path)}: framework")
        lookup("log format", workload.log_format, logs.formats(), f"{shown(path)}: log_format")
        for source_name, source in workload.sources.items():
            if source.flavor is not None:
                where = f"{shown(path)}: sources.{source_name}.flavor"
                lookup("flavor", source.flavor, of.flavors, where)
            for stack in source.stacks:
                lookup("stack", stack, stacks, f"{shown(path)}: sources.{source_name}.stacks")
    for framework in frameworks.values():
        path = root / "frameworks" / f"{framework.name}.yml"
        for stack in framework.stacks:
            lookup("stack", stack, stacks, f"{shown(path)}: environments")
    return Catalog(frameworks, workloads, stacks)


def _load_all(directory: Path, model: type[_M]) -> dict[str, _M]:
    entries = (load_entry(path, model) for path in sorted(directory.glob("*.yml")))
    return {entry.name: entry for entry in entries}
