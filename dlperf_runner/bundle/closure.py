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
class Reason:
    """The roles that need a package, and one chain of dependencies that leads to it."""

    wanted_by: tuple[str, ...]
    why: str


def resolve(
    root: Root, base: Iterable[str], wanted: Mapping[str, Iterable[str]], *, where: str
) -> dict[AptPackage, tuple[Deb822, Reason]]:
    """The closure of `base` and of the packages that each role wants, as apt-get takes them: what
    apt chose, with the index entry of each and the reason for it."""
    names = dict.fromkeys(name for names in wanted.values() for name in names)
    choices = apt.resolve(root, (*base, *names), where=where)
    entries = apt.entries(root, choices)
    roots = {role: [name.partition("=")[0] for name in names] for role, names in wanted.items()}
    why = reasons(entries.values(), roots)
    return {choice: (entries[choice.sha256], why[choice.name]) for choice in choices}


def path_of(entry: Deb822) -> str:
    """The path of a package's file by the index. Raises UserError if that would lie outside
    the index's folder."""
    filename = entry["Filename"]
    if filename.startswith("/") or ".." in filename.split("/") or not filename.endswith(".deb"):
        raise UserError(f"the index puts {entry['Package']} outside its folder", found=filename)
    return f"apt/{filename.removeprefix('./')}"


def _names(entry: Deb822, *fields: str) -> list[str]:
    """`a (>= 1) | b:any, c [amd64]` as a, b, c: apt judges versions."""
    texts = filter(None, (entry.get(field, "").strip(", ") for field in fields))
    groups = (group for text in texts for group in PkgRelation.parse_relations(text))
    return [one["name"] for group in groups for one in group]


def reasons(entries: Iterable[Deb822], wanted: Mapping[str, Iterable[str]]) -> dict[str, Reason]:
    """For each package by name: the roles that need it, and the shortest chain to it.

    `wanted`: the packages that each role names. The closure also has the packages that every node
    has, because an installation may need newer versions of them.
    """
    by_name = {entry["Package"]: entry for entry in entries}
    providers: dict[str, list[str]] = {name: [name] for name in by_name}
    for name, entry in by_name.items():
        for virtual in _names(entry, "Provides"):
            providers.setdefault(virtual, []).append(name)
    is_base = {"Essential": "yes", "Priority": "required"}.items()
    base = [name for name, entry in by_name.items() if is_base & entry.items()]
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
            for one in _names(by_name[current], "Pre-Depends", "Depends"):
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
    entries: Iterable[Deb822], suite: str, architecture: str, folder: Path, key_folder: Path
) -> tuple[list[Item], str]:
    """Write the signed index of `entries` below `folder`; InRelease, which apt reads first, is the
    last. Return its files and the key's fingerprint."""
    dists, below = f"dists/{suite}", f"main/binary-{architecture}"
    text = "\n".join(sorted(entry.dump() for entry in entries)).encode()
    forms = {"": text, ".gz": gzip.compress(text, mtime=0), ".xz": lzma.compress(text)}
    files = {f"{dists}/{below}/Packages{suffix}": content for suffix, content in forms.items()}
    for path, content in files.items():
        write_whole(folder / path, content)
    fields = {"Origin": "dlperf", "Label": "dlperf mirror", "Suite": suite, "Codename": suite}
    fields |= {"Architectures": architecture, "Components": "main"}
    # By default, it would list an earlier Release, too.
    fields |= {"Default-Patterns": "false", "Patterns::": "Packages*"}
    options = [f"APT::FTPArchive::Release::{name}={value}" for name, value in fields.items()]
    argv = ["apt-ftparchive", *(word for one in options for word in ("-o", one)), "release", dists]
    result = subprocess.run(argv, cwd=folder, capture_output=True, check=False)
    if result.returncode:
        message = result.stderr.decode(errors="replace").strip()
        raise UserError("apt-ftparchive failed", where=str(folder / dists), found=message)
    release = result.stdout
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
