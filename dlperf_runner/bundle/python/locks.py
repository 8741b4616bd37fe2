"""Locked requirements files, read for the nodes' interpreter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ...core.errors import UserError
from ...core.files import read_text
from .target import Target

Kind = Literal["wheel", "sdist"]
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})(?:\s|$)")


@dataclass(frozen=True)
class RequirementsFile:
    """A locked requirements file; `path` is relative to the repository's root. `sdists`: the
    releases in it that have no wheel, if most have one."""

    path: str
    wanted_by: str
    kind: Kind = "wheel"
    sdists: tuple[str, ...] = ()

    def kind_of(self, name: str) -> Kind:
        return "sdist" if name in self.sdists else self.kind


@dataclass(frozen=True)
class Pinned:
    """One release of one project, and the digests of the files that satisfy it."""

    name: str
    version: str
    sha256: frozenset[str]

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"

    def line(self) -> str:
        hashes = " ".join(f"--hash=sha256:{digest}" for digest in sorted(self.sha256))
        return f"{self.name}=={self.version} {hashes}"


def read(wanted: RequirementsFile, root: Path, target: Target) -> tuple[Pinned, ...]:
    try:
        text = read_text(root / wanted.path)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"the requirements of {wanted.wanted_by} cannot be read",
            where=wanted.path,
            found=str(error),
        ) from error
    return parse(text, wanted.path, target)


def parse(text: str, where: str, target: Target) -> tuple[Pinned, ...]:
    """The requirements that hold on the target, in file order.

    pip evaluates markers for the interpreter that runs it, which is the controller's; the files
    are for the nodes'. Anything but `name==version --hash=sha256:...` is refused, because it could
    not be verified.
    """
    pinned = []
    for number, logical in _logical_lines(text):
        at = f"{where}:{number}"
        if logical.startswith("-"):
            raise UserError(
                "options do not belong in a locked requirements file",
                where=at,
                expected="name==version --hash=sha256:...",
                found=logical,
            )
        specification = logical.split(" --hash=", 1)[0].strip()
        try:
            requirement = Requirement(specification)
        except InvalidRequirement as error:
            raise UserError(str(error), where=at, found=logical[:200]) from None
        versions = list(requirement.specifier)
        if len(versions) != 1 or versions[0].operator != "==" or "*" in versions[0].version:
            raise UserError(
                "a requirement must be pinned",
                where=at,
                expected=f"{requirement.name}==<version>",
                found=specification,
            )
        if requirement.marker and not requirement.marker.evaluate(dict(target.markers)):
            continue
        hashes = frozenset(_HASH.findall(logical))
        if not hashes:
            raise UserError(
                "a requirement must carry its sha256",
                where=at,
                expected=f"{specification} --hash=sha256:...",
                found=logical[:200],
            )
        pinned.append(Pinned(canonicalize_name(requirement.name), versions[0].version, hashes))
    return tuple(pinned)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number of the first line, text with continuations joined), without comments and blanks."""
    first, parts = 1, []
    for number, raw in enumerate([*text.splitlines(), ""], start=1):
        line = re.sub(r"(^|\s)#.*$", "", raw).strip()
        parts.append(line.removesuffix("\\").strip())
        if not line.endswith("\\"):
            if logical := " ".join(filter(None, parts)):
                yield first, logical
            first, parts = number + 1, []
