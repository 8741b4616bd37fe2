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
from pathlib import Path
from urllib.parse import quote, unquote

from debian import deb822

from ..core.errors import UserError
from ..core.files import read_bytes, write_whole
from ..core.lists import shortened
from . import apt
from .apt import AptPackage, Root
from .archives import Source, keyring
from .manifest import Item, Missing, digests
from .release_tables import ANY, VendorFile, VendorRepository

FOLDER = "vendor"
# Vendors list forms of an index that they do not have.
NOT_THERE = "is not at|  (?:404|410) "


class FetchError(Exception):
    """The reason why something is not in the folder, in words that follow its name."""


@dataclass
class Downloads:
    """Downloads into a mirror folder; `fetched` are their paths. `mirror`: as dlperf_vendor_mirror,
    a folder or an address with hosts below it; empty for the vendors themselves."""

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
        """The origin of a vendor's address: itself, or its place in the mirror of vendors."""
        path = url.split("://")[-1]
        is_local = self.mirror and not re.match(r"https?://", self.mirror)
        place = f"{self.mirror.rstrip('/')}/{unquote(path) if is_local else path}"
        return address(place) if self.mirror else url

    def fetch(self, wanted: Mapping[str, tuple[str, str]]) -> dict[str, str]:
        """Have files at their paths, each from an address and with a sha256; those that are right
        stay. Returns those that could not be fetched, with the reason."""
        present = digests(self.folder, wanted)
        absent = {path: pair for path, pair in wanted.items() if present.get(path) != pair[1]}
        if absent:
            self.say(f"fetching {shortened([Path(path).name for path in absent])}")
        failed = apt.fetch(self.root, {self.folder / path: absent[path] for path in absent})
        reasons = {path.relative_to(self.folder).as_posix(): why for path, why in failed.items()}
        self.fetched += [path for path in absent if path not in reasons]
        return reasons

    def put(self, path: str, content: bytes) -> None:
        """Have this content at its place."""
        file = self.folder / path
        if not file.is_file() or read_bytes(file) != content:
            write_whole(file, content)
            self.fetched.append(path)


def address(place: str) -> str:
    """An address as apt takes it, of an address or a path of this machine."""
    if re.match(r"https?://", place):
        return place
    path = place.removeprefix("file:")
    path = path if path.startswith("/") else f"{Path.cwd()}/{path}"
    # With file:, apt gives up if the first form of an index is not there.
    return f"copy:{quote(path, safe='/~')}"


# ---- repositories


def source_of(one: VendorRepository, downloads: Downloads, keyrings: Path) -> Source:
    """The repository as apt reads it, at its vendor or in the mirror of vendors. Its key is in the
    folder, and in `keyrings` in the form that apt reads. Raises FetchError."""
    path = downloads.path(one.key)
    file = downloads.folder / path
    content = read_bytes(file) if file.is_file() else b""
    if _key_problem(one, content):
        unchecked = keyrings / "unchecked"
        unchecked.unlink(missing_ok=True)
        if failed := apt.fetch(downloads.root, {unchecked: (downloads.source(one.key), "")}):
            raise FetchError(failed[unchecked])
        content = read_bytes(unchecked)
        if problem := _key_problem(one, content):
            raise FetchError(f"has the wrong key ({one.key}): {problem}")
        downloads.put(path, content)
    ring = keyrings / f"{one.name}-{one.fingerprints[0]}.gpg"
    write_whole(ring, keyring(content)[0])
    return Source(downloads.source(one.uri), (one.suite,), one.components, str(ring))


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
    one: VendorRepository, signed: Mapping[str, Path], downloads: Downloads, architecture: str
) -> list[str]:
    """Have the repository's index in the folder, with its vendor's own signature: all forms that
    the vendor has, because nodes' apts differ in which they ask for. `signed`: the files that apt
    has verified. Returns the paths."""
    base = one.uri if one.suite.rstrip("./") == "" else f"{one.uri}dists/{one.suite}/"
    contents = {name: read_bytes(path) for name, path in signed.items()}
    fields = deb822.Release(contents.get("InRelease") or contents["Release"])
    folders = [f"{c}/binary-{a}/" for c in one.components for a in (architecture, "all")] or [""]
    # The addresses of each form, by its digest.
    forms: dict[str, list[str]] = {}
    for entry in fields.get("SHA256", []):
        name, sha256 = entry["name"].removeprefix("./"), entry["sha256"]
        folder = name[: name.rfind("/") + 1]
        if folder in folders and re.fullmatch(r"Packages(\..*)?", name.removeprefix(folder)):
            forms.setdefault(sha256, []).append(base + name)
            if fields.get("Acquire-By-Hash") == "yes":
                forms[sha256].append(f"{base}{folder}by-hash/SHA256/{sha256}")
    pairs = {url: (downloads.source(url), sha256) for sha256, urls in forms.items() for url in urls}
    lost = downloads.fetch({downloads.path(url): pair for url, pair in pairs.items()})
    paths = []
    for urls in forms.values():
        places = [downloads.path(url) for url in urls]
        if have := [path for path in places if path not in lost]:
            # Vendors may have a form at one address only.
            for path in places:
                downloads.put(path, read_bytes(downloads.folder / have[0]))
            paths += places
            continue
        if broken := [lost[path] for path in places if not re.search(NOT_THERE, lost[path])]:
            raise FetchError(broken[0])
        for path in places:
            # From an earlier index: a node's apt would report it as damaged.
            (downloads.folder / path).unlink(missing_ok=True)
    # Last: a folder with the signed files has everything they name.
    for name in ("InRelease", "Release", "Release.gpg"):
        path = downloads.path(base + name)
        if name in contents:
            downloads.put(path, contents[name])
            paths.append(path)
        else:
            (downloads.folder / path).unlink(missing_ok=True)
    return paths


