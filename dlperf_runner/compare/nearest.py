"""The published numbers for a case: those of its model, usable for a verdict, the nearest first."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.case import Topology
from .conditions import Difference, Values, differences, family, published_conditions
from .publications import differing_conditions, named_values

if TYPE_CHECKING:
    from ..catalog.publication import ComparisonRule
    from ..catalog.published_numbers import PublishedNumber


def numbers_of_model(
    case: Mapping[str, Any], numbers: Sequence[PublishedNumber]
) -> list[PublishedNumber]:
    return [
        number
        for number in numbers
        if case["workload"] in number.workloads and number.workload_model == case["model"]
    ]


def nearest(
    case: Mapping[str, Any],
    mine: Values,
    usual: str,
    estimates: Collection[str],
    numbers: Sequence[PublishedNumber],
    rule: ComparisonRule,
    assume: bool,
) -> Iterator[tuple[PublishedNumber, list[Difference]]]:
    """The numbers for the topology of the case, the nearest first."""
    topology = Topology(case["nodes"], case["gpus_per_node"])
    found = []
    for number in numbers:
        if number.topology == topology:
            of_number = published_conditions(number)
            by = {"estimator": estimator_of(number, usual, estimates), **mine}
            differing = differences(by, of_number, nodes=topology.nodes)
            needed = needed_differences(differing, rule)
            if assume:
                needed = [item for item in needed if item.mine is not None]
            size = number.batch_size_per_device
            batch = abs(math.log(size / case["batch_size_per_device"])) if size else math.inf
            comparable = all(item.other is None for item in needed)
            nearness = (len(needed), len(differing), batch)
            order = (bool(number.contradiction), not comparable, not number.reproduced, *nearness)
            found.append((order, number, differing))
    for _, number, differing in sorted(found, key=lambda item: item[0]):
        yield number, differing


def publication_name(number: PublishedNumber, others: Sequence[PublishedNumber]) -> str:
    same = [other for other in others if other.report == number.report]
    settings = named_values(number, differing_conditions(same))
    return f"{number.report} ({settings})" if settings else number.report


def usable_numbers(
    of_model: Sequence[PublishedNumber], accelerator: object
) -> Sequence[PublishedNumber]:
    """The numbers without contradictions; those of the same family of accelerators, if any."""
    usable = [number for number in of_model if number.contradiction is None]
    mine = family(accelerator)
    return [n for n in usable if mine and family(n.conditions.accelerator) == mine] or usable


def why_none(
    case: Mapping[str, Any],
    usable: Sequence[PublishedNumber],
    of_model: Sequence[PublishedNumber],
) -> str:
    """Why nothing is published for the topology of a case. No number is made up from others."""
    if not of_model:
        return f"no number is published for {case['model']} of {case['workload']}"
    here = Topology(case["nodes"], case["gpus_per_node"])
    others = [number for number in of_model if number.topology == here]
    topologies = ", ".join(map(str, sorted({number.topology for number in usable}))) or "none"
    families = {family(number.conditions.accelerator) for number in usable}
    on = f" on {families.pop()}" if others and len(families) == 1 else ""
    found = dict.fromkeys(
        "contradictory" if number.contradiction else f"on {number.conditions.accelerator}"
        for number in others
    )
    more = f"; with --all: {', '.join(found)}" if found else ""
    return f"topology ({here}; published{on}: {topologies}{more})"


def estimator_of(number: PublishedNumber, usual: str, estimates: Collection[str]) -> str:
    """The estimator of a case to compare with the number: that of the number, if every run has
    it."""
    return next((name for name in estimates if name == number.conditions.estimator), usual)


def needed_differences(found: Sequence[Difference], rule: ComparisonRule) -> list[Difference]:
    return [item for item in found if item.factor in rule.must_be_equal]
