"""The vendors' packages, which apt resolves from the indexes in the mirror folder: sources, pins,
downloads.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from ...catalog.stack import Stack
from ...core.files import read_bytes, write_whole
from ..debian import apt
from ..debian.apt import AptPackage, Root
from ..debian.archives import Source
from ..debian.openpgp import keyring
from ..folder.manifest import Item, MirrorManifest, Missing
from .download import Fetcher, quoted
from .release_tables import FOLDER, VendorRepository, wanted


@dataclass(frozen=True)
class Vendors:
    """What the roles of a stack take from the vendors' repositories in `folder`. `mirror`: where
    their packages come from; `indexes`: digests of the indexes."""

    folder: Path = Path()
    mirror: str = ""
    families: tuple[VendorRepository, ...] = ()
    preferences: str = ""
    indexes: tuple[str, ...] = ()

    def sources(self, keyrings: Path) -> tuple[Source, ...]:
        """The repositories as apt reads them; their keys go into `keyrings`."""
        repositories = {one.name: one for one in sorted(self.families, key=lambda one: one.name)}
        return tuple(self._source(one, keyrings) for one in repositories.values())

    def _source(self, one: VendorRepository, keyrings: Path) -> Source:
        ring = keyrings / f"{one.name}-{one.fingerprints[0]}.gpg"
        write_whole(ring, keyring(read_bytes(self.folder / self._fetcher.path(one.key)))[0])
        return Source(self._uri(one), (one.suite,), one.components, str(ring))

    def _uri(self, one: VendorRepository) -> str:
        return f"file:{quoted(str(self.folder / self._fetcher.path(one.uri)))}/"

    @property
    def _fetcher(self) -> Fetcher:
        return Fetcher(self.folder, self.mirror)

    def packages(
        self, root: Root
    ) -> tuple[dict[str, tuple[str, ...]], dict[str, str], list[Missing]]:
        """By role, the packages that the indexes have, as apt-get takes them; the role of each that
        is only unpacked; and those that the indexes lack."""
        families = [(one, (*one.packages, *one.unpacked)) for one in self.families]
        names = dict.fromkeys(name for _, exact in families for name, _ in exact)
        rows = apt.versions(root, names)
        found: dict[str, tuple[str, ...]] = {}
        unpacked: dict[str, str] = {}
        missing = []
        for one, exact in families:
            uri = self._uri(one).rstrip("/")
            for name, version in exact:
                there = [v for n, v, source in rows if n == name and source.startswith(uri)]
                package, role = f"{name}={version}", one.wanted_by
                if version not in there:
                    reason = (
                        f"does not have it: {package} is not in it; it has"
                        f" {', '.join(there[:3]) or 'none'}"
                    )
                    what = f"a package of {one.name}"
                    missing.append(Missing(what, role, one.item.source, reason, "Try --refresh."))
                elif (name, version) in one.unpacked:
                    unpacked[package] = role
                else:
                    found[role] = (*found.get(role, ()), package)
        return found, unpacked, missing

    def unpacked(self, root: Root, roles: Mapping[str, str]) -> dict[AptPackage, Item]:
        """Packages that nodes unpack beside installed ones; `roles` as `packages` gives them."""
        items = {}
        for choice in apt.candidates(root, roles):
            role = roles[f"{choice.name}={choice.version}"]
            if path := self.path(choice):
                why = f"{choice.name}, which {role} unpacks"
                items[choice] = choice.item(path, (role,), why)
        return items

    def members(self, root: Root, closure: Container[str]) -> dict[AptPackage, Item]:
        """Packages outside the closure that a pin moves with its family: a node may have them."""
        exact = {name for one in self.families for name, _ in one.packages}
        pins = [(one, names, version) for one in self.families for names, version in one.pins]
        found = {}
        for name in apt.names(root):
            if name not in exact and name not in closure:
                for one, globs, version in pins:
                    if any(fnmatchcase(name, glob) for glob in globs):
                        found[name] = (one.wanted_by, version)
                        break
        items = {}
        for choice in apt.candidates(root, found):
            role, version = found[choice.name]
            path = self.path(choice)
            if path is not None and fnmatchcase(choice.version, version):
                why = f"{choice.name}, which {role} keeps at {version}"
                items[choice] = choice.item(path, (role,), why)
        return items

    def path(self, choice: AptPackage) -> str | None:
        """Where a vendor's package lies in the mirror folder; None for one of the distribution."""
        url, start = unquote(choice.url), f"file:{self.folder}/"
        if not url.startswith(start):
            return None
        # Flat repositories have their packages at ./
        return f"{FOLDER}/{PurePosixPath(url.removeprefix(start)).as_posix()}"

    def bring(self, item: Item, say: Callable[[str], None]) -> bool:
        """Have a package in the folder; return whether it had to be fetched. Raises FetchError."""
        fetcher, path = replace(self._fetcher, say=say), item.path.removeprefix(f"{FOLDER}/")
        base, uri = next(
            (base, one.uri)
            for one in self.families
            if path.startswith(base := fetcher.path(one.uri))
        )
        fetcher.bring(uri + quoted(path.removeprefix(base)), item.sha256)
        return bool(fetcher.fetched)


def of_stack(
    stack: Stack,
    suite: str,
    output: Path,
    made: MirrorManifest,
    mirror: str,
    keys: Mapping[str, list[str]],
) -> Vendors:
    """Of the repositories that `made` has. `keys`: as dlperf_vendor_keys."""
    families = [one for one in wanted(stack, suite, keys) if isinstance(one, VendorRepository)]
    indexes = [item for item in made.files if item.kind == "index"]
    return Vendors(
        (output / FOLDER).resolve(),
        mirror,
        tuple(
            one for one in families if f"repository {one.name}" in {item.why for item in indexes}
        ),
        preferences(families),
        tuple(item.sha256 for item in indexes),
    )


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
