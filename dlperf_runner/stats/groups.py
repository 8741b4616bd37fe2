"""Group cases into tables, and title each table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from ..core.frame import Frame, plain_rows, throughput
from ..core.identity import (
    CASE,
    GROUP,
    TOPOLOGY,
    CaseKey,
    batch_text,
    label,
    read_parameters,
    value_text,
)
from ..core.lists import grouped
from ..core.units import BANDWIDTH, per_second

_TABLE = (*GROUP, "unit")  # what the cases of a table have in common


@dataclass
class CaseRates:
    """The throughput of the valid runs of a case, its unit and estimator, and the settings that no
    log confirms."""

    unit: str
    estimator: str
    values: list[float] = field(default_factory=list)
    statements: dict[str, None] = field(default_factory=dict)

    @property
    def stated(self) -> str | None:
        return "; ".join(self.statements) or None


def rates_by_case(frame: Frame) -> dict[CaseKey, CaseRates]:
    """The throughput of the cases with valid runs, in the order of the frame."""
    rates: dict[CaseKey, CaseRates] = {}
    rows = throughput(frame)
    columns = rows[["unit", "estimator", "value", "stated"]]
    for case, (unit, estimator, value, stated) in zip(
        plain_rows(rows[list(CASE)]), plain_rows(columns), strict=True
    ):
        of_case = rates.setdefault(case, CaseRates(unit, estimator))
        of_case.values.append(value)
        of_case.statements |= {stated: None} if stated else {}
    return rates


def by_group(cases: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The cases of each table, by its title."""
    groups = grouped(cases, itemgetter(*_TABLE))
    return dict(zip(titles(list(groups)), groups.values(), strict=True))


def titles(groups: Sequence[tuple[Any, ...]]) -> list[str]:
    """A title for each group. Where several would have the same, each names what they differ in."""
    keys = [dict(zip(_TABLE, group, strict=True)) for group in groups]
    names = [title(key) for key in keys]
    for column in _TABLE:
        by_name: dict[str, set[object]] = {}
        for name, key in zip(names, keys, strict=True):
            by_name.setdefault(name, set()).add(key[column])
        names = [
            f"{name}, {label(column)} {value_text(key[column])}" if len(by_name[name]) > 1 else name
            for name, key in zip(names, keys, strict=True)
        ]
    return names


def workload_title(key: Mapping[str, Any]) -> str:
    """The workload and its source, with its model unless they name it."""
    name = " ".join(filter(None, (key["workload"], key["source"])))
    return name if key["model"] in name else f"{name} ({key['model']})"


def short_digest(container: str) -> str:
    """An image with the first digits of its digest."""
    return re.sub(r"(sha256:[0-9a-f]{12})[0-9a-f]+", r"\1", container)


def title(key: Mapping[str, Any]) -> str:
    """The title of a table: `mxnet-resnet50v1b builtin, fp32, batch size 128 per device, cpu`. Its
    key has the columns of GROUP and, if its cases are measured, their `unit`."""
    parts = [workload_title(key), key["precision"]]
    if key.get("unit") != per_second(BANDWIDTH):
        parts.append(batch_text(key["batch_size_per_device"]))
    if key["parameters"]:
        parts.append(key["parameters"])
    if key["framework_version"]:
        parts.append(f"version {key['framework_version']}")
    # A stack often has the name of its accelerator; show it once.
    parts += dict.fromkeys(filter(None, (key["accelerator"], key["stack"])))
    if key["driver"]:
        parts.append(f"driver {key['driver']}")
    if key["container"]:
        parts.append("in " + short_digest(key["container"]))
    if key["directory"]:
        kind = "logs" if "*" in key["directory"] else "directory"
        parts.append(f"{kind} {key['directory']}")
    return ", ".join(parts)


Case = Mapping[str, Any]
CHOSEN = ("precision", "batch_size_per_device")  # settings beside the parameters
_RATE = "samples_per_second"


@dataclass(frozen=True)
class SweptTopology:
    """The cases of a sweep on one topology. `best` has the highest median. The intervals of
    `undecided` overlap that of `best`, or one of the two has no interval."""

    cases: tuple[Case, ...]
    best: Case
    undecided: tuple[Case, ...]


@dataclass(frozen=True)
class Sweep:
    """Cases that differ in the settings `axes` alone. `common` are their other parameters."""

    axes: tuple[str, ...]
    common: Mapping[str, str]
    places: tuple[SweptTopology, ...]


def setting(case: Case, axis: str) -> str | None:
    """The value of a case on an axis; None if the case does not state it."""
    value = case[axis] if axis in CHOSEN else read_parameters(case["parameters"]).get(axis)
    return None if value is None else str(value)


def sweeps(cases: Iterable[Case]) -> Iterator[Sweep]:
    """The sweeps of a table of `summarize`: groups of cases that differ in a parameter, or on one
    topology in the precision or the batch size alone."""
    same = ("campaign", *(n for n in CASE if n not in (*CHOSEN, *TOPOLOGY, "parameters")))
    for group in grouped(cases, lambda case: tuple(case.get(name) for name in same)).values():
        names = dict.fromkeys(name for c in group for name in read_parameters(c["parameters"]))
        varied = [n for n in names if len({setting(case, n) for case in group}) > 1]
        if varied or any(_varies_alone(group, name) for name in CHOSEN):
            chosen = [n for n in CHOSEN if len({case[n] for case in group}) > 1]
            first = read_parameters(group[0]["parameters"])
            common = {name: value for name, value in first.items() if name not in varied}
            yield Sweep((*chosen, *varied), common, tuple(_places(group)))


def _varies_alone(group: Iterable[Case], axis: str) -> bool:
    """True if cases on one topology differ in this chosen setting and in no other. A published
    matrix may have a batch size of its own for each precision, which compares neither."""
    others = [name for name in (*TOPOLOGY, *CHOSEN) if name != axis]
    stated = (case for case in group if case[axis] is not None)
    alike = grouped(stated, itemgetter(*others)).values()
    return any(len({case[axis] for case in cases}) > 1 for cases in alike)


def _places(group: Iterable[Case]) -> Iterator[SweptTopology]:
    by_topology = grouped(group, itemgetter("world_size", "nodes"))
    for _, cases in sorted(by_topology.items()):
        best = max(cases, key=lambda case: case[f"{_RATE}_median"])
        undecided = [case for case in cases if case is not best and not _below(case, best)]
        yield SweptTopology(tuple(cases), best, tuple(undecided))


def _below(case: Case, best: Case) -> bool:
    high, low = case.get(f"{_RATE}_ci_high"), best.get(f"{_RATE}_ci_low")
    return high is not None and low is not None and high < low
