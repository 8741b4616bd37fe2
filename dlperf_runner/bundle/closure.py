"""Packages with everything they depend on: the reason for each, and the signed index of them."""

from __future__ import annotations

import gzip
import lzma
import subprocess
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from debian.deb822 import Deb822, PkgRelation

from ..core.errors import UserError
from ..core.files import write_whole
from . import apt
from .apt import AptPackage, Root
from .manifest import Item, digests
from .openpgp import sign


@dataclass(frozen=True)
class Package:
    """An entry of a Packages index. `depends`: for each dependency, the names that satisfy it."""

    name: str
    filename: str
    is_base: bool
    depends: tuple[tuple[str, ...], ...]
    provides: tuple[str, ...]
    stanza: str


@dataclass(frozen=True)
class Reason:
    """The roles that need a package, and one chain of dependencies that leads to it."""

    wanted_by: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Closure:
    """What apt chose, with the index entry of each package and the reason for it by its name."""

    packages: Mapping[AptPackage, Package]
    reasons: Mapping[str, Reason]

    def item(self, choice: AptPackage, path: str) -> Item:
        reason = self.reasons[choice.name]
        return choice.item(path, reason.wanted_by, reason.why)


def resolve(
    root: Root, base: Iterable[str], wanted: Mapping[str, Iterable[str]], *, where: str
) -> Closure:
    """The closure of `base` and of the packages that each role wants, as apt-get takes them."""
    names = dict.fromkeys(name for names in wanted.values() for name in names)
    choices = apt.resolve(root, (*base, *names), where=where)
    stanzas = apt.stanzas(root, choices)
    packages = {choice: parse(stanzas[choice.sha256]) for choice in choices}
    roots = {role: [name.partition("=")[0] for name in names] for role, names in wanted.items()}
    return Closure(packages, reasons(packages.values(), roots))


def parse(stanza: str) -> Package:
    """A package from its stanza in a `Packages` index, as `apt-cache show` prints it. Raises
    UserError if its file would lie outside the index's folder."""
    fields = Deb822(stanza)
    filename = fields["Filename"]
    if filename.startswith("/") or ".." in filename.split("/") or not filename.endswith(".deb"):
        raise UserError(f"the index puts {fields['Package']} outside its folder", found=filename)
    return Package(
        name=fields["Package"],
        filename=filename.removeprefix("./"),
        is_base=fields.get("Essential") == "yes" or fields.get("Priority") == "required",
        depends=(*_names(fields.get("Pre-Depends")), *_names(fields.get("Depends"))),
        provides=tuple(name for names in _names(fields.get("Provides")) for name in names),
        stanza=stanza,
    )


def _names(relations: str | None) -> list[tuple[str, ...]]:
    """`a (>= 1) | b:any, c [amd64]` as [("a", "b"), ("c",)]: apt judges versions."""
    groups = PkgRelation.parse_relations(relations.strip(", ")) if relations else []
    return [tuple(one["name"] for one in group) for group in groups]


def reasons(packages: Iterable[Package], wanted: Mapping[str, Iterable[str]]) -> dict[str, Reason]:
    """For each package by name: the roles that need it, and the shortest chain to it.

    `wanted`: the packages that each role names. The closure also has the packages that every node
    has, because an installation may need newer versions of them.
    """
    by_name = {package.name: package for package in packages}
    providers: dict[str, list[str]] = {name: [name] for name in by_name}
    for package in by_name.values():
        for virtual in package.provides:
            providers.setdefault(virtual, []).append(package.name)
    base = [package.name for package in by_name.values() if package.is_base]
    wanted_by: dict[str, list[str]] = {name: [] for name in by_name}
    chains: dict[str, str] = {}
    for role, names in {**wanted, "base system": base}.items():
        # Breadth first: each package that is reached, with the chain to it.
        ways: dict[str, tuple[str, ...]] = {
            name: (name,) for wish in names for name in providers.get(wish, [])
        }
        queue = deque(ways)
        while queue:
            current = queue.popleft()
            for one in (name for group in by_name[current].depends for name in group):
                for name in providers.get(one, []):
                    if name not in ways:
                        ways[name] = (*ways[current], name)
                        queue.append(name)
        for name, way in ways.items():
            wanted_by[name].append(role)
            chains.setdefault(name, " > ".join(way))
    return {
        name: Reason(tuple(wanted_by[name]) or ("base system",), chains.get(name, name))
        for name in by_name
    }


def write_index(
    packages: Iterable[Package], suite: str, architecture: str, folder: Path, key_folder: Path
) -> tuple[list[Item], str]:
    """Write the signed index of `packages` below `folder`; InRelease, which apt reads first, is the
    last. Return its files and the key's fingerprint."""
    dists, below = f"dists/{suite}", f"main/binary-{architecture}"
    text = "\n".join(sorted(package.stanza for package in packages)).encode()
    forms = {"": text, ".gz": gzip.compress(text, mtime=0), ".xz": lzma.compress(text)}
    files = {f"{dists}/{below}/Packages{suffix}": content for suffix, content in forms.items()}
    for path, content in files.items():
        write_whole(folder / path, content)
    fields = {"Origin": "dlperf", "Label": "dlperf mirror", "Suite": suite, "Codename": suite}
    fields |= {"Architectures": architecture, "Components": "main"}
    options = [f"APT::FTPArchive::Release::{name}={value}" for name, value in fields.items()]
    argv = ["apt-ftparchive", *(word for one in options for word in ("-o", one)), "release", dists]
    release = subprocess.run(argv, cwd=folder, capture_output=True, check=True).stdout
    signed = sign(release, key_folder)
    ends = {
        f"{dists}/Release": release,
        "dlperf-mirror.asc": signed.public_armoured,
        "dlperf-mirror.gpg": signed.public_binary,
        f"{dists}/Release.gpg": signed.detached,
        f"{dists}/InRelease": signed.inline,
    }
    for path, content in ends.items():
        write_whole(folder / path, content)
    items = [
        Item(
            path=f"apt/{path}",
            kind="index" if path.startswith("dists/") else "key",
            name=Path(path).name,
            version="",
            sha256=sha256,
            size=(folder / path).stat().st_size,
            wanted_by=("apt",),
            why="the signed index of the packages, or the key that verifies it",
        )
        for path, sha256 in digests(folder, {**files, **ends}).items()
    ]
    return items, signed.fingerprint
