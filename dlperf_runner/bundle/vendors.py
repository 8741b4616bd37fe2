"""Vendors' items of a stack in the folder: keys, signed indexes and packages of their repositories,
and single files. They lie where the roles look for them behind dlperf_vendor_mirror: what a vendor
has at https://<host>/<path> is at vendor/<host>/<path>.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from debian import deb822

from ..core.errors import UserError
from ..core.files import read_bytes, write_whole
from . import apt
from .apt import AptPackage, FetchError, NotThereError, Root
from .archives import Source, keyring
from .manifest import Item, Missing, digest, move_verified
from .release_tables import ANY, VendorFile, VendorRepository

FOLDER = "vendor"
PARTIAL = ".partial"
# Below vendor/, for files that have no address at a vendor.
OPERATOR = "operator"


@dataclass
class Fetcher:
    """Downloads into a mirror folder; `fetched` are their paths. `mirror`: as dlperf_vendor_mirror,
    a folder or an address with hosts below it; empty for the vendors themselves. An interrupted
    download is resumed; a file moves to its place only after its checksum was right."""

    folder: Path
    root: Root
    mirror: str = ""
    say: Callable[[str], None] = lambda _: None
    fetched: list[str] = field(default_factory=list)

    def path(self, url: str) -> str:
        """The path of an address's file in the folder; the roles look for it there."""
        path = re.sub(r"^[a-z]+://", "", unquote(url))
        if ".." in path.split("/") or path.startswith("/"):
            raise FetchError(f"has an address that leads out of its folder: {url}")
        return f"{FOLDER}/{path}"

    def source(self, url: str) -> str:
        """The origin of an address's file: another address, or a path of this machine."""
        host_and_path = url.split("://")[-1]
        if re.match(r"https?://", self.mirror) or not self.mirror:
            return f"{self.mirror.rstrip('/')}/{host_and_path}" if self.mirror else url
        return f"{Path(self.mirror.removeprefix('file:')).absolute()}/{unquote(host_and_path)}"

    def has(self, path: str, sha256: str) -> bool:
        file = self.folder / path
        return file.is_file() and digest(file) == sha256

    def bring(self, url: str, sha256: str, path: str = "", source: str = "") -> None:
        """Have the file at its place, verified; do nothing if it is already there."""
        path = path or self.path(url)
        if self.has(path, sha256):
            return
        if (self.folder / path).exists():
            self.say(f"{path} has the wrong content: fetching it again")
        self.say(f"fetching {Path(path).name}")
        partial = self.folder / PARTIAL / sha256
        apt.download_file(self.root, source or self.source(url), partial, sha256)
        move_verified(partial, self.folder / path, sha256)
        self.fetched.append(path)

    def read(self, url: str) -> bytes:
        """Fetch something small into memory: the caller checks it and then calls `put`."""
        partial = self.folder / PARTIAL / "unchecked"
        partial.unlink(missing_ok=True)
        apt.download_file(self.root, self.source(url), partial)
        return read_bytes(partial)

    def put(self, path: str, content: bytes) -> None:
        """Have this content at its place."""
        file = self.folder / path
        if not file.is_file() or read_bytes(file) != content:
            write_whole(file, content)
            self.fetched.append(path)


# ---- repositories


def source_of(one: VendorRepository, fetcher: Fetcher, keyrings: Path) -> Source:
    """The repository as apt reads it, at its vendor or in the mirror of vendors. Its key is in the
    folder, and in `keyrings` in the form that apt reads. Raises FetchError."""
    path = fetcher.path(one.key)
    file = fetcher.folder / path
    content = read_bytes(file) if file.is_file() else b""
    if _key_problem(one, content):
        content = fetcher.read(one.key)
        if problem := _key_problem(one, content):
            raise FetchError(f"has the wrong key ({one.key}): {problem}")
        fetcher.put(path, content)
    ring = keyrings / f"{one.name}-{one.fingerprints[0]}.gpg"
    write_whole(ring, keyring(content)[0])
    uri = fetcher.source(one.uri)
    if uri.startswith("/"):
        # apt gives up on file: if the first form of an index is not there.
        uri = f"copy:{apt.quoted(uri)}"
    return Source(uri, (one.suite,), one.components, str(ring))


