"""A vendor's apt repository, as much of it as a stack pins, with the vendor's own signature: what
nodes' apt verifies is what the vendor has signed.
"""

from __future__ import annotations

import bz2
import fnmatch
import gzip
import hashlib
import lzma
import re
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import UserError
from . import repository
from .debian_version import Relation, alternatives, key
from .fetch import Fetcher, FetchError, NotThereError, quoted
from .repository import Package
from .vendor import VendorRepository, of_the_roles

# What reads keys on nodes, too.
OPENPGP = "module_utils/openpgp_key.py"
_ARCHITECTURES = ("amd64", "all")
_UNPACKED: dict[str, Callable[[bytes], bytes]] = {
    ".xz": lzma.decompress,
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".lzma": lzma.decompress,
    "": bytes,
}
# (names or globs, version or glob), of all families of a stack: preferences hold for all sources.
Pin = tuple[tuple[str, ...], str]
# Kept for nodes whose apt asks for them first.
_KEPT = (*_UNPACKED, ".zst", ".lz4")
_HASH = re.compile(r"^ ([0-9a-f]{64}) +[0-9]+ (?:\./)?(\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Verified:
    """An index whose signature holds; `paths` are the files below the fetcher's folder that apt
    needs to see that itself."""

    packages: tuple[Package, ...]
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Chosen:
    package: Package
    wanted_by: str
    why: str


def verified(one: VendorRepository, fetcher: Fetcher, refresh: bool) -> Verified:
    """The repository's key and index: those that are there if they are whole, else new ones."""
    binary, key_path = _key(one, fetcher)
    base = one.uri if one.suite.rstrip("./") == "" else f"{one.uri}dists/{one.suite}/"
    release = None if refresh else _stored(one, base, fetcher, binary)
    if release is not None:
        try:
            return _index(one, base, release, key_path, fetcher, offline=True)
        except FetchError:
            pass  # The signed file is that of another time than the index.
    release = _fetched(one, base, fetcher, binary)
    index = _index(one, base, release, key_path, fetcher, offline=False)
    # Last: a folder that has the signed files has what they name.
    for name in ("InRelease", "Release", "Release.gpg"):
        path = fetcher.path(base + name)
        if name in release.files:
            fetcher.put(path, release.files[name])
        else:
            (fetcher.folder / path).unlink(missing_ok=True)
    return index


def choose(
    packages: Sequence[Package], families: Iterable[VendorRepository], pinned: Sequence[Pin]
) -> tuple[list[Chosen], list[str]]:
    """What `families` take of one repository, with what that depends on as far as the repository
    has it, in the versions that apt takes under the pins of the whole stack (`pinned`); and what
    is not there."""
    by_name: dict[str, list[Package]] = {}
    for package in packages:
        by_name.setdefault(package.name, []).append(package)
    for versions in by_name.values():
        versions.sort(key=lambda p: key(p.version), reverse=True)
    chosen: dict[tuple[str, str], Chosen] = {}
    missing: list[str] = []
    for family in families:
        queue: list[Chosen] = []
        for name, version in family.packages:
            there = by_name.get(name, [])
            found = [package for package in there if package.version == version]
            queue += [Chosen(package, family.wanted_by, name) for package in found[:1]]
            if not found:
                has = ", ".join(package.version for package in there[:3]) or "none"
                missing.append(f"{name}={version} is not in it; it has {has}")
        while queue:
            one = queue.pop(0)
            if chosen.setdefault((one.package.name, one.package.version), one) is one:
                queue += [
                    Chosen(package, family.wanted_by, f"{one.why} > {package.name}")
                    for package in _depends(one.package, by_name, pinned, chosen)
                ]
        # A node may have members that nothing asks for; they move with the family.
        for names, glob in family.pins:
            for name in by_name:
                member = (
                    _candidate(Relation(name), by_name, pinned) if _matches(name, names) else None
                )
                if member and fnmatch.fnmatchcase(member.version, glob):
                    one = Chosen(member, family.wanted_by, f"{name}, of the family's {glob}")
                    chosen.setdefault((name, member.version), one)
    return list(chosen.values()), missing


def pins(families: Iterable[VendorRepository]) -> list[Pin]:
    """The exact ones first, as in the preferences of a node: the first that matches counts."""
    families = list(families)
    exact: list[Pin] = [((name,), v) for one in families for name, v in one.packages]
    return exact + [pin for one in families for pin in one.pins]


def _depends(
    package: Package,
    by_name: dict[str, list[Package]],
    pinned: Sequence[Pin],
    chosen: dict[tuple[str, str], Chosen],
) -> list[Package]:
    found = []
    fields = {
        name: value.strip()
        for name, _, value in (line.partition(":") for line in package.stanza.splitlines())
    }
    groups = alternatives(", ".join(fields.get(f, "") for f in ("Pre-Depends", "Depends")))
    for group in groups:
        candidates = [c for r in group if (c := _candidate(r, by_name, pinned))]
        if candidates and not any((c.name, c.version) in chosen for c in candidates):
            found.append(candidates[0])
    return found


def _candidate(
    relation: Relation, by_name: dict[str, list[Package]], pinned: Sequence[Pin]
) -> Package | None:
    """The version that apt takes: the pinned one, else the newest; None where the distribution
    has to have it."""
    there = [p for p in by_name.get(relation.name, []) if relation.holds(p.version)]
    glob = next((version for names, version in pinned if _matches(relation.name, names)), "*")
    kept = [package for package in there if fnmatch.fnmatchcase(package.version, glob)]
    return next(iter(kept or there), None)


def _matches(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs)


# ---- the key


def _key(one: VendorRepository, fetcher: Fetcher) -> tuple[bytes, str]:
    """The key in the form that gpgv reads, judged as nodes judge it."""
    path = fetcher.path(one.key)
    file = fetcher.folder / path
    content = file.read_bytes() if file.is_file() else None
    if content is None or _key_problem(one, content):
        content = fetcher.read(one.key)
        if problem := _key_problem(one, content):
            raise FetchError(f"has another key than it should ({one.key}): {problem}")
        fetcher.put(path, content)
    binary: bytes = of_the_roles(OPENPGP).dearmored(content)
    return binary, path


def _key_problem(one: VendorRepository, content: bytes) -> str:
    found = hashlib.sha256(content).hexdigest()
    if one.key_sha256 and found != one.key_sha256:
        return f"sha256 {one.key_sha256} was expected, found {found}"
    return of_the_roles(OPENPGP).key_problem(content, one.fingerprints) or ""


# ---- the signature


@dataclass(frozen=True)
class _Release:
    text: str
    files: dict[str, bytes]


def _stored(one: VendorRepository, base: str, fetcher: Fetcher, binary: bytes) -> _Release | None:
    files = {
        name: file.read_bytes()
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
    """The text that was signed, by that key and no other."""
    with tempfile.TemporaryDirectory(prefix="dlperf-gpgv-") as name:
        folder = Path(name)
        for file, content in {**files, "key.gpg": binary}.items():
            (folder / file).write_bytes(content)
        # As apt has it; a signature over SHA-1 proves nothing any more.
        argv = ["gpgv", "--homedir", name, "--keyring", "./key.gpg", "--status-fd", "1"]
        argv += ["--weak-digest", "SHA1"]
        if "InRelease" in files:
            argv += ["--output", "text", "InRelease"]
        else:
            argv += ["Release.gpg", "Release"]
        try:
            done = subprocess.run(argv, capture_output=True, check=False, cwd=folder)
        except FileNotFoundError:
            raise UserError("gpgv is missing", hint="install the package gpgv") from None
        status = done.stdout.decode(errors="replace")
        signers = re.findall(r"^\[GNUPG:\] VALIDSIG .* ([0-9A-F]{40})$", status, re.MULTILINE)
        good = "[GNUPG:] GOODSIG " in status and "[GNUPG:] BADSIG " not in status
        if not good or not set(signers) & set(one.fingerprints):
            raise FetchError(f"has a signature that is not its vendor's: {_complaint(status)}")
        text = (folder / ("text" if "InRelease" in files else "Release")).read_bytes()
    return _Release(text.decode(errors="replace"), files)


def _complaint(status: str) -> str:
    for word, meaning in (
        ("BADSIG", "it does not fit the content"),
        ("EXPKEYSIG", "its key has expired"),
        ("REVKEYSIG", "its key was revoked"),
        ("EXPSIG", "it has expired"),
        ("NO_PUBKEY", "it is of another key"),
    ):
        if match := re.search(rf"^\[GNUPG:\] {word} (\S+)", status, re.MULTILINE):
            return f"{meaning} ({match[1]})"
    return "there is no signature in it that gpgv can judge"


# ---- the index


def _index(
    one: VendorRepository,
    base: str,
    release: _Release,
    key_path: str,
    fetcher: Fetcher,
    *,
    offline: bool,
) -> Verified:
    sums = {path: sha256 for sha256, path in _HASH.findall(_sha256_part(release.text))}
    folders = [f"{c}/binary-{a}/" for c in one.components for a in _ARCHITECTURES] or [""]
    by_hash = re.search(r"^Acquire-By-Hash: *yes", release.text, re.MULTILINE) is not None
    packages: list[Package] = []
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
                # First: it stays what it is while the vendor puts a new index in its place.
                urls.insert(0, f"{base}{folder}by-hash/SHA256/{sums[name]}")
            wanted = [fetcher.path(url) for url in urls]
            if not _have(fetcher, urls, sums[name], offline):
                continue
            paths += wanted
            if suffix in _UNPACKED and not read:
                read = True
                packages += _parsed((fetcher.folder / path).read_bytes(), suffix)
        if not read and not folder.endswith("-all/"):
            raise FetchError(f"has no index that can be read at {base}{folder}Packages")
    return Verified(tuple(packages), tuple(paths))


def _have(fetcher: Fetcher, urls: Sequence[str], sha256: str, offline: bool) -> bool:
    """One form of an index at each of its addresses; vendors name forms that they do not have, and
    may have one at one address only."""
    paths = [fetcher.path(url) for url in urls]
    if offline:
        return all(fetcher.has(path, sha256) for path in paths)
    for url, path in zip(urls, paths, strict=True):
        try:
            fetcher.bring(url, sha256)
        except NotThereError:
            continue
        for other in paths:
            fetcher.put(other, (fetcher.folder / path).read_bytes())
        return True
    for path in paths:
        # Of another time; a node's apt would take it for damaged.
        (fetcher.folder / path).unlink(missing_ok=True)
    return False


def _sha256_part(text: str) -> str:
    part = re.search(r"^SHA256:[^\n]*\n((?: [^\n]*\n?)*)", text, re.MULTILINE)
    if part is None:
        raise FetchError("has an index without SHA-256 sums")
    return part[1]


def _parsed(content: bytes, suffix: str) -> list[Package]:
    try:
        text = _UNPACKED[suffix](content).decode(errors="replace")
        return [
            repository.parse(stanza.strip("\n") + "\n")
            for stanza in re.split(r"\n\n+", text)
            if re.search(rf"^Architecture: ({'|'.join(_ARCHITECTURES)})$", stanza, re.MULTILINE)
            and re.search(r"^SHA256: [0-9a-f]{64}$", stanza, re.MULTILINE)
        ]
    except (OSError, EOFError, lzma.LZMAError, zlib.error, KeyError, ValueError) as error:
        raise FetchError(f"has an index that cannot be read: {error}") from None


def address(one: VendorRepository, package: Package) -> str:
    return one.uri + quoted(package.filename)
