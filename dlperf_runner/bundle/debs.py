"""The distribution's part of a mirror folder: packages with all that they, and those of vendors,
depend on, and a signed index of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from . import apt, repository
from . import manifest as manifests
from .apt import Choice
from .manifest import Item
from .needs import FURTHER, Needs
from .repository import Package
from .settings import Say, Settings
from .vendor import FOLDER
from .vendor_sources import Vendors


def bring(
    needs: Needs, settings: Settings, partial: Path, fetched: list[str], say: Say
) -> tuple[list[Package], list[Item]]:
    """Have the packages in the folder; those that belong into its index, and all that were brought
    (a vendor's has its vendor's index)."""
    wanted = _wanted(needs, settings.vendors)
    if not wanted:
        return [], []
    root = _root(needs, settings, say)
    names = tuple(dict.fromkeys(name for names in wanted.values() for name in names))
    where = f"stack {needs.stack}, apt_packages"
    if further := [*settings.vendors.packages, *needs.packages.get(FURTHER, ())]:
        where += " with " + ", ".join(further)
    choices = apt.resolve(root, (*settings.base, *names), where=where)
    stanzas = apt.stanzas(root, choices)
    packages = {choice: repository.parse(stanzas[choice.sha256]) for choice in choices}
    own: dict[Choice, str] = {}
    theirs: dict[Choice, str] = {}
    for choice, package in packages.items():
        path = settings.vendors.path(choice)
        if path is None:
            own[choice] = f"apt/{package.filename}"
        elif choice.sha256 not in settings.vendors.sha256:
            theirs[choice] = f"{FOLDER}/{path}"
            if settings.vendors.bring(path, choice.sha256, say):
                fetched.append(theirs[choice])
    fetched += _fetch(root, own, settings.output, partial, say)
    why = repository.reasons(
        packages.values(),
        {role: [name.partition("=")[0] for name in names] for role, names in wanted.items()},
    )
    items = [
        Item(
            path=path,
            kind="deb",
            name=packages[choice].name,
            version=packages[choice].version,
            sha256=choice.sha256,
            size=choice.size,
            wanted_by=why[packages[choice].name].wanted_by,
            why=why[packages[choice].name].why,
        )
        for choice, path in {**own, **theirs}.items()
    ]
    return [packages[choice] for choice in own], items


def _wanted(needs: Needs, vendors: Vendors) -> dict[str, tuple[str, ...]]:
    """As apt-get takes them, by role."""
    wanted = {role: names for role, names in needs.packages.items() if names}
    for role, names in vendors.packages.items():
        wanted[role] = wanted.get(role, ()) + names
    return wanted


def _root(needs: Needs, settings: Settings, say: Say) -> apt.Root:
    """A private apt that has read the package lists. One folder of lists per choice of sources, so
    that two mirrors do not spoil each other's."""
    vendors = settings.vendors
    sources = repr((settings.sources, needs.architecture, vendors.folder, vendors.repositories))
    key = hashlib.sha256(sources.encode()).hexdigest()[:12]
    root = apt.Root(settings.cache / "apt" / f"{needs.suite.name}-{key}", needs.architecture)
    say(f"reading the package lists of {needs.suite.name}")
    theirs = vendors.sources(root.directory / "etc/keyrings")
    apt.prepare(root, (*theirs, *settings.sources), vendors.preferences)
    apt.update(root)
    return root


def _fetch(
    root: apt.Root, paths: Mapping[Choice, str], output: Path, partial: Path, say: Say
) -> list[str]:
    """Have each choice at its path below `output`; those that were not there."""
    present = manifests.digests(output, paths.values())
    missing = [choice for choice, path in paths.items() if present.get(path) != choice.sha256]
    ready = manifests.digests(partial, (choice.filename for choice in missing))
    to_fetch = [choice for choice in missing if ready.get(choice.filename) != choice.sha256]
    if to_fetch:
        megabytes = sum(choice.size for choice in to_fetch) / 1e6
        say(f"fetching {len(to_fetch)} of {len(paths)} packages, {megabytes:.0f} MB")
        for choice in to_fetch:
            (partial / choice.filename).unlink(missing_ok=True)
        apt.download(root, to_fetch, partial)
    for choice in missing:
        manifests.move_verified(partial / choice.filename, output / paths[choice], choice.sha256)
    return [paths[choice] for choice in missing]


def index(needs: Needs, settings: Settings, packages: Iterable[Package]) -> tuple[list[Item], str]:
    """Write the signed index of `packages`; its files, and the key's fingerprint."""
    suite, folder = needs.suite.name, settings.output / "apt"
    files = repository.index_files(packages, suite, needs.architecture, datetime.now(UTC))
    signed = repository.sign(files[f"dists/{suite}/Release"], settings.cache / "mirror-key")
    repository.write_index(folder, files, signed, suite)
    paths = [*files, *(f"dists/{suite}/{name}" for name in ("Release.gpg", "InRelease"))]
    paths += ["dlperf-mirror.asc", "dlperf-mirror.gpg"]
    digests = manifests.digests(folder, paths)
    items = [
        Item(
            path=f"apt/{path}",
            kind="index" if path.startswith("dists/") else "key",
            name=Path(path).name,
            version="",
            sha256=digests[path],
            size=(folder / path).stat().st_size,
            wanted_by=("apt",),
            why="the signed index of the packages, and the key that it is verified with",
        )
        for path in paths
    ]
    return items, signed.fingerprint
