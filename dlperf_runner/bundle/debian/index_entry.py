"""Entries of a Packages index, and why each package is needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from debian.deb822 import Deb822, PkgRelation

from ...core.errors import UserError


@dataclass(frozen=True)
class Package:
    """An entry of a Packages index."""

    name: str
    version: str
    filename: str
    size: int
    sha256: str
    base: bool
    depends: tuple[tuple[str, ...], ...]
    provides: tuple[str, ...]
    stanza: str


@dataclass(frozen=True)
class Reason:
    """The roles that need a package, and one chain of dependencies that leads to it."""

    wanted_by: tuple[str, ...]
    why: str


def parse(stanza: str) -> Package:
    """A package from its stanza in a `Packages` index, as `apt-cache show` prints it; `size` is in
    bytes. Raises UserError if its file would lie outside the index's folder."""
    fields = Deb822(stanza)
    filename = fields["Filename"]
    if filename.startswith("/") or ".." in filename.split("/") or not filename.endswith(".deb"):
        raise UserError(f"the index puts {fields['Package']} outside its folder", found=filename)
    return Package(
        name=fields["Package"],
        version=fields["Version"],
        filename=filename.removeprefix("./"),
        size=int(fields["Size"]),
        sha256=fields["SHA256"],
        base=fields.get("Essential") == "yes" or fields.get("Priority") == "required",
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
    roles: dict[str, list[str]] = {name: list(names) for name, names in wanted.items()}
    roles["base system"] = [package.name for package in by_name.values() if package.base]
    wanted_by: dict[str, list[str]] = {name: [] for name in by_name}
    chains: dict[str, str] = {}
    for role, roots in roles.items():
        ways = _ways([r for name in roots for r in providers.get(name, [])], by_name, providers)
        for name, way in ways.items():
            wanted_by[name].append(role)
            chains.setdefault(name, " > ".join(way))
    return {
        name: Reason(tuple(wanted_by[name]) or ("base system",), chains.get(name, name))
        for name in by_name
    }


def _ways(
    roots: Iterable[str], by_name: Mapping[str, Package], providers: Mapping[str, list[str]]
) -> dict[str, tuple[str, ...]]:
    """Breadth first from `roots`: each package that is reached, with the chain to it."""
    ways: dict[str, tuple[str, ...]] = {name: (name,) for name in roots}
    queue = deque(ways)
    while queue:
        current = queue.popleft()
        for alternatives in by_name[current].depends:
            for name in (p for a in alternatives for p in providers.get(a, [])):
                if name not in ways:
                    ways[name] = (*ways[current], name)
                    queue.append(name)
    return ways
