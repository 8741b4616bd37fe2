"""The manifest: every file of a mirror folder, with its digest and the reason for its being there.

It is written last, so a folder that has one was whole at that moment.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..core.errors import UserError

FORMAT = 1
NAME = "manifest.json"


@dataclass(frozen=True)
class Item:
    """One file. `wanted_by` are the roles or environments that lead to it, `why` is one way."""

    path: str
    kind: str
    name: str
    version: str
    sha256: str
    size: int
    wanted_by: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Skipped:
    """What the folder lacks, as an environment that the suite cannot have, and the reason."""

    environment: str
    reason: str

    def __str__(self) -> str:
        return f"{self.environment}: {self.reason}"


@dataclass(frozen=True)
class Manifest:
    stack: str
    suite: str
    architecture: str
    python: str
    inputs_sha256: str
    created: str
    sources: tuple[str, ...]
    key_fingerprint: str
    skipped: tuple[Skipped, ...]
    files: tuple[Item, ...]

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @property
    def size(self) -> int:
        return sum(item.size for item in self.files)


def read(folder: Path, name: str = NAME) -> Manifest | None:
    """The folder's manifest; None where there is none that this version wrote whole."""
    try:
        document = json.loads((folder / name).read_text(encoding="utf-8"))
        if document.pop("format") != FORMAT:
            return None
        document["files"] = tuple(
            Item(**{**item, "wanted_by": tuple(item["wanted_by"])}) for item in document["files"]
        )
        document["skipped"] = tuple(Skipped(**entry) for entry in document["skipped"])
        document["sources"] = tuple(document["sources"])
        return Manifest(**document)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write(folder: Path, manifest: Manifest, name: str = NAME) -> None:
    text = json.dumps(manifest.to_json(), indent=1, ensure_ascii=False) + "\n"
    write_whole(folder / name, text.encode())


def write_whole(path: Path, content: bytes) -> None:
    """Write under a temporary name, then rename, so that nobody reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def move_verified(source: Path, target: Path, sha256: str) -> None:
    """Put what was fetched at its place, if it is what was promised."""
    found = digest(source) if source.is_file() else "no file"
    if found != sha256:
        source.unlink(missing_ok=True)
        raise UserError(
            f"{target.name} is not what was promised",
            expected=f"sha256 {sha256}",
            found=found,
            hint="run it again: it will be fetched anew",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    source.chmod(0o644)
    source.replace(target)


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests(folder: Path, paths: Iterable[str]) -> dict[str, str]:
    """sha256 of those of the files that exist, read on all cores (hashing releases the GIL)."""
    existing = [path for path in paths if (folder / path).is_file()]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return dict(zip(existing, pool.map(lambda p: digest(folder / p), existing), strict=True))


def damaged(folder: Path, manifest: Manifest) -> tuple[str, ...]:
    """Paths of files that are missing, or are not what the manifest says."""
    right_size = [item for item in manifest.files if _size(folder / item.path) == item.size]
    found = digests(folder, (item.path for item in right_size))
    return tuple(i.path for i in manifest.files if found.get(i.path) != i.sha256)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
