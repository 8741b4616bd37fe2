"""Archives of logs, read as if they were unpacked: .tar, .tar.gz, .tgz and .zip.

Members that may be logs are copied into a private directory under random names, so no name in an
archive becomes a path on disk. Links, devices, absolute paths and paths with `..` are not read.
"""

from __future__ import annotations

import re
import secrets
import shutil
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from ..core import files
from ..core.errors import UserError, as_user_error

MOST_MEMBERS = 50_000
MOST_EXPANDED = 2**34  # bytes of all members together
_MOST_HEADER = 2**20  # bytes of a long name or of further attributes, which are read into memory
_HEADERS = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
_DEPTH = 4  # runs/<case>/r<k>/<file>
_PART = re.compile(r"[A-Za-z0-9][\w.+,=@-]{0,200}", re.ASCII)  # of a path in a campaign
_LINK, _SPECIAL = "a link in an archive", "not a regular file in an archive"
_NAME = re.compile(r"(?P<stem>.+)\.(?:tar(?:\.gz)?|tgz|zip)", re.IGNORECASE | re.DOTALL)
_DAMAGE = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, struct.error),
    *(EOFError, OSError, ValueError, NotImplementedError, RuntimeError),
)


class Member(NamedTuple):
    """A file in an archive: its path below the archive, and its content, or why it is not read."""

    name: str
    content: Path | None = None
    reason: str | None = None


def scratch_of(stack: ExitStack) -> Callable[[], Path]:
    """Gives a private directory, made when it is first needed, which the stack removes."""
    return cache(lambda: Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dlperf-"))))


def stem_of_archive(name: str) -> str | None:
    """The name of an archive without its extension; None if no archive has such a name."""
    match = _NAME.fullmatch(name)
    return match and match["stem"]


def members_of(
    archive: Path, is_wanted: Callable[[PurePosixPath], bool], scratch: Callable[[], Path]
) -> list[Member]:
    """The members of an archive. Of those whose paths are wanted, the content is copied into the
    directory that `scratch` gives. Raises UserError if the archive is damaged or too large."""
    read = _zipped if archive.suffix.lower() == ".zip" else _tarred
    members: dict[str, Member] = {}  # the last of several with the same name counts
    try:
        left = min(MOST_EXPANDED, files.most_expanded(archive.stat().st_size))
        for number, (name, size, special, open_member) in enumerate(read(archive)):
            left -= size  # reading a member gives no more than this
            if number == MOST_MEMBERS or left < 0:
                raise _too_large(archive)
            path = PurePosixPath(name)
            leads_out = path.is_absolute() or ".." in path.parts
            reason = "its path leads out of the archive" if leads_out else special
            content = None
            if reason is None and is_wanted(path):
                content = scratch() / secrets.token_hex(8)
                with files.replacing(content, 0o600) as copy:
                    shutil.copyfileobj(open_member(), copy, 2**20)
            members[str(path)] = Member(str(path), content, reason)
    except _DAMAGE as error:
        raise UserError(
            "the archive cannot be read",
            where=str(archive),
            expected="a whole archive",
            found=str(error),
            hint="unpack it, and summarize the directory",
        ) from None
    return list(members.values())


def laid_out(members: Iterable[Member], root: PurePosixPath, scratch: Path) -> Path:
    """A new directory in `scratch` with the members of a campaign, whose root is a directory of
    their archive. Only names that this tool gives become paths. Raises UserError."""
    place = scratch / secrets.token_hex(8)
    place.mkdir()
    for member in members:
        path = PurePosixPath(member.name)
        below = path.relative_to(root).parts if path.is_relative_to(root) else ()
        if member.content is None or len(below) > _DEPTH or not all(map(_PART.fullmatch, below)):
            continue
        with (
            as_user_error("the campaign in the archive has a damaged layout", member.name),
            files.open_read(member.content) as content,
            files.replacing(place.joinpath(*below), 0o600, place) as copy,
        ):
            shutil.copyfileobj(content, copy, 2**20)
    return place


def _too_large(archive: Path) -> UserError:
    most = f"{MOST_EXPANDED // 2**30} GiB, and {files.MOST_RATIO} times its size"
    return UserError(
        "the archive is suspiciously large",
        where=str(archive),
        expected=f"at most {MOST_MEMBERS} members of {most}",
        found="more",
        hint="if it really holds logs, unpack it, and summarize the directory",
    )


# The name of a member, its size, why it is not read, and how it is opened.
_Entries = Iterator[tuple[str, int, str | None, Callable[[], IO[bytes]]]]


class _TarInfo(tarfile.TarInfo):
    """A member, or a header of one. tarfile reads the headers in _HEADERS into memory, whatever
    their size."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in _HEADERS and self.size > _MOST_HEADER:
            raise tarfile.ReadError("a header is too long")
        member: tarfile.TarInfo = super()._proc_member(tar)  # type: ignore[misc]
        return member


def _tarred(archive: Path) -> _Entries:
    packed = archive.suffix.lower() != ".tar"
    with (
        files.open_gzip(archive) if packed else files.open_read(archive) as file,
        tarfile.open(fileobj=file, mode="r|", tarinfo=_TarInfo) as tar,
    ):
        for member in tar:
            if member.isdir():
                continue
            is_link = member.issym() or member.islnk()
            reason = _LINK if is_link else None
            if not is_link and (not member.isreg() or member.issparse()):
                reason = _SPECIAL
            yield member.name, member.size, reason, partial(_opened, tar, member)


def _opened(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    file = tar.extractfile(member)
    if file is None:
        raise tarfile.ReadError("a member has no content")
    return file


def _zipped(archive: Path) -> _Entries:
    with files.open_read(archive) as file, zipfile.ZipFile(file) as packed:
        for member in packed.infolist():
            if member.is_dir():
                continue
            mode, reason = stat.S_IFMT(member.external_attr >> 16), None
            if mode not in (0, stat.S_IFREG):
                reason = _LINK if mode == stat.S_IFLNK else _SPECIAL
            elif member.flag_bits & 1:
                reason = "encrypted"
            elif member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                reason = "compressed in an unknown way; unpack the archive"
            # Some programs write the separators of Windows.
            name = member.filename.replace("\\", "/")
            yield name, member.file_size, reason, partial(packed.open, member)
