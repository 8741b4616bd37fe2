"""Where a mirror folder goes, and where the distribution's part of it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from . import apt
from .archives import Source
from .vendor_sources import Vendors

Say = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """Where a mirror goes and where it comes from. `cache` keeps the signing key and apt's lists,
    never inside the folder that is served. `vendors`: what was fetched from vendors already."""

    output: Path
    cache: Path
    sources: tuple[Source, ...]
    refresh: bool = False
    base: tuple[str, ...] = apt.BASE
    vendors: Vendors = field(default_factory=Vendors)
