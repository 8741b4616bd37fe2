"""Versions of Debian packages and what they depend on, as deb-version(7) and deb-control(5) say."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

Key = tuple[object, ...]

_END = ((0,), 0)
_COMPARISONS: dict[str, Callable[[Key, Key], bool]] = {
    "<<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    ">=": operator.ge,
    ">>": operator.gt,
    # As they were once written, for <= and >=.
    "<": operator.le,
    ">": operator.ge,
}
# `libcuda1-440:any (>= 440.33) [amd64]`
_RELATION = re.compile(
    r"(?P<name>[^\s:(\[<]+)[^(]*(?:\(\s*(?P<sign>[<>=]+)\s*(?P<version>[^)\s]+))?"
)


@dataclass(frozen=True)
class Relation:
    """A package that another one needs; without `sign` in any version."""

    name: str
    sign: str = ""
    version: str = ""

    def holds(self, version: str) -> bool:
        return not self.sign or _COMPARISONS[self.sign](key(version), key(self.version))


def key(version: str) -> Key:
    """What sorts as dpkg does."""
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    upstream, _, revision = rest.rpartition("-") if "-" in rest else (rest, "", "")
    return (int(epoch), _part(upstream), _part(revision))


def alternatives(field: str) -> list[tuple[Relation, ...]]:
    """`a (>= 1) | b, c` as [(a >= 1, b), (c,)]."""
    return [
        tuple(
            Relation(match["name"], match["sign"] or "", match["version"] or "")
            for one in group.split("|")
            if (match := _RELATION.match(one.strip()))
        )
        for group in field.split(",")
        if group.strip()
    ]


def _part(text: str) -> Key:
    """Texts and numbers in turn; no revision is revision 0."""
    pairs = [
        ((*map(_order, letters), 0), int(digits or 0))
        for letters, digits in re.findall(r"(\D*)(\d*)", text)
    ]
    while pairs and pairs[-1] == _END:
        pairs.pop()
    # Twice: the first may stand against a number 0, and what follows it may be a tilde.
    return (*pairs, _END, _END)


def _order(letter: str) -> int:
    """A tilde before the end, the end before letters, letters before all else."""
    if letter == "~":
        return -1
    return ord(letter) if letter.isalpha() else ord(letter) + 256
