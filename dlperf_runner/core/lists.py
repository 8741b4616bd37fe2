"""Lists by key, and lists as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
_SHOWN = 5
_NUMBER = re.compile(r"(\d+)", re.ASCII)


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


def counted(number: int, thing: str, things: str | None = None) -> str:
    """`1 run`, `2 runs`; `things` is an irregular plural."""
    return f"{number} {thing if number == 1 else things or thing + 's'}"
