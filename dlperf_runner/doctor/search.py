"""Which members of a cluster are slow: the measurements of rounds in, verdicts out.

A member is a node, a device or a link. In each round, groups of members are measured at once: pairs
of nodes, or each member alone. A measurement counts as its ratio to the median of the others of
its round, so that a slow minute is no slow node.

The test statistic of a member is the mean of the logarithms of its ratios. A ratio that is further
from 1 than CLIP robust standard deviations counts as if it were that far, so that one interruption
decides nothing. (A median of few pairs takes few values: with 4 nodes it finds none.) Its
distribution without a slow member comes from permutations: in each round, the values are dealt to
the groups at random. That the smallest of all members' statistics is so small by chance has the
probability ALPHA at most, whatever their number and the distribution of the noise. Who is slow is
taken out, and the rest is tested again (step-down, Westfall and Young 1993).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

Pair = tuple[int, int]
Group = tuple[str, ...]
Round = Mapping[Group, float]
ALPHA = 0.05  # of a false alarm, over all members together
PERMUTATIONS = 2000
CLIP = 3.0
_POWER = 1.645  # standard errors: a member that is slower by the detectable size is found in 95 %
_ROBUST = 1.4826  # from the median deviation to the standard deviation


def circle(nodes: int) -> list[list[Pair]]:
    """The rounds in which each node meets each other one once, by the circle method: the first
    stays, the others move on by one place. Of an odd number, one node has a bye in each round."""
    places = nodes + nodes % 2
    rounds = []
    for turn in range(places - 1):
        ring = [0, *(1 + (place + turn) % (places - 1) for place in range(places - 1))]
        ends = zip(ring[: places // 2], reversed(ring), strict=False)
        rounds.append([(min(a, b), max(a, b)) for a, b in ends if max(a, b) < nodes])
    return rounds


def rounds_from(nodes: int, first: int, count: int) -> list[list[Pair]]:
    """So many rounds, from that number on; after the last one, they begin again."""
    rounds = circle(nodes)
    return [rounds[number % len(rounds)] for number in range(first, first + count)]


def as_text(rounds: Sequence[Sequence[Pair]]) -> str:
    """`0-1+2-3:0-2+1-3`, as the program on the nodes takes it."""
    return ":".join("+".join(f"{a}-{b}" for a, b in pairs) for pairs in rounds)


@dataclass(frozen=True)
class RankedMember:
    """`ratio` is the median of the ratios of its groups to the others of their rounds. `p_value`
    counts all members; None if there was nothing to compare with."""

    name: str
    ratio: float
    rounds: int
    p_value: float | None
    is_slow: bool


@dataclass(frozen=True)
class SearchVerdict:
    """The members, slowest first. `detectable`: the slowdown, as a share, that these rounds find
    in 95 % of cases; 1 if the noise hides any, None if there is nothing to compare with."""

    members: tuple[RankedMember, ...]
    detectable: float | None
    rounds: int

    @property
    def slow(self) -> list[RankedMember]:
        return [member for member in self.members if member.is_slow]

    def decides(self, slower: float) -> bool:
        """True if further rounds are not needed, or, where too few members are left to compare,
        would be of no use."""
        if self.detectable is None:
            return bool(self.slow)
        return self.detectable <= slower


def search(
    rounds: Sequence[Round], slower: float, permutations: int = PERMUTATIONS
) -> SearchVerdict:
    """The verdict on all members. Slow is who is slower than chance allows, and at least by half
    of `slower`, a share such as 0.03: less does not matter, however sure it is."""
    logs: dict[str, list[float]] = {}
    for values in rounds:
        for group, log in zip(values, over_others(values), strict=True):
            for name in group:
                logs.setdefault(name, []).append(float(log))
    scores = {name: math.exp(median(of_name)) for name, of_name in logs.items()}
    p_values: dict[str, float] = {}
    slow: set[str] = set()
    while True:
        left = [{g: v for g, v in values.items() if slow.isdisjoint(g)} for values in rounds]
        current, detectable = _test([values for values in left if len(values) > 1], permutations)
        # A step can never be surer than the one before it.
        floor = max((p_values[name] for name in slow), default=0.0)
        p_values |= {name: max(p, floor) for name, p in current.items()}
        sure = [name for name in current if p_values[name] <= ALPHA]
        if not (hits := [name for name in sure if scores[name] <= 1 - slower / 2]):
            break
        # Partners of a very slow node look slow until it is out.
        has_partners = any(len(group) > 1 for values in left for group in values)
        slow |= {min(hits, key=scores.__getitem__)} if has_partners else set(hits)
    members = (
        RankedMember(name, score, len(logs[name]), p_values.get(name), name in slow)
        for name, score in scores.items()
    )
    ordered = sorted(members, key=lambda member: (not member.is_slow, member.ratio, member.name))
    return SearchVerdict(tuple(ordered), detectable, len(rounds))


def _test(rounds: Sequence[Round], permutations: int) -> tuple[dict[str, float], float | None]:
    """The family-wise p-value of each member, and the detectable slowdown; nothing without a round
    that has two groups."""
    import numpy as np

    if not rounds:
        return {}, None
    random = np.random.default_rng(0)  # the same log gives the same verdict
    names = sorted({name for values in rounds for group in values for name in group})
    by_chance, actual = np.zeros((permutations, len(names))), np.zeros(len(names))
    counts = np.zeros(len(names))
    ratios = [over_others(values) for values in rounds]
    limit = CLIP * _ROBUST * float(np.median(np.abs(np.concatenate(ratios)))) or math.inf
    for values, ratio in zip(rounds, ratios, strict=True):
        logs = np.clip(ratio, -limit, limit)
        place = {name: index for index, group in enumerate(values) for name in group}
        # The group of each member; of one without a group, the last, whose value is 0.
        groups = np.array([place.get(name, -1) for name in names])
        counts += groups >= 0
        actual += np.append(logs, 0)[groups]
        dealt = random.permuted(np.tile(logs, (permutations, 1)), axis=1)
        by_chance += np.pad(dealt, ((0, 0), (0, 1)))[:, groups]
    by_chance /= counts
    lows = np.sort(by_chance.min(axis=1))
    # How often the smallest is as small by chance; at last, as its own smallest value.
    ranks = np.searchsorted(lows, np.append(actual / counts, lows[0]) + 1e-12, side="right")
    *p_values, decidable = ((1 + ranks) / (permutations + 1)).tolist()
    bound = float(np.quantile(lows, ALPHA, method="lower"))
    detectable = 1 - math.exp(bound - _POWER * math.sqrt((by_chance**2).mean()))
    # Members that always take the smallest value by chance could not be told from a slow one.
    if decidable > ALPHA and math.isclose(lows[0], bound):
        detectable = 1.0
    return dict(zip(names, p_values, strict=True)), detectable


def over_others(values: Round) -> np.ndarray[Any, Any]:
    """The logarithm of each value over the median of the others of its round; 0 if it is alone."""
    import numpy as np

    logs = np.log(np.fromiter(values.values(), dtype="float64"))
    size = len(logs)
    if size == 1:
        return np.zeros(1)
    ordered, rank = np.sort(logs), np.argsort(np.argsort(logs, kind="stable"), kind="stable")
    low, high = (size - 2) // 2, (size - 1) // 2  # the middle of the others
    # Without a value, those behind it move on by one place.
    middle = ordered[low + (rank <= low)] + ordered[high + (rank <= high)]
    return np.asarray(logs - middle / 2)
