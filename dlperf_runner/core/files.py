"""The only way of this package to files: one safe reader and one safe writer.

A campaign may come from somebody else and hold anything: links, pipes, devices. In a campaign, and
below a directory that the caller names as `inside`, no symbolic link is followed and every file is
a regular one; anything else raises a UserError with its path. Links above it are the user's own.
Elsewhere, a link to a regular file may be read. A new file is written under a random name and then
renamed: a reader never sees a partly written file. A file of a campaign may be compressed by
`archive`, which appends .gz to its name.
"""

from __future__ import annotations

import errno
import gzip
import json
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from io import BufferedRandom, BufferedReader, RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import UserError, as_user_error

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MOST_BYTES = 2**30  # of a file whose whole content is read into memory
# Logs of training shrink to a tenth, very regular ones to a hundredth. gzip can reach a thousandth.
MOST_RATIO = 250
ALWAYS_EXPANDED = 64 * 2**20  # bytes
_DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
# Without O_NONBLOCK, a pipe that nobody writes to would be waited for.
_FILE = os.O_CLOEXEC | os.O_NONBLOCK
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class UnsafeFileError(UserError):
    """A link, or no regular file, where this package reads or writes one."""


# ---- the place of a file


@dataclass(frozen=True)
class _Spot:
    """A file, by its name in an open directory if that is guarded, else by its whole path."""

    path: Path
    folder: int | None
    name: str

    def sibling(self, name: str) -> str:
        """Another name in the same directory."""
        return os.path.join(os.path.dirname(self.name), name)  # noqa: PTH118, PTH120

    def status(self) -> os.stat_result | None:
        """The status of the file, None if there is none. Raises UserError on a link in a guarded
        directory, and on what is neither a file nor a directory."""
        try:
            status = os.stat(self.name, dir_fd=self.folder, follow_symlinks=self.folder is None)
        except FileNotFoundError:
            return None
        _refuse_special(self.path, status)
        return status

    def opened(self, flags: int, mode: int = 0o666) -> int:
        """A descriptor of the regular file. Raises OSError, or UserError as `status` does."""
        no_link = 0 if self.folder is None else os.O_NOFOLLOW
        descriptor = os.open(self.name, flags | _FILE | no_link, mode, dir_fd=self.folder)
        try:
            status = os.fstat(descriptor)
            _refuse_special(self.path, status)
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(self.path))
            os.set_blocking(descriptor, True)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _guarded(path: Path, inside: Path | None) -> int | None:
    """The number of the path's first parts that are not guarded: those of the outermost directory
    that is a campaign, or of `inside`. None if nothing is guarded."""
    parts, anchor = path.parts, path.anchor
    last = len(parts)
    if inside is not None:
        last = len(inside.parts)
        if not path.is_relative_to(inside) or ".." in parts[last:]:
            raise UnsafeFileError("a path leads out of its directory", where=str(path))
    # Before a `..`, a directory is none of the file's.
    first = max((n for n, part in enumerate(parts, 1) if part in ("..", anchor)), default=0)
    directory = "."
    for count, part in enumerate(parts[:last]):
        if count >= first and is_campaign(directory, parts[count:]):
            return count
        directory = "" if part == anchor else f"{directory}/{part}"
    return last if inside is not None else None


def is_campaign(directory: str | Path, below: tuple[str, ...] = ()) -> bool:
    """True if a directory is a campaign of this tool: it has a campaign.json or the record of a
    run. With the parts of a path `below` it, only the record of that path's run counts."""
    if os.path.lexists(f"{directory}/campaign.json"):
        return True
    if not below:
        return any(Path(directory).glob("runs/*/*/run.json"))
    is_of_run = below[0] == "runs" and len(below) > 3
    return is_of_run and os.path.lexists("/".join((str(directory), *below[:3], "run.json")))


def _random_name() -> str:
    """The name of a new file, hidden and unpredictable."""
    return f".{os.urandom(8).hex()}.tmp"


@contextmanager
def _spot(path: Path, inside: Path | None, *, make: bool = False) -> Iterator[_Spot]:
    """The place of a file. `make`: create its directory."""
    count = _guarded(path, inside)
    if count is None:
        if make:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield _Spot(path, None, os.fspath(path))
        return
    place = Path(*path.parts[:count])
    if make:
        place.mkdir(parents=True, exist_ok=True)
    folder = os.open(place, _DIRECTORY)
    try:
        for name in path.parts[count:-1]:
            place /= name
            folder, before = _entered(folder, name, place, make=make), folder
            os.close(before)
        yield _Spot(path, folder, path.name)
    finally:
        os.close(folder)


def _entered(folder: int, name: str, place: Path, *, make: bool) -> int:
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
    try:
        return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            _refuse_special(place, os.stat(name, dir_fd=folder, follow_symlinks=False))
        raise OSError(error.errno, error.strerror, str(place)) from None


