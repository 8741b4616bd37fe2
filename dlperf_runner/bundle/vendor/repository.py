"""A vendor's apt repository: its key and its signed index, as files of the mirror folder.

The index keeps the vendor's own signature, so the nodes' apt verifies what the vendor signed.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import re
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from debian import deb822

from ...core.files import read_bytes, write_whole
from ..debian import openpgp
from .download import Fetcher, FetchError, NotThereError
from .release_tables import VendorRepository

_ARCHITECTURES = ("amd64", "all")
_UNPACKED: dict[str, Callable[[bytes], bytes]] = {
    ".xz": lzma.decompress,
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".lzma": lzma.decompress,
    "": bytes,
}
# Forms of the index to keep: apt versions differ in which they ask for first.
_KEPT = (*_UNPACKED, ".zst", ".lz4")


def bring(one: VendorRepository, fetcher: Fetcher, refresh: bool) -> list[str]:
    """Have the repository's key and signed index in the folder: keep those of an earlier run if
    they are complete, else fetch new ones. Return the paths, the key's first."""
    binary, key_path = _key(one, fetcher)
    base = one.uri if one.suite.rstrip("./") == "" else f"{one.uri}dists/{one.suite}/"
    release = None if refresh else _stored(one, base, fetcher, binary)
    if release is not None:
        try:
            return _index(one, base, release, key_path, fetcher, offline=True)
        except FetchError:
            pass  # The signed file does not belong to this index.
    release = _fetched(one, base, fetcher, binary)
    index = _index(one, base, release, key_path, fetcher, offline=False)
    # Last: a folder with the signed files has everything they name.
    for name in ("InRelease", "Release", "Release.gpg"):
        path = fetcher.path(base + name)
        if name in release.files:
            fetcher.put(path, release.files[name])
        else:
            (fetcher.folder / path).unlink(missing_ok=True)
    return index


# ---- the key


def _key(one: VendorRepository, fetcher: Fetcher) -> tuple[bytes, str]:
    """The key in the form that gpgv reads, and its path."""
    path = fetcher.path(one.key)
    file = fetcher.folder / path
    content = read_bytes(file) if file.is_file() else None
    if content is None or _key_problem(one, content):
        content = fetcher.read(one.key)
        if problem := _key_problem(one, content):
            raise FetchError(f"has the wrong key ({one.key}): {problem}")
        fetcher.put(path, content)
    return openpgp.keyring(content)[0], path


def _key_problem(one: VendorRepository, content: bytes) -> str:
    found = hashlib.sha256(content).hexdigest()
    if one.key_sha256 and found != one.key_sha256:
        return f"sha256 {one.key_sha256} was expected, found {found}"
    try:
        fingerprints = openpgp.keyring(content)[1]
    except ValueError as error:
        return f"this is no public key: {error}"
    # All of them count: apt accepts a signature by any key of the keyring.
    if set(fingerprints) <= set(one.fingerprints):
        return ""
    return (
        f"fingerprint {' or '.join(one.fingerprints)} was expected, found {', '.join(fingerprints)}"
    )


# ---- the signature


@dataclass(frozen=True)
class _Release:
    text: str
    files: dict[str, bytes]


def _stored(one: VendorRepository, base: str, fetcher: Fetcher, binary: bytes) -> _Release | None:
    files = {
        name: read_bytes(file)
        for name in ("InRelease", "Release", "Release.gpg")
        if (file := fetcher.folder / fetcher.path(base + name)).is_file()
    }
    try:
        return _signed(one, files, binary) if files else None
    except FetchError:
        return None


def _fetched(one: VendorRepository, base: str, fetcher: Fetcher, binary: bytes) -> _Release:
    try:
        files = {"InRelease": fetcher.read(base + "InRelease")}
    except NotThereError:
        files = {name: fetcher.read(base + name) for name in ("Release", "Release.gpg")}
    return _signed(one, files, binary)


