"""The order of the runs of a plan.

A cluster changes during a campaign: it warms up, and others begin and end their work. In a grouped
order such a change affects one case and not the others; in the other orders it affects all cases
alike. Something that runs all repeats of a case as one job must record `grouped`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from operator import attrgetter

from ..core.case import Run
from ..core.lists import grouped


def ordered(runs: Iterable[Run], order: str, seed: int | None) -> tuple[Run, ...]:
    """The runs in one of the orders of choice.ORDERS. The repeats of a case always ascend."""
    groups = list(grouped(runs, attrgetter("case")).values())
    if order == "grouped":
        return tuple(chain.from_iterable(groups))
    if order == "interleaved":
        return tuple(run for row in zip_longest(*groups) for run in row if run is not None)
    if seed is None:
        raise ValueError("a random order needs a seed")
    return tuple(_shuffled(groups, random.Random(seed)))  # noqa: S311  not for secrets


def _shuffled(groups: Sequence[Sequence[Run]], numbers: random.Random) -> Iterator[Run]:
    places = [index for index, group in enumerate(groups) for _ in group]
    following = [iter(group) for group in groups]
    # Python guarantees the same random() for a seed in every version, but not the same shuffle().
    for index in sorted(places, key=lambda _: numbers.random()):
        yield next(following[index])
