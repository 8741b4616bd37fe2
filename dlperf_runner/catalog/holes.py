"""Releases with published holes, as catalog/known_holes.yml lists them."""

from __future__ import annotations

import functools
import re
from typing import Annotated, Literal

from pydantic import Field

from .entry import CATALOG, load_entry
from .types import Entry, Name

Dotted = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)*$")]


class Hole(Entry):
    """`branch`: the first number of the versions; without it, all. `fixed`: the first version
    without the hole. `ended`: the month since when the branch gets no fixes."""

    part: Literal["driver", "docker", "containerd"]
    branch: Dotted | None = None
    fixed: Dotted | None = None
    ended: Annotated[str, Field(pattern=r"^\d{4}-\d{2}$")] | None = None
    source: str


class KnownHoles(Entry):
    """`as_of`: the day when the list was made."""

    name: Name
    as_of: str
    holes: tuple[Hole, ...]


def hole_in(part: str, version: str | None) -> str:
    """Published security holes of a release: `fixed from 580.159.03 on (SOURCE, as of DAY)`; empty
    if nothing."""
    known = _known_holes()
    for hole in known.holes:
        own = _numbers(version or "")
        if hole.part != part or not own or hole.branch not in (None, str(own[0])):
            continue
        told = f"({hole.source}; as of {known.as_of})"
        if hole.fixed and own < _numbers(hole.fixed):
            return f"has published holes, closed from {hole.fixed} on {told}"
        if hole.ended:
            return f"is of branch {hole.branch}, which gets no fixes since {hole.ended} {told}"
    return ""


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


@functools.cache
def _known_holes() -> KnownHoles:
    return load_entry(CATALOG / "known_holes.yml", KnownHoles)
