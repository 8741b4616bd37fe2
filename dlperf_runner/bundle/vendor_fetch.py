"""The vendors' part of a mirror folder: all that a stack's roles fetch from vendors, below vendor/
as it lies there. What cannot be had is named; the rest is fetched all the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..catalog.stack import Stack
from ..core.errors import UserError
from . import manifest as manifests
from . import vendor, vendor_repository
from .fetch import Fetcher, FetchError
from .manifest import Item, Manifest, Skipped
from .mirror import alone
from .vendor import FOLDER, VendorFile, VendorRepository

# Below vendor/, of what has no address at a vendor.
OWN = "operator"


@dataclass(frozen=True)
class Settings:
    """`mirror`: as dlperf_vendor_mirror. `checksums` and `files` (a path or an address) are by the
    roles' variables, `keys` by the repositories' names, as dlperf_vendor_keys."""

    output: Path
    mirror: str = ""
    checksums: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, list[str]] = field(default_factory=dict)
    refresh: bool = False


@dataclass(frozen=True)
class Missing:
    """What could not be had, and what the operator can do about it."""

    name: str
    wanted_by: str
    source: str
    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.name}, for {self.wanted_by}\n  from {self.source}\n  it {self.reason}"
        return f"{text}\n  {self.remedy}" if self.remedy else text


@dataclass(frozen=True)
class Outcome:
    """`repaired`: of the fetched, what an earlier run had; `variables`: what the inventory has to
    say beside the mirror."""

    manifest: Manifest
    fetched: tuple[str, ...]
    repaired: tuple[str, ...]
    missing: tuple[Missing, ...]
    variables: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {
            "manifest": self.manifest.to_json(),
            "fetched": list(self.fetched),
            "repaired": list(self.repaired),
            "variables": dict(self.variables),
            "missing": [asdict(one) for one in self.missing],
        }


def fetch(
    stack: Stack, suite: str, settings: Settings, say: Callable[[str], None] = lambda _: None
) -> Outcome:
    """Make or repair the vendors' part; with nothing to do, only read and compare what is there."""
    things = vendor.wanted(stack, suite, settings.keys)
    vendor.require_suite(stack, suite)
    _check(things, settings)
    folder, name = settings.output / FOLDER, f"{stack.name}-{suite}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with alone(settings.output):
            before = manifests.read(folder, name)
            run = _Run(stack, settings, Fetcher(folder, settings.mirror, say), before)
            run.all(things)
            run.missing += [
                Missing(
                    why.split(" is not for")[0], "the stack", f"suite {suite}", f"refuses: {why}"
                )
                for why in vendor.refusals(stack, suite)
            ]
            after = run.manifest(suite)
            if before is None or after.files != before.files or after.skipped != before.skipped:
                manifests.write(folder, after, name)
            else:
                after = before
            if not run.missing:
                run.fetcher.clean()
    except OSError as error:
        raise UserError(
            f"the mirror could not be written: {error.strerror or error}",
            where=str(error.filename or folder),
            hint="a second run goes on where this one stopped",
        ) from error
    had = {item.path for item in before.files} if before and not settings.refresh else set()
    fetched = tuple(run.fetcher.fetched)
    repaired = tuple(path for path in fetched if path in had)
    return Outcome(after, fetched, repaired, tuple(run.missing), run.variables)


def _check(things: Sequence[VendorRepository | VendorFile], settings: Settings) -> None:
    files = [thing for thing in things if isinstance(thing, VendorFile)]
    repositories = [thing.name for thing in things if isinstance(thing, VendorRepository)]
    for option, given, known in (
        ("--checksum", settings.checksums, [file.sha256_variable for file in files]),
        ("--file", settings.files, [file.source_variable for file in files]),
        ("--vendor-key", settings.keys, repositories),
    ):
        for name in given:
            if name not in known:
                raise UserError(
                    "the stack has no use for this",
                    where=option,
                    expected=" or ".join(dict.fromkeys(known)),
                    found=name,
                )
    for name, sha256 in settings.checksums.items():
        if not re.fullmatch("[0-9a-fA-F]{64}", sha256):
            raise UserError(
                "this is no sha256",
                where=f"--checksum {name}",
                expected="64 hexadecimal digits, as sha256sum prints them",
                found=sha256,
            )


