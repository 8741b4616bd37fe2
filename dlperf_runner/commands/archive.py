"""Compress the logs and the telemetry of a campaign's finished runs. The manifest and its signature
stay as they are: they hold for the content."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from ..campaign.directory import is_done, read_plan, run_directory
from ..campaign.manifest import digest, is_digest, read
from ..core.errors import UserError
from ..core.files import open_read, remove, replacing, stored
from ..core.lists import counted
from ..options import LATEST, print_json

ORDER = 210
_LEVEL = 6
_RECORD = "run.json"


def command(
    directory: Path = LATEST,
    as_json: bool = False,
) -> None:
    """Compress the logs and the telemetry of a campaign's finished runs. They can be summarized and
    verified as before.

    Example: dlperf archive results/latest"""
    done = archive(directory)
    if as_json:
        print_json(done)
    else:
        sizes = f"{done['before'] / 2**20:.1f} MiB became {done['now'] / 2**20:.1f} MiB"
        print(f"{counted(done['files'], 'file')} compressed: {sizes}")


def archive(directory: Path) -> dict[str, int]:
    """Compress the files of a campaign. Those that already are stay. Returns the number of the
    others, and their bytes before and now. Raises UserError if a file is not the one that the
    manifest records."""
    manifest = read(directory)
    recorded = manifest.files if manifest else {}
    done = {"files": 0, "before": 0, "now": 0}
    for path in list(_files(directory)):
        name = path.relative_to(directory).as_posix()
        if (sealed := recorded.get(name)) and not is_digest(path, sealed.digest):
            raise UserError(
                "the file was changed since it was recorded",
                where=str(path),
                expected=f"SHA-256 {sealed.digest}",
                hint="summarize --verify lists all changes",
            )
        done["files"] += 1
        done["before"] += path.stat().st_size
        done["now"] += _compressed(path).stat().st_size
    return done


def _files(directory: Path) -> Iterator[Path]:
    """The files of finished runs, except their records."""
    for run in read_plan(directory)["runs"]:
        if is_done(directory, run):
            for path in sorted(run_directory(directory, run).iterdir()):
                if path.is_file() and path.name != _RECORD and path.suffix not in (".gz", ".tmp"):
                    yield path


def _compressed(path: Path) -> Path:
    """The compressed file, which replaces the original once it has proved to have its content."""
    packed = path.with_name(f"{path.name}.gz")
    expected = digest(path)
    with open_read(path) as source, replacing(packed) as file:
        status = os.fstat(source.fileno())
        # No name and no time, so that equal files stay equal.
        with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        with gzip.GzipFile(fileobj=file) as again:
            if hashlib.file_digest(again, "sha256").hexdigest() != expected:
                raise UserError(
                    "the compressed file differs; the original is kept", where=str(path)
                )
        os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
        os.utime(file.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
    remove(path)
    return stored(path)