def _key_problem(one: VendorRepository, content: bytes) -> str:
    sha256 = hashlib.sha256(content).hexdigest()
    if one.key_sha256 and sha256 != one.key_sha256:
        return f"sha256 {one.key_sha256} was expected, found {sha256}"
    try:
        fingerprints = keyring(content)[1]
    except ValueError as error:
        return f"this is no public key: {error}"
    # All of them count: apt accepts a signature by any key of the keyring.
    if set(fingerprints) <= set(one.fingerprints):
        return ""
    expected = " or ".join(one.fingerprints)
    return f"fingerprint {expected} was expected, found {', '.join(fingerprints)}"


def bring_index(
    one: VendorRepository, signed: Mapping[str, Path], fetcher: Fetcher, architecture: str
) -> list[str]:
    """Have the repository's index in the folder, with its vendor's own signature: all forms that
    the vendor has, because nodes' apts differ in which they ask for. `signed`: the files that apt
    has verified. Returns the paths."""
    base = one.uri if one.suite.rstrip("./") == "" else f"{one.uri}dists/{one.suite}/"
    contents = {name: read_bytes(path) for name, path in signed.items()}
    fields = deb822.Release(contents.get("InRelease") or contents["Release"])
    by_hash = fields.get("Acquire-By-Hash") == "yes"
    folders = [f"{c}/binary-{a}/" for c in one.components for a in (architecture, "all")] or [""]
    paths = []
    for entry in fields.get("SHA256", []):
        name, sha256 = entry["name"].removeprefix("./"), entry["sha256"]
        folder, _, form = name.rpartition("/")
        folder = f"{folder}/" if folder else ""
        if folder in folders and form.partition(".")[0] == "Packages":
            # By its hash first: that never changes, even while the vendor publishes a new index.
            hashed = [f"{base}{folder}by-hash/SHA256/{sha256}"] if by_hash else []
            paths += _bring_form([*hashed, base + name], sha256, fetcher)
    # Last: a folder with the signed files has everything they name.
    for name in ("InRelease", "Release", "Release.gpg"):
        path = fetcher.path(base + name)
        if name in contents:
            fetcher.put(path, contents[name])
            paths.append(path)
        else:
            (fetcher.folder / path).unlink(missing_ok=True)
    return paths


def _bring_form(urls: Sequence[str], sha256: str, fetcher: Fetcher) -> list[str]:
    """Have one form of an index at each of its addresses. Vendors list forms that they do not have,
    and may have a form at one address only."""
    paths = [fetcher.path(url) for url in urls]
    for url, path in zip(urls, paths, strict=True):
        try:
            fetcher.bring(url, sha256)
        except NotThereError:
            continue
        for other in paths:
            fetcher.put(other, read_bytes(fetcher.folder / path))
        return paths
    for path in paths:
        # From an earlier index: a node's apt would report it as damaged.
        (fetcher.folder / path).unlink(missing_ok=True)
    return []


# ---- packages