def _signed(one: VendorRepository, files: dict[str, bytes], binary: bytes) -> _Release:
    """The text that this key has signed."""
    with tempfile.TemporaryDirectory(prefix="dlperf-gpgv-") as name:
        folder = Path(name)
        for file, content in {**files, "key.gpg": binary}.items():
            write_whole(folder / file, content)
        # As apt does: a signature over SHA-1 proves nothing any more.
        argv = ["gpgv", "--homedir", name, "--keyring", "./key.gpg", "--status-fd", "1"]
        argv += ["--weak-digest", "SHA1"]
        if "InRelease" in files:
            argv += ["--output", "text", "InRelease"]
        else:
            argv += ["Release.gpg", "Release"]
        done = subprocess.run(argv, capture_output=True, check=False, cwd=folder)
        status = done.stdout.decode(errors="replace")
        signers = re.findall(r"^\[GNUPG:\] VALIDSIG .* ([0-9A-F]{40})$", status, re.MULTILINE)
        good = "[GNUPG:] GOODSIG " in status and "[GNUPG:] BADSIG " not in status
        if not good or not set(signers) & set(one.fingerprints):
            raise FetchError(f"has a signature that is not the vendor's: {_complaint(status)}")
        text = read_bytes(folder / ("text" if "InRelease" in files else "Release"))
    return _Release(text.decode(errors="replace"), files)


def _complaint(status: str) -> str:
    for word, meaning in (
        ("BADSIG", "it does not match the content"),
        ("EXPKEYSIG", "its key has expired"),
        ("REVKEYSIG", "its key was revoked"),
        ("EXPSIG", "it has expired"),
        ("NO_PUBKEY", "it was made with another key"),
    ):
        if match := re.search(rf"^\[GNUPG:\] {word} (\S+)", status, re.MULTILINE):
            return f"{meaning} ({match[1]})"
    return "gpgv finds no signature in it"


# ---- the index


def _index(
    one: VendorRepository,
    base: str,
    release: _Release,
    key_path: str,
    fetcher: Fetcher,
    *,
    offline: bool,
) -> list[str]:
    fields = deb822.Release(release.text)
    if "SHA256" not in fields:
        raise FetchError("has an index without SHA-256 sums")
    sums = {one["name"].removeprefix("./"): one["sha256"] for one in fields["SHA256"]}
    folders = [f"{c}/binary-{a}/" for c in one.components for a in _ARCHITECTURES] or [""]
    by_hash = fields.get("Acquire-By-Hash") == "yes"
    paths = [key_path, *(fetcher.path(base + name) for name in release.files)]
    for folder in folders:
        read = False
        for suffix in _KEPT:
            name = f"{folder}Packages{suffix}"
            if name not in sums:
                continue
            path = fetcher.path(base + name)
            urls = [base + name]
            if by_hash:
                # First: its content never changes, even while the vendor publishes a new index.
                urls.insert(0, f"{base}{folder}by-hash/SHA256/{sums[name]}")
            wanted = [fetcher.path(url) for url in urls]
            if not _have(fetcher, urls, sums[name], offline):
                continue
            paths += wanted
            if suffix in _UNPACKED and not read:
                read = True
                _check(fetcher.folder / path, suffix)
        if not read and not folder.endswith("-all/"):
            raise FetchError(f"has no readable index at {base}{folder}Packages")
    return paths


def _have(fetcher: Fetcher, urls: Sequence[str], sha256: str, offline: bool) -> bool:
    """Have one form of an index at each of its addresses. Vendors list forms that they do not have,
    and may have a form at one address only."""
    paths = [fetcher.path(url) for url in urls]
    if offline:
        return all(fetcher.has(path, sha256) for path in paths)
    for url, path in zip(urls, paths, strict=True):
        try:
            fetcher.bring(url, sha256)
        except NotThereError:
            continue
        for other in paths:
            fetcher.put(other, read_bytes(fetcher.folder / path))
        return True
    for path in paths:
        # From an earlier index: a node's apt would report it as damaged.
        (fetcher.folder / path).unlink(missing_ok=True)
    return False


def _check(path: Path, suffix: str) -> None:
    try:
        _UNPACKED[suffix](read_bytes(path)).decode()
    except (OSError, EOFError, lzma.LZMAError, zlib.error, ValueError) as error:
        raise FetchError(f"has an index that cannot be read: {error}") from None