# ---- packages


@dataclass(frozen=True)
class Vendors:
    """The vendors' repositories that apt has read."""

    downloads: Downloads
    sources: Mapping[VendorRepository, Source]

    def wanted(self, root: Root) -> tuple[dict[str, list[str]], dict[str, str], list[Missing]]:
        """By role, the packages that the indexes have, as apt-get takes them; the role of each that
        is only unpacked; and those that the indexes lack."""
        exact = [(one, *pair) for one in self.sources for pair in (*one.packages, *one.unpacked)]
        rows = apt.versions(root, {name for _, name, _ in exact})
        installed: dict[str, list[str]] = {}
        unpacked: dict[str, str] = {}
        missing = []
        for one, name, stated in exact:
            uri = self.sources[one].uri.rstrip("/")
            available = [v for n, v, source in rows if n == name and source.startswith(uri)]
            version = available[0] if stated == ANY and available else stated
            package, role = f"{name}={version}", one.wanted_by
            if version not in available:
                choice = ", ".join(available[:3]) or "none"
                reason = f"does not have it: {package} is not in it; it has {choice}"
                what = f"a package of {one.name}"
                missing.append(Missing(what, role, one.item.source, reason, "Try --refresh."))
            elif (name, stated) in one.unpacked:
                unpacked[package] = role
            else:
                installed.setdefault(role, []).append(package)
        return installed, unpacked, missing

    def outside(
        self, root: Root, unpacked: Mapping[str, str], closure: Container[str]
    ) -> dict[AptPackage, Item]:
        """Packages outside the closure: those that nodes unpack beside installed ones, with their
        roles, and those that a pin moves with its family, because a node may have them."""
        exact = {name for one in self.sources for name, _ in one.packages}
        pins = [(glob, one.wanted_by, v) for one in self.sources for n, v in one.pins for glob in n]
        moved = {}
        for name in apt.names(root):
            fitting = (pin for glob, *pin in pins if fnmatchcase(name, glob))
            if name not in exact and name not in closure and (pin := next(fitting, None)):
                moved[name] = pin
        items = {}
        for choice in apt.candidates(root, unpacked):
            role = unpacked[f"{choice.name}={choice.version}"]
            why = f"{choice.name}, which {role} unpacks"
            items[choice] = choice.item(self.path(choice) or "", (role,), why)
        for choice in apt.candidates(root, moved):
            role, version = moved[choice.name]
            if (path := self.path(choice)) and fnmatchcase(choice.version, version):
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
                below = url.removeprefix(start).removeprefix("./")
                if below.startswith("/") or ".." in below.split("/"):
                    problem = f"the index of {one.name} puts {choice.name} outside its folder"
                    raise UserError(problem, found=url)
                return f"{self.downloads.path(one.uri)}{below}"
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
    one: VendorFile, given: str, checksum: str, earlier: Sequence[Item], downloads: Downloads
) -> tuple[str, str] | None:
    """Have a file of a vendor or of the operator in the folder. `given`: the operator's copy, a
    path or an address; `checksum`: the operator's; `earlier`: what an earlier run had. Returns its
    path and sha256; None if nobody asks for it. Raises FetchError."""
    if one.url:
        path = downloads.path(one.url)
    else:
        former = [item.path for item in earlier if item.name == one.name and not given]
        path = former[0] if former else f"{FOLDER}/operator/{Path(given).name}"
    sha256 = checksum.lower() or one.sha256
    sha256 = sha256 or {item.path: item.sha256 for item in earlier}.get(path, "")
    is_present = bool(sha256) and sha256 in digests(downloads.folder, [path]).values()
    if one.is_optional and not (is_present or given or sha256):
        return None
    if not (is_present or given or (one.url and (downloads.mirror or not one.has_login))):
        raise FetchError("is behind a login" if one.url else "has no address that is known here")
    if not sha256:
        raise FetchError("has no known checksum, and nothing is kept without one")
    source = address(given) if given else downloads.source(one.url)
    if lost := downloads.fetch({path: (source, sha256)}):
        raise FetchError(lost[path])
    return path, sha256