def _refuse_special(path: Path, status: os.stat_result) -> None:
    """Raise UserError on a link, and on what is neither a file nor a directory."""
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFLNK:
        target = "a symbolic link"
        with suppress(OSError):
            target += f" to {os.readlink(path)}"  # noqa: PTH115
        raise UnsafeFileError(
            "symbolic links in campaigns and results are not followed",
            where=str(path),
            expected="a file or a directory of its own",
            found=target,
            hint="remove the link or, if you trust it, replace it with a copy of its target",
        )
    if kind in _KINDS:
        raise UnsafeFileError(
            "not a regular file",
            where=str(path),
            expected="a regular file",
            found=_KINDS[kind],
            hint="remove it, or replace it with a file",
        )


# ---- reading


def is_guarded(path: Path) -> bool:
    """True if a file is in a campaign, where no links are followed."""
    return _guarded(path, None) is not None


def open_read(path: Path, inside: Path | None = None, *, is_plain: bool = False) -> BufferedReader:
    """Open a regular file for reading. Raises OSError, and UserError if it is no regular file.
    `is_plain`: it is not guarded, which was looked up for all files of its directory at once."""
    return os.fdopen(_descriptor(path, inside, is_plain=is_plain), "rb")


def read_start(path: Path, most: int, *, is_plain: bool = False) -> tuple[bytes, bool]:
    """The first bytes of a file, and True if there may be more. Raises as `open_read` does, which
    takes longer than to read a small file."""
    descriptor = _descriptor(path, None, is_plain=is_plain)
    try:
        # Memory for a whole piece would take longer than reading a small log.
        size = min(most, os.fstat(descriptor).st_size + 1)
        start = os.read(descriptor, size)
    finally:
        os.close(descriptor)
    return start, len(start) == size


def _descriptor(path: Path, inside: Path | None, *, is_plain: bool) -> int:
    """A descriptor of the regular file. Raises as `open_read` does."""
    plain = nullcontext(_Spot(path, None, os.fspath(path)))
    with plain if is_plain else _spot(path, inside) as spot:
        if spot.status() is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return spot.opened(os.O_RDONLY)


def open_gzip(path: Path, name: Path | None = None) -> BufferedReader:
    """Open a compressed file. Raises as `open_read` does. Reading it raises EOFError or zlib.error
    if it is damaged, and UserError if it expands beyond a limit: a small file can expand to any
    size. `name`: what errors call it."""
    return BufferedReader(_Expanded(name or path, open_read(path)))


def most_expanded(size: int) -> int:
    """The bytes that so many compressed bytes may have when expanded."""
    return max(ALWAYS_EXPANDED, MOST_RATIO * size)


class _Expanded(RawIOBase):
    def __init__(self, path: Path, file: BufferedReader) -> None:
        self._path, self._file = path, file
        self._packed = gzip.GzipFile(fileobj=file)
        self._limit = most_expanded(os.fstat(file.fileno()).st_size)
        self._left = self._limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        size = self._packed.readinto(buffer)
        self._left -= size
        if self._left < 0:
            raise UserError(
                "the compressed file is suspiciously large",
                where=str(self._path),
                expected=f"at most {self._limit // 2**20} MiB when expanded",
                found="more",
                hint="if it is really a log or an archive of logs, expand it first",
            )
        return size

    def close(self) -> None:
        self._packed.close()
        self._file.close()
        super().close()


def read_bytes(path: Path, inside: Path | None = None) -> bytes:
    """The content of a regular file. Raises as `open_read` does, and UserError if it is too
    large."""
    with open_read(path, inside) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MOST_BYTES:
            raise UserError(
                "the file is too large",
                where=str(path),
                expected=f"at most {MOST_BYTES // 2**20} MiB",
                found=f"{size // 2**20} MiB",
            )
        return file.read()


def read_text(path: Path, errors: str = "strict") -> str:
    """The content of a regular file in UTF-8. Raises as `read_bytes` does, and
    UnicodeDecodeError."""
    return read_bytes(path).decode(errors=errors)


def is_regular(path: Path) -> bool:
    """True if there is a regular file at the path itself, and not at the end of a link."""
    return path.is_file() and not path.is_symlink()


# ---- writing


@contextmanager
def replacing(
    path: Path, mode: int = 0o666, inside: Path | None = None
) -> Iterator[BufferedRandom]:
    """Write a file under a random name; at the end, it replaces the file at the path. Creates
    parent directories. The umask restricts `mode`. Raises OSError, and UserError on a link."""
    with _spot(path, inside, make=True) as spot:
        if spot.folder is not None:
            spot.status()
        temporary = spot.sibling(_random_name())
        new = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, new, mode, dir_fd=spot.folder)
        try:
            with os.fdopen(descriptor, "w+b") as file:
                yield file
            os.replace(temporary, spot.name, src_dir_fd=spot.folder, dst_dir_fd=spot.folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=spot.folder)
            raise


def write_whole(
    path: Path, content: str | bytes, mode: int = 0o666, inside: Path | None = None
) -> Path:
    """Write a file with `replacing`. Returns its path."""
    with replacing(path, mode, inside) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return path


