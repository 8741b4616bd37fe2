"""Lists by key, and lists as text."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
Steps = Generator[None, None, Item]  # a task that stops after each of its steps
_SHOWN = 5


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """The items by key. Keys and items keep their order."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def in_turn(tasks: Sequence[Steps[Item]], at_once: int) -> list[Item]:
    """The results of tasks, of which `at_once` make a step each in turn. The code of a step then
    stays in the processor's cache, which is faster than one task after the other."""
    results: dict[int, Item] = {}
    for start in range(0, len(tasks), at_once):
        numbers = range(start, len(tasks))[:at_once]
        while left := [number for number in numbers if number not in results]:
            for number in left:
                try:
                    next(tasks[number])
                except StopIteration as end:
                    results[number] = end.value
    return [results[number] for number in range(len(tasks))]


def shortened(texts: Sequence[str]) -> str:
    """The first texts, and the number of the others: `a, b, c, d, e and 7 more`."""
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more


def counted(number: int, thing: str, things: str | None = None) -> str:
    """`1 run`, `2 runs`; `things` is an irregular plural."""
    return f"{number} {thing if number == 1 else things or thing + 's'}"
