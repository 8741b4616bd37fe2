"""Files of a mirror folder: written whole, compared by sha256, guarded by a lock."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from ...core.errors import UserError
from ...core.files import open_append, open_read

_LOCK = ".lock"


def move_verified(source: Path, target: Path, sha256: str) -> None:
    """Move a download to its place if its digest is right."""
    found = digest(source) if source.is_file() else "no file"
    if found != sha256:
        source.unlink(missing_ok=True)
        raise UserError(
            f"the download {target.name} has the wrong content",
            expected=f"sha256 {sha256}",
            found=found,
            hint="run the command again: it fetches the file anew",
        )
    place(source, target)


def place(source: Path, target: Path) -> None:
    """Move a download to its place; everybody may read it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    source.chmod(0o644)
    source.replace(target)


def digest(path: Path) -> str:
    with open_read(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests(folder: Path, paths: Iterable[str]) -> dict[str, str]:
    """sha256 of the files that exist, read on all cores (hashing releases the GIL)."""
    existing = [path for path in paths if (folder / path).is_file()]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return dict(zip(existing, pool.map(lambda p: digest(folder / p), existing), strict=True))


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Make the folder and hold its lock, so that two runs do not delete each other's files. Report
    an error of the disk as a UserError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open_append(folder / _LOCK, inside=folder) as lock:
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