def open_append(path: Path, mode: int = 0o666, inside: Path | None = None) -> BufferedRandom:
    """Open a regular file for reading and appending; create it if there is nothing at its path.
    Raises OSError, and UserError if something else is there."""
    with _spot(path, inside, make=True) as spot:
        flags = os.O_RDWR | os.O_APPEND
        while True:
            try:
                if spot.status() is not None:
                    return os.fdopen(spot.opened(flags), "r+b")
                return os.fdopen(spot.opened(flags | os.O_CREAT | os.O_EXCL, mode), "r+b")
            except (FileExistsError, FileNotFoundError):
                # Another process created or removed it. A dangling link stays.
                if path.is_symlink():
                    raise


def require_regular(path: Path, inside: Path | None = None, *, create: bool = False) -> None:
    """Raise OSError, or UserError, unless another program can safely open the file. `create`: make
    an empty one if there is nothing. An existing file is not opened: SQLite would lose its
    locks."""
    with _spot(path, inside, make=create) as spot:
        if spot.status() is None and create:
            try:
                os.close(spot.opened(os.O_RDWR | os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                if spot.status() is None:  # a link to nothing
                    raise


def write_link(path: Path, target: str) -> None:
    """Make a symbolic link, which replaces what is at the path. Raises OSError."""
    with _spot(path, None) as spot:
        temporary = spot.sibling(_random_name())
        os.symlink(target, temporary, dir_fd=spot.folder)
        os.replace(temporary, spot.name, src_dir_fd=spot.folder, dst_dir_fd=spot.folder)


def remove(path: Path, inside: Path | None = None) -> None:
    """Remove a file, or a link itself, if it is there. Raises OSError."""
    with suppress(FileNotFoundError), _spot(path, inside) as spot:
        os.unlink(spot.name, dir_fd=spot.folder)


def write_result(path: Path, content: str | bytes, inside: Path | None = None) -> Path:
    """Write a file that the user requested. Raises UserError if that fails."""
    hint = "choose another directory, for example with --output-dir"
    with as_user_error("cannot write the result", path, hint):
        return write_whole(path, content, inside=inside)


# ---- compressed files


def stored(path: Path) -> Path:
    """The file, or the compressed one that took its place."""
    packed = path.with_name(f"{path.name}.gz")
    return packed if packed.is_file() and not path.is_file() else path


def open_stored(path: Path) -> BufferedReader:
    """Open a file for reading, as it was before it was compressed. Raises as `open_gzip` does."""
    place = stored(path)
    return open_read(place) if place == path else open_gzip(place)


# ---- JSON


def json_text(value: object) -> str:
    """The value as indented JSON, with a newline at the end. Raises ValueError on NaN."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(path: Path, value: object, inside: Path | None = None) -> Path:
    """Write a JSON file with `write_whole`."""
    return write_whole(path, json_text(value), inside=inside)


def decoded(content: bytes, where: str) -> str:
    """The content of a file as text. Raises a UserError if it is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        reason = f"an invalid byte at {error.start}"
        raise UserError("the file is not UTF-8", where=where, found=reason) from None


def parse_json(content: bytes, where: str) -> Any:
    """The value of a JSON document. Raises UserError if it is invalid, or if a number of it is not
    finite: NaN, Infinity, 1e999. `where` names the file."""
    try:
        value = json.loads(decoded(content, where))
    except json.JSONDecodeError as error:
        raise UserError(f"invalid JSON: {error.msg}", where=f"{where}:{error.lineno}") from None
    except (RecursionError, ValueError) as error:  # too deep, or an integer of too many digits
        raise UserError("invalid JSON", where=where, found=str(error)) from None
    for key, number in _not_finite(value, ""):
        problem = "a number of the record is not finite"
        raise UserError(problem, where=f"{where}: {key}", expected="a number", found=str(number))
    return value


def _not_finite(value: object, key: str) -> Iterator[tuple[str, float]]:
    """The numbers that are not finite, each with its key, such as `outcome.hosts[0]`."""
    if isinstance(value, float) and not math.isfinite(value):
        yield key, value
    elif isinstance(value, dict):
        for name, item in value.items():
            if isinstance(item, float | dict | list):
                yield from _not_finite(item, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, float | dict | list):
                yield from _not_finite(item, f"{key}[{index}]")


def read_json(path: Path, name: Path | None = None) -> dict[str, Any]:
    """Read a JSON object. Raises a UserError with file and line if the file has none. `name`: what
    errors call it."""
    where = str(name or path)
    try:
        value = parse_json(read_bytes(path), where)
    except FileNotFoundError:
        raise UserError("file not found", where=where) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError("cannot read the file", where=where, found=reason) from None
    if not isinstance(value, dict):
        raise UserError(
            "the file does not contain a JSON object", where=where, found=type(value).__name__
        )
    return value


def readable_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; an empty one if there is none that can be read."""
    with suppress(UserError, ValueError):
        return read_json(path)
    return {}


def as_object(value: object) -> dict[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}
