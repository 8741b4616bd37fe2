"""Packages with everything they depend on, and their files in the mirror folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import UserError
from ..folder.files import digests, move_verified
from ..folder.manifest import Item
from . import apt, index_entry
from .apt import AptPackage, Root
from .archives import Source
from .index_entry import Package, Reason


@dataclass(frozen=True)
class Closure:
    """What apt chose, with the index entry of each package and the reason for it by its name."""

    packages: Mapping[AptPackage, Package]
    reasons: Mapping[str, Reason]

    def item(self, choice: AptPackage, path: str) -> Item:
        reason = self.reasons[choice.name]
        return choice.item(path, reason.wanted_by, reason.why)


def read_lists(
    cache: Path, suite: str, architecture: str, sources: Sequence[Source], preferences: str = ""
) -> Root:
    """A private apt that has read the package lists. Every choice of sources has a directory of
    its own below `cache`, so that the lists of two mirrors do not mix."""
    key = hashlib.sha256(repr((sources, architecture)).encode()).hexdigest()[:12]
    root = Root(cache / "apt" / f"{suite}-{key}", architecture)
    apt.prepare(root, sources, preferences)
    apt.update(root)
    return root


def resolve(
    root: Root, base: Iterable[str], wanted: Mapping[str, Iterable[str]], *, where: str
) -> Closure:
    """The closure of `base` and of the packages that each role wants, as apt-get takes them."""
    names = dict.fromkeys(name for names in wanted.values() for name in names)
    choices = apt.resolve(root, (*base, *names), where=where)
    stanzas = apt.stanzas(root, choices)
    packages = {choice: index_entry.parse(stanzas[choice.sha256]) for choice in choices}
    roots = {role: [name.partition("=")[0] for name in names] for role, names in wanted.items()}
    return Closure(packages, index_entry.reasons(packages.values(), roots))


def fetch(
    root: Root,
    paths: Mapping[AptPackage, str],
    output: Path,
    partial: Path,
    say: Callable[[str], None],
) -> tuple[list[str], list[AptPackage], str]:
    """Have each package at its path below `output`. Return the paths that were not there, the
    packages that the archive did not give, and apt's message about them."""
    present = digests(output, paths.values())
    missing = [choice for choice, path in paths.items() if present.get(path) != choice.sha256]
    ready = digests(partial, (choice.filename for choice in missing))
    to_fetch = [choice for choice in missing if ready.get(choice.filename) != choice.sha256]
    lost: list[AptPackage] = []
    message = ""
    if to_fetch:
        megabytes = sum(choice.size for choice in to_fetch) / 1e6
        say(f"fetching {len(to_fetch)} of {len(paths)} packages, {megabytes:.0f} MB")
        for choice in to_fetch:
            (partial / choice.filename).unlink(missing_ok=True)
        try:
            apt.download(root, to_fetch, partial)
        except UserError as error:  # apt fetches all others
            message = error.found or error.problem
            lost = [choice for choice in to_fetch if not (partial / choice.filename).is_file()]
    fetched = [choice for choice in missing if choice not in lost]
    for choice in fetched:
        move_verified(partial / choice.filename, output / paths[choice], choice.sha256)
    return [paths[choice] for choice in fetched], lost, message