@dataclass(frozen=True)
class Vendors:
    """The vendors' repositories that apt has read."""

    fetcher: Fetcher
    sources: Mapping[VendorRepository, Source]

    def wanted(
        self, root: Root
    ) -> tuple[dict[str, tuple[str, ...]], dict[str, str], list[Missing]]:
        """By role, the packages that the indexes have, as apt-get takes them; the role of each that
        is only unpacked; and those that the indexes lack."""
        families = [(one, (*one.packages, *one.unpacked)) for one in self.sources]
        rows = apt.versions(root, {name for _, exact in families for name, _ in exact})
        installed: dict[str, tuple[str, ...]] = {}
        unpacked: dict[str, str] = {}
        missing = []
        for one, exact in families:
            uri = self.sources[one].uri.rstrip("/")
            for name, stated in exact:
                versions = [v for n, v, source in rows if n == name and source.startswith(uri)]
                version = versions[0] if stated == ANY and versions else stated
                package, role = f"{name}={version}", one.wanted_by
                if version not in versions:
                    reason = (
                        f"does not have it: {package} is not in it; it has"
                        f" {', '.join(versions[:3]) or 'none'}"
                    )
                    what = f"a package of {one.name}"
                    missing.append(Missing(what, role, one.item.source, reason, "Try --refresh."))
                elif (name, stated) in one.unpacked:
                    unpacked[package] = role
                else:
                    installed[role] = (*installed.get(role, ()), package)
        return installed, unpacked, missing

    def unpacked(self, root: Root, roles: Mapping[str, str]) -> dict[AptPackage, Item]:
        """Packages that nodes unpack beside installed ones, with the role of each."""
        items = {}
        for choice in apt.candidates(root, roles):
            role = roles[f"{choice.name}={choice.version}"]
            if path := self.path(choice):
                why = f"{choice.name}, which {role} unpacks"
                items[choice] = choice.item(path, (role,), why)
        return items

    def members(self, root: Root, closure: Container[str]) -> dict[AptPackage, Item]:
        """Packages outside the closure that a pin moves with its family: a node may have them."""
        exact = {name for one in self.sources for name, _ in one.packages}
        pins = [(one.wanted_by, *pin) for one in self.sources for pin in one.pins]
        moved = {}
        for name in apt.names(root):
            if name not in exact and name not in closure:
                for role, globs, version in pins:
                    if any(fnmatchcase(name, glob) for glob in globs):
                        moved[name] = (role, version)
                        break
        items = {}
        for choice in apt.candidates(root, moved):
            role, version = moved[choice.name]
            path = self.path(choice)
            if path is not None and fnmatchcase(choice.version, version):
                why = f"{choice.name}, which {role} keeps at {version}"
                items[choice] = choice.item(path, (role,), why)
        return items

    def path(self, choice: AptPackage) -> str | None:
        """The path of a vendor's package in the folder; None for one of the distribution. Raises
        UserError if that would be outside."""
        url = unquote(choice.url)
        for one, source in self.sources.items():
            start = unquote(source.uri)
            if url.startswith(start):
                # Flat repositories have their packages at ./
                below = PurePosixPath(url.removeprefix(start))
                if ".." in below.parts or below.is_absolute():
                    problem = f"the index of {one.name} puts {choice.name} outside its folder"
                    raise UserError(problem, found=url)
                return f"{self.fetcher.path(one.uri)}{below}"
        return None


def preferences(families: Iterable[VendorRepository]) -> str:
    """apt_preferences(5) that keep apt to the families' versions, as the module package_family
    writes them on nodes. A package with an exact version gets no other, even if a glob matches."""
    pins: list[tuple[str, str, int]] = []
    for one in families:
        globs = [glob for names, _ in one.pins for glob in names]
        for name, version in sorted(one.packages):
            pins.append((name, version, 1001))
            if any(fnmatchcase(name, glob) for glob in globs):
                pins.append((name, "*", -1))
        pins += [(" ".join(names), version, 1001) for names, version in one.pins]
    return "\n".join(
        f"Package: {names}\nPin: version {version}\nPin-Priority: {priority}\n"
        for names, version, priority in pins
    )


# ---- files


def bring_file(
    one: VendorFile, given: str, checksum: str, earlier: Sequence[Item], fetcher: Fetcher
) -> tuple[str, str] | None:
    """Have a file of a vendor or of the operator in the folder. `given`: the operator's copy, a
    path or an address; `checksum`: the operator's; `earlier`: what an earlier run had. Returns its
    path and sha256; None if nobody asks for it. Raises FetchError."""
    if one.url:
        path = fetcher.path(one.url)
    else:
        former = [item.path for item in earlier if item.name == one.name and not given]
        path = former[0] if former else f"{FOLDER}/{OPERATOR}/{Path(given).name}"
    of_earlier = {item.path: item.sha256 for item in earlier}
    sha256 = checksum.lower() or one.sha256 or of_earlier.get(path, "")
    is_present = bool(sha256) and fetcher.has(path, sha256)
    if one.is_optional and not (is_present or given or sha256):
        return None
    can_be_fetched = one.url and (fetcher.mirror or not one.has_login)
    if not (is_present or given or can_be_fetched):
        raise FetchError("is behind a login" if one.url else "has no address that is known here")
    if not sha256:
        raise FetchError("has no known checksum, and nothing is kept without one")
    fetcher.bring(one.url, sha256, path, given)
    return path, sha256
