"""Rounds of disjoint pairs, so that all pairs of a round can be measured at once."""

from __future__ import annotations

from collections.abc import Sequence

Pair = tuple[int, int]


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
