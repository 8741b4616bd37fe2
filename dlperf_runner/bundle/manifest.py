"""The manifest: every file of a mirror folder, its digest, and the reason for it. It is written
last, so a folder with a manifest was complete at that moment."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ..core.errors import UserError
from ..core.files import open_append, open_read, read_text, write_json

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
    """A thing that the folder lacks (an environment, a package, a file), and the reason."""

    environment: str
    reason: str

    def __str__(self) -> str:
        return f"{self.environment}: {self.reason}"


@dataclass(frozen=True)
class Missing:
    """A need that could not be fetched, and the operator's remedy. `reason` is a predicate: "is not
    at ..."."""

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
    """The content of a mirror folder, its nodes, and what was left out; its `manifest.json`."""

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


def read(folder: Path) -> MirrorManifest | None:
    """The folder's manifest; None if there is none, or none that this version can read."""
    try:
        document = json.loads(read_text(folder / NAME))
        if document.pop("format") != FORMAT:
            return None
        return TypeAdapter(MirrorManifest).validate_python(document)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write(folder: Path, manifest: MirrorManifest) -> None:
    write_json(folder / NAME, manifest.to_json())


def damaged(folder: Path, manifest: MirrorManifest) -> tuple[str, ...]:
    """Paths of files that are missing or differ from the manifest."""
    present = digests(folder, (item.path for item in manifest.files))
    return tuple(item.path for item in manifest.files if present.get(item.path) != item.sha256)


def digest(path: Path) -> str:
    """The sha256 of a file's content."""
    with open_read(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests(folder: Path, paths: Iterable[str]) -> dict[str, str]:
    """sha256 of the files that exist, read on all cores (hashing releases the GIL)."""
    existing = [path for path in paths if (folder / path).is_file()]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return dict(zip(existing, pool.map(lambda p: digest(folder / p), existing), strict=True))


@contextmanager
def alone(cache: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of what all mirror folders of a cache share: apt's lists, and the signing key.
    Wait for a run that holds it, because apt would fail."""
    with open_append(cache / ".lock", inside=cache) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another run of bundle that uses {cache}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Make the folder and hold its lock, so that two runs do not delete each other's files. Report
    an error of the disk as a UserError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open_append(folder / ".lock", inside=folder) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    "another run is writing this mirror folder",
                    where=str(folder),
                    hint="wait until it ends, or choose another folder with --output-dir",
                ) from None
            yield
    except OSError as error:
        raise UserError(
            f"the mirror folder could not be written: {error.strerror or error}",
            where=str(error.filename or folder),
            hint="run the command again after solving this; it keeps what is already there",
        ) from error
