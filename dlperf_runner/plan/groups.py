"""Runs of one case on given groups of nodes, instead of on the first nodes of the inventory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .make import make_plan

if TYPE_CHECKING:
    from ..catalog.reader import Catalog
    from ..core.case import Run
    from ..core.node import Node
    from .choice import Choice

Group = Sequence["Node"]


def group_runs(choice: Choice, catalog: Catalog, groups: Sequence[Group]) -> Iterator[Run]:
    """One run per group, on all its nodes. Groups of the same size are repeats of one case. The
    choice must select one case."""
    counts: Counter[str] = Counter()
    for group in groups:
        (run,) = make_plan(replace(choice, nodes=(len(group),), repeats=1), catalog, group)
        counts[run.case] += 1
        repeat = counts[run.case]
        yield replace(run, id=f"{run.case}/r{repeat}", repeat=repeat)


def neighbours(nodes: Group) -> list[tuple[Node, Node]]:
    """Pairs in a ring, so that each node is in two of them; of two nodes, one pair."""
    if len(nodes) < 3:
        return [(nodes[0], nodes[1])] if len(nodes) == 2 else []
    return list(zip(nodes, (*nodes[1:], nodes[0]), strict=True))
