"""Downloads from vendors, or from a site's mirror of them, to <folder>/<host>/<path>.

Interrupted downloads resume. A file moves to its place only after its checksum was right.
"""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import quote, unquote

from ...core.files import open_append, open_read, read_bytes, write_whole
from ..folder.files import digest, place

PARTIAL = ".partial"
_ATTEMPTS = 3
_CHUNK = 1 << 20
_SMALL = 32 << 20
_SECONDS = 60


class FetchError(Exception):
    """Why a download failed, in words that follow its name."""


class NotThereError(FetchError):
    """The source does not have it."""


class CutOffError(FetchError):
    """The download was interrupted; a later one resumes it."""


@dataclass
class Fetcher:
    """`mirror`: as dlperf_vendor_mirror, a folder or an address with hosts below it; empty for the
    vendors themselves."""

    folder: Path
    mirror: str = ""
    say: Callable[[str], None] = lambda _: None
    fetched: list[str] = field(default_factory=list)

    def path(self, url: str) -> str:
        """Where the file of an address lies below the folder; the roles look for it there."""
        path = re.sub(r"^[a-z]+://", "", unquote(url))
        if ".." in path.split("/") or path.startswith("/"):
            raise FetchError(f"has an address that leads out of its folder: {url}")
        return path

    def has(self, path: str, sha256: str) -> bool:
        file = self.folder / path
        return file.is_file() and digest(file) == sha256

    def read(self, url: str) -> bytes:
        """Fetch something small into memory: the caller checks it and then calls `put`."""
        source = self.source(url)
        with _opened(source, 0) as (stream, _, length):
            content = _words(stream.read, _SMALL + 1)
        if len(content) > _SMALL:
            raise FetchError(f"is larger than {_SMALL} bytes ({source})")
        if length is not None and len(content) < length:
            raise CutOffError(f"was cut off after {len(content)} of {length} bytes ({source})")
        return content

    def put(self, path: str, content: bytes) -> None:
        """Write what `read` fetched."""
        file = self.folder / path
        if not file.is_file() or read_bytes(file) != content:
            write_whole(file, content)
            self.fetched.append(path)

    def bring(self, url: str, sha256: str, path: str = "", source: str = "") -> None:
        """Have the file at its place, verified; do nothing if it is already there."""
        path = path or self.path(url)
        if self.has(path, sha256):
            return
        if (self.folder / path).exists():
            self.say(f"{path} has the wrong content: fetching it again")
        source = source or self.source(url)
        partial = self.folder / PARTIAL / sha256
        partial.parent.mkdir(parents=True, exist_ok=True)
        found = digest(partial) if partial.exists() else None
        if found != sha256:
            self.say(f"fetching {Path(path).name}")
            _download(source, partial)
            if found and digest(partial) != sha256:
                # The part from an earlier run was of another file.
                partial.unlink()
                _download(source, partial)
            found = digest(partial)
        if found != sha256:
            size = partial.stat().st_size
            partial.unlink()
            raise FetchError(
                f"is another file: sha256 {sha256} was expected, found {found}"
                f" ({size} bytes of {source})"
            )
        place(partial, self.folder / path)
        self.fetched.append(path)

    def source(self, url: str) -> str:
        """An address, or a path of this machine."""
        if re.match(r"https?://", self.mirror) or not self.mirror:
            return f"{self.mirror.rstrip('/')}/{url.split('://')[-1]}" if self.mirror else url
        return str(Path(self.mirror.removeprefix("file:")) / self.path(url))


def _download(source: str, partial: Path) -> None:
    """Append to `partial` until the source says that it is complete."""
    for attempt in range(_ATTEMPTS):
        start = partial.stat().st_size if partial.exists() else 0
        try:
            with (
                _opened(source, start) as (stream, first, length),
                open_append(partial, inside=partial.parent) as file,
            ):
                file.truncate(first)
                while chunk := _words(stream.read, _CHUNK):
                    file.write(chunk)
            size = partial.stat().st_size
            if length is None or size >= length:
                return
            raise CutOffError(f"was cut off after {size} of {length} bytes ({source})")
        except CutOffError:
            if attempt == _ATTEMPTS - 1:
                raise


@contextmanager
def _opened(source: str, start: int) -> Iterator[tuple[IO[bytes], int, int | None]]:
    """The stream, the offset of its first byte, and the length of the whole file if known."""
    if not re.match(r"https?://", source):
        path = Path(source.removeprefix("file:"))
        if not path.is_file():
            raise NotThereError(f"is not at {path}")
        with open_read(path) as file:
            size = path.stat().st_size
            start = start if start <= size else 0
            file.seek(start)
            yield file, start, size
        return
    # Some vendors refuse requests without a user agent.
    request = urllib.request.Request(source, headers={"User-Agent": "dlperf_runner"})  # noqa: S310
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        response = urllib.request.urlopen(request, timeout=_SECONDS)  # noqa: S310
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:
            # Either the file is complete, or it has changed; the checksum decides.
            with _opened(source, 0) as opened:
                yield opened
            return
        kind = NotThereError if error.code in (404, 410) else FetchError
        raise kind(f"cannot be fetched: {error.code} {error.reason} ({source})") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise FetchError(f"cannot be fetched: {reason} ({source})") from None
    with response:
        given = response.headers.get("Content-Length")
        start = start if response.status == 206 else 0
        yield response, start, start + int(given) if given else None


def _words(read: Callable[[int], bytes], size: int) -> bytes:
    """Report errors of the network as an interruption."""
    try:
        return read(size)
    except (OSError, http.client.HTTPException) as error:
        raise CutOffError(f"was cut off: {error or type(error).__name__}") from None


def quoted(path: str) -> str:
    """A path, quoted for an address."""
    return quote(path, safe="/~")
