"""Sweeps: cases of one table's workload and environment that differ in chosen settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from ..core.identity import CASE, TOPOLOGY, read_parameters
from ..core.lists import grouped

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
    known = (case for case in group if case[axis] is not None)
    alike = grouped(known, itemgetter(*others)).values()
    return any(len({case[axis] for case in cases}) > 1 for cases in alike)


def _places(group: Iterable[Case]) -> Iterator[SweptTopology]:
    by_topology = grouped(group, itemgetter("world_size", "nodes"))
    for _, cases in sorted(by_topology.items()):
        best = max(cases, key=lambda case: case[f"{_RATE}_median"])
        undecided = [case for case in cases if case is not best and not _below(case, best)]
        yield SweptTopology(tuple(cases), best, tuple(undecided))


def _below(case: Case, best: Case) -> bool:
    """True if the whole interval of a case is below that of the best."""
    high, low = case.get(f"{_RATE}_ci_high"), best.get(f"{_RATE}_ci_low")
    return high is not None and low is not None and high < low
