"""What a stack takes from vendors before apt can resolve packages: keys, signed indexes and single
files, below vendor/. What cannot be fetched is reported; the rest is fetched all the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...catalog.stack import Stack
from ...core.errors import UserError
from ..folder import manifest as manifests
from ..folder.files import digest, writing
from ..folder.manifest import Item, MirrorManifest, Missing, SkippedNeed
from . import repository
from .download import Fetcher, FetchError
from .release_tables import FOLDER, VendorFile, VendorRepository, refusals, require_suite, wanted

# Below vendor/, for files that have no address at a vendor.
OWN = "operator"


@dataclass(frozen=True)
class VendorSettings:
    """`mirror`: as dlperf_vendor_mirror. `checksums` and `files` (a path or an address) by the
    roles' variables; `keys` by the repositories' names, as dlperf_vendor_keys."""

    output: Path
    mirror: str = ""
    checksums: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, list[str]] = field(default_factory=dict)
    refresh: bool = False


@dataclass(frozen=True)
class VendorOutcome:
    """`repaired`: the part of `fetched` that an earlier run had; `variables`: what the inventory
    must set in addition to the mirror."""

    manifest: MirrorManifest
    fetched: tuple[str, ...]
    repaired: tuple[str, ...]
    variables: Mapping[str, Any]
    missing: tuple[Missing, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"manifest": self.manifest.to_json()}


def fetch(
    stack: Stack, suite: str, settings: VendorSettings, say: Callable[[str], None] = lambda _: None
) -> VendorOutcome:
    """Fetch or repair them; if nothing is to do, only read and compare what is there."""
    things = wanted(stack, suite, settings.keys)
    require_suite(stack, suite)
    _check(things, settings)
    folder, name = settings.output / FOLDER, f"{stack.name}-{suite}.json"
    with writing(settings.output):
        folder.mkdir(exist_ok=True)
        before = manifests.read(folder, name)
        run = _VendorRun(stack, settings, Fetcher(folder, settings.mirror, say), before)
        run.all(things)
        run.missing += [
            Missing(why.split(" is not ")[0], "the stack", f"suite {suite}", f"is refused: {why}")
            for why in refusals(stack, suite)
        ]
        after = run.manifest(suite, things)
        if before is None or after.files != before.files or after.skipped != before.skipped:
            manifests.write(folder, after, name)
        else:
            after = before
    had = {item.path for item in before.files} if before and not settings.refresh else set()
    fetched = tuple(run.fetcher.fetched)
    repaired = tuple(path for path in fetched if path in had)
    return VendorOutcome(after, fetched, repaired, run.variables, tuple(run.missing))


def _check(things: Sequence[VendorRepository | VendorFile], settings: VendorSettings) -> None:
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
                    "the stack does not use this",
                    where=option,
                    expected=" or ".join(dict.fromkeys(known)),
                    found=name,
                )
    for name, sha256 in settings.checksums.items():
        if not re.fullmatch("[0-9a-fA-F]{64}", sha256):
            raise UserError(
                "invalid sha256",
                where=f"--checksum {name}",
                expected="64 hexadecimal digits, as sha256sum prints them",
                found=sha256,
            )


@dataclass
class _VendorRun:
    stack: Stack
    settings: VendorSettings
    fetcher: Fetcher
    before: MirrorManifest | None
    items: dict[str, Item] = field(default_factory=dict)
    missing: list[Missing] = field(default_factory=list)
    variables: dict[str, Any] = field(default_factory=dict)

    @property
    def _earlier(self) -> tuple[Item, ...]:
        return self.before.files if self.before else ()

    def all(self, things: Sequence[VendorRepository | VendorFile]) -> None:
        families = [thing for thing in things if isinstance(thing, VendorRepository)]
        for name in dict.fromkeys(one.name for one in families):
            self.repository([one for one in families if one.name == name])
        for thing in things:
            if isinstance(thing, VendorFile):
                self.file(thing)
        if self.settings.keys:
            self.variables["dlperf_vendor_keys"] = dict(self.settings.keys)

    def repository(self, families: Sequence[VendorRepository]) -> None:
        """`families`: what several roles take from one repository."""
        one, why = families[0], f"repository {families[0].name}"
        everybody = tuple(dict.fromkeys(family.wanted_by for family in families))
        self.fetcher.say(f"reading {one.uri}")
        try:
            paths = repository.bring(one, self.fetcher, self._is_outdated(why))
        except FetchError as error:
            source, remedy = one.item.source, self._reachable("")
            self.missing.append(Missing(why, ", ".join(everybody), source, str(error), remedy))
            return
        for path in paths:
            self._add(path, "key" if path == paths[0] else "index", Path(path).name, everybody, why)

    def _is_outdated(self, why: str) -> bool:
        """Whether a repository's index must be fetched again. One damaged form of it is enough:
        some node's apt may ask for that form."""
        own = [item for item in self._earlier if item.why == why]
        return self.settings.refresh or not all(
            self.fetcher.has(item.path, item.sha256) for item in own
        )

    def file(self, one: VendorFile) -> None:
        given = self.settings.files.get(one.source_variable, "")
        source = one.url or f"{one.source_variable} of the operator"
        try:
            path = self.fetcher.path(one.url) if one.url else self._own_path(one, given)
            sha256 = self._checksum(one, path)
            there = sha256 and self.fetcher.has(path, sha256)
            if one.is_optional and not (there or given or sha256):
                return
            can_be_fetched = one.url and (self.settings.mirror or not one.has_login)
            if not (there or given or can_be_fetched):
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
        self._add(path, "file", one.name, (one.wanted_by,), why, sha256)
        if sha256 != one.sha256:
            self.variables[one.sha256_variable] = sha256
        if not one.url:
            # No mirror of vendors has it: the roles copy it from the controller.
            self.variables[one.source_variable] = str((self.fetcher.folder / path).resolve())

    def _own_path(self, one: VendorFile, given: str) -> str:
        """Where a file without an address lies; without `given`, where an earlier run put it."""
        known = [item.path for item in self._earlier if item.name == one.name]
        return f"{OWN}/{Path(given).name}" if given or not known else known[0]

    def _checksum(self, one: VendorFile, path: str) -> str:
        """The operator's, the table's, or that of an earlier run; else empty."""
        earlier = {item.path: item.sha256 for item in self._earlier}
        given = self.settings.checksums.get(one.sha256_variable, "").lower()
        return given or one.sha256 or earlier.get(path, "")

    def _reachable(self, text: str) -> str:
        has_other = self.settings.mirror or text
        return text if has_other else "If the site has a copy, name it with --vendor-mirror."

    def _add(
        self,
        path: str,
        kind: str,
        name: str,
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
            version="",
            sha256=sha256 or digest(file),
            size=file.stat().st_size,
            wanted_by=tuple(dict.fromkeys((*(before.wanted_by if before else ()), *wanted_by))),
            why=why,
        )

    def manifest(
        self, suite: str, things: Sequence[VendorRepository | VendorFile]
    ) -> MirrorManifest:
        sources = tuple(dict.fromkeys(one.item.source for one in things))
        return MirrorManifest(
            stack=self.stack.name,
            suite=suite,
            architecture="amd64",
            python="",
            inputs_sha256=hashlib.sha256("\n".join(sources).encode()).hexdigest(),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            sources=sources,
            key_fingerprint="",
            skipped=tuple(SkippedNeed(one.name, one.reason) for one in self.missing),
            files=tuple(self.items[path] for path in sorted(self.items)),
        )


def _ways(one: VendorFile) -> str:
    return f"Give --file {one.source_variable}=PATH, --checksum {one.sha256_variable}=SHA256."
