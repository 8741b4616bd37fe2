"""Lists by key, and lists as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
_SHOWN = 5
_LAST_NUMBER = re.compile(r"(.*?)(\d{0,4000})(\D*)", re.ASCII | re.DOTALL)
_NUMBER = re.compile(r"(\d{1,4000})", re.ASCII)  # Python converts 4300 digits at most


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """The items by key. Keys and items keep their order."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def natural(name: object) -> list[Any]:
    """Sort key that puts r2 before r10, and 2n8g before 10n8g: texts and numbers in turn."""
    parts: list[Any] = _NUMBER.split(str(name))
    parts[1::2] = map(int, parts[1::2])
    return parts


def shortened(texts: Sequence[str]) -> str:
    """The first texts, and the number of the others: `a, b, c, d, e and 7 more`."""
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more


def name_ranges(names: Sequence[str]) -> str:
    """node001..node064, gpu7: names whose last number counts up by one, in their order."""
    ranges: list[list[str]] = []
    for name in names:
        if ranges and name == _next(ranges[-1][-1]):
            ranges[-1] = [ranges[-1][0], name]
        else:
            ranges.append([name])
    return ", ".join("..".join(ends) for ends in ranges)


def _next(name: str) -> str:
    """node010 for node009, node10 for node9."""
    stem, number, tail = _LAST_NUMBER.fullmatch(name).groups()  # type: ignore[union-attr]
    return f"{stem}{int(number) + 1:0{len(number)}d}{tail}" if number else ""


def counted(number: int, thing: str, things: str | None = None) -> str:
    """`1 run`, `2 runs`; `things` is an irregular plural."""
    return f"{number} {thing if number == 1 else things or thing + 's'}"
