"""The manifest: every file of a mirror folder, its digest, and why it is there.

It is written last, so a folder with a manifest was complete at that moment.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...core.files import read_text, write_json
from .files import digests

FORMAT = 1
NAME = "manifest.json"


@dataclass(frozen=True)
class Item:
    """One file. `wanted_by`: the roles or environments that need it; `why`: one chain to it."""

    path: str
    kind: str
    name: str
    version: str
    sha256: str
    size: int
    wanted_by: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class SkippedNeed:
    """What the folder lacks (an environment, a package, a file), and the reason."""

    environment: str
    reason: str

    def __str__(self) -> str:
        return f"{self.environment}: {self.reason}"


@dataclass(frozen=True)
class Missing:
    """What could not be fetched, and what the operator can do about it. `reason` is a predicate:
    "is not at ..."."""

    name: str
    wanted_by: str
    source: str
    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.name}, for {self.wanted_by}\n  from {self.source}\n  it {self.reason}"
        return f"{text}\n  {self.remedy}" if self.remedy else text


@dataclass(frozen=True)
class MirrorManifest:
    """What a mirror folder holds, for which nodes, and what was left out; its `manifest.json`."""

    stack: str
    suite: str
    architecture: str
    python: str
    inputs_sha256: str
    created: str
    sources: tuple[str, ...]
    key_fingerprint: str
    skipped: tuple[SkippedNeed, ...]
    files: tuple[Item, ...]

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @property
    def size(self) -> int:
        return sum(item.size for item in self.files)


def read(folder: Path, name: str = NAME) -> MirrorManifest | None:
    """The folder's manifest; None if there is none, or none that this version can read."""
    try:
        document = json.loads(read_text(folder / name))
        if document.pop("format") != FORMAT:
            return None
        document["files"] = tuple(
            Item(**{**item, "wanted_by": tuple(item["wanted_by"])}) for item in document["files"]
        )
        document["skipped"] = tuple(SkippedNeed(**entry) for entry in document["skipped"])
        document["sources"] = tuple(document["sources"])
        return MirrorManifest(**document)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write(folder: Path, manifest: MirrorManifest, name: str = NAME) -> None:
    write_json(folder / name, manifest.to_json())


def damaged(folder: Path, manifest: MirrorManifest) -> tuple[str, ...]:
    """Paths of files that are missing or differ from the manifest."""
    right_size = [item for item in manifest.files if _size(folder / item.path) == item.size]
    found = digests(folder, (item.path for item in right_size))
    return tuple(i.path for i in manifest.files if found.get(i.path) != i.sha256)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
