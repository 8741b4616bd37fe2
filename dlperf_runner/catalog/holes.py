"""Releases with published security holes, as catalog/known_holes.yml lists them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from .entry import CATALOG, load_entry
from .suites import numbers
from .types import Entry, Name

Dotted = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)*$")]


class Hole(Entry):
    """`branch`: the first numbers of the versions; without it, all. `fixed`: the first version
    without the hole. `ended`: the month since when the branch gets no fixes."""

    part: Literal["driver", "docker", "containerd", "toolkit"]
    branch: Dotted | None = None
    fixed: Dotted | None = None
    ended: Annotated[str, Field(pattern=r"^\d{4}-\d{2}$")] | None = None
    source: str


class KnownHoles(Entry):
    """`as_of`: the day when the list was made."""

    name: Name
    as_of: str
    holes: tuple[Hole, ...]


def known_holes(versions: Mapping[str, str | None]) -> list[str]:
    """Those of releases, by part: `driver 580.105.08 has published holes, closed from 580.159.03 on
    (SOURCE; as of DAY)`."""
    holes = {part: _hole_in(part, version or "") for part, version in versions.items()}
    return [f"{part} {versions[part]} {hole}" for part, hole in holes.items() if hole]


def _hole_in(part: str, version: str) -> str:
    table, release = _table(), numbers(version)
    for hole in table.holes:
        branch = numbers(hole.branch or "")
        if hole.part != part or not release or release[: len(branch)] != branch:
            continue
        source = f"({hole.source}; as of {table.as_of})"
        if hole.fixed and release < numbers(hole.fixed):
            return f"has published holes, closed from {hole.fixed} on {source}"
        if hole.ended:
            return f"is of branch {hole.branch}, which gets no fixes since {hole.ended} {source}"
    return ""


@functools.cache
def _table() -> KnownHoles:
    return load_entry(CATALOG / "known_holes.yml", KnownHoles)