@dataclass
class _Run:
    stack: Stack
    settings: Settings
    fetcher: Fetcher
    before: Manifest | None
    items: dict[str, Item] = field(default_factory=dict)
    missing: list[Missing] = field(default_factory=list)
    variables: dict[str, Any] = field(default_factory=dict)

    def all(self, things: Sequence[VendorRepository | VendorFile]) -> None:
        families = [thing for thing in things if isinstance(thing, VendorRepository)]
        pinned = vendor_repository.pins(families)
        places = {one.name: (one.uri, one.suite) for one in families}
        for name in places:
            self.repository([one for one in families if one.name == name], pinned)
        for thing in things:
            if isinstance(thing, VendorFile):
                self.file(thing)
        if self.settings.keys:
            self.variables["dlperf_vendor_keys"] = dict(self.settings.keys)

    def repository(
        self, families: Sequence[VendorRepository], pinned: Sequence[vendor_repository.Pin]
    ) -> None:
        one = families[0]
        everybody = tuple(dict.fromkeys(family.wanted_by for family in families))
        self.fetcher.say(f"reading {one.uri}")

        def lacks(what: str, reason: str, remedy: str = "") -> None:
            self.missing.append(
                Missing(what, ", ".join(everybody), one.item.source, reason, remedy)
            )

        why = f"repository {one.name}"
        try:
            index = vendor_repository.verified(one, self.fetcher, self._is_to_be_read_anew(why))
        except FetchError as error:
            lacks(f"repository {one.name}", str(error), self._reachable(""))
            return
        for path in index.paths:
            kind = "key" if path == index.paths[0] else "index"
            self._add(path, kind, Path(path).name, "", everybody, why)
        chosen, absent = vendor_repository.choose(index.packages, families, pinned)
        for said in absent:
            lacks(f"a package of {one.name}", f"does not have it: {said}", "Try --refresh.")
        for each in chosen:
            package, url = each.package, vendor_repository.address(one, each.package)
            path = self.fetcher.path(url)
            try:
                self.fetcher.bring(url, package.sha256)
            except FetchError as error:
                lacks(Path(path).name, str(error), "Run it again; --refresh reads a new index.")
                continue
            wanted_by, sha256 = (each.wanted_by,), package.sha256
            self._add(path, "deb", package.name, package.version, wanted_by, each.why, sha256)

    def _is_to_be_read_anew(self, why: str) -> bool:
        """Whether a file of a repository's index is not what it was: one form of it alone would
        not be missed, but by a node whose apt takes that."""
        files = self.before.files if self.before else ()
        return self.settings.refresh or any(
            not self.fetcher.has(item.path, item.sha256) for item in files if item.why == why
        )

    def file(self, one: VendorFile) -> None:
        given = self.settings.files.get(one.source_variable, "")
        source = one.url or f"{one.source_variable} of the operator"
        try:
            path = self.fetcher.path(one.url) if one.url else self._own_path(one, given)
            sha256 = self._checksum(one, path)
            there = sha256 and self.fetcher.has(path, sha256)
            if not (there or given or self._can_be_fetched(one)):
                raise FetchError(
                    "is behind a login" if one.url else "has no address that is known here"
                )
            if not sha256:
                raise FetchError("has no known checksum, and nothing is kept without one")
            self.fetcher.bring(one.url, sha256, path, given)
        except FetchError as error:
            self.missing.append(
                Missing(one.name, one.wanted_by, source, str(error), self._reachable(_ways(one)))
            )
            return
        why = f"{one.source_variable}: {source}"
        self._add(path, "file", one.name, "", (one.wanted_by,), why, sha256)
        if sha256 != one.sha256:
            self.variables[one.sha256_variable] = sha256
        if not one.url:
            # No mirror of vendors has it: the roles take it from the controller.
            self.variables[one.source_variable] = str((self.fetcher.folder / path).resolve())

    def _own_path(self, one: VendorFile, given: str) -> str:
        """Where a file lies that has no address; without `given` that of an earlier run."""
        known = (
            [item.path for item in self.before.files if item.name == one.name]
            if self.before
            else []
        )
        return f"{OWN}/{Path(given).name}" if given or not known else known[0]

    def _can_be_fetched(self, one: VendorFile) -> bool:
        return bool(one.url) and (bool(self.settings.mirror) or not one.has_login)

    def _checksum(self, one: VendorFile, path: str) -> str:
        """The operator's, the table's, the one that an earlier run was given; else empty."""
        earlier = {item.path: item.sha256 for item in self.before.files} if self.before else {}
        given = self.settings.checksums.get(one.sha256_variable, "").lower()
        return given or one.sha256 or earlier.get(path, "")

    def _reachable(self, text: str) -> str:
        return text if self.settings.mirror or text else "A site's own copy is --vendor-mirror."

    def _add(
        self,
        path: str,
        kind: str,
        name: str,
        version: str,
        wanted_by: tuple[str, ...],
        why: str,
        sha256: str = "",
    ) -> None:
        file = self.fetcher.folder / path
        before = self.items.get(path)
        self.items[path] = Item(
            path=path,
            kind=kind,
            name=name,
            version=version,
            sha256=sha256 or manifests.digest(file),
            size=file.stat().st_size,
            wanted_by=tuple(dict.fromkeys((*(before.wanted_by if before else ()), *wanted_by))),
            why=why,
        )

    def manifest(self, suite: str) -> Manifest:
        sources = tuple(
            dict.fromkeys(
                one.item.source for one in vendor.wanted(self.stack, suite, self.settings.keys)
            )
        )
        return Manifest(
            stack=self.stack.name,
            suite=suite,
            architecture="amd64",
            python="",
            inputs_sha256=_digest(sources),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            sources=sources,
            key_fingerprint="",
            skipped=tuple(Skipped(one.name, one.reason) for one in self.missing),
            files=tuple(self.items[path] for path in sorted(self.items)),
        )


def _ways(one: VendorFile) -> str:
    return f"Give --file {one.source_variable}=PATH, --checksum {one.sha256_variable}=SHA256."


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
