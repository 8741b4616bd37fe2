"""A mirror folder, made or repaired: what is right stays, the rest is fetched."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from debian.deb822 import Deb822

from ..core import paths
from ..core.errors import UserError
from ..core.lists import shortened
from . import apt, vendors, wheels
from . import manifest as manifests
from .apt import AptPackage, FetchError, Root
from .archives import Source
from .manifest import Item, MirrorManifest, Missing, SkippedNeed
from .needs import FURTHER, OPTIONAL, Needs
from .release_tables import VendorFile, VendorRepository
from .vendors import PARTIAL, Fetcher, Vendors

# Program -> the package that has it.
PROGRAMS = {
    "apt-get": "apt",
    apt.HELPER: "apt",
    "apt-ftparchive": "apt-utils",
    "gpgv": "gpgv",
    "gpg": "gpg",
    "gpg-agent": "gpg-agent",
}
Say = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """The place of a mirror folder, and the sources of its content. `cache` keeps the signing key
    and apt's lists, outside the folder that is served. `mirror`: as dlperf_vendor_mirror.
    `checksums` and `files` (a path or an address) by the roles' variables; `keys` by the
    repositories' names, as dlperf_vendor_keys."""

    output: Path
    cache: Path
    sources: tuple[Source, ...]
    refresh: bool = False
    base: tuple[str, ...] = apt.BASE
    mirror: str = ""
    checksums: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class MirrorOutcome:
    """The paths that were fetched, repaired (fetched because they were damaged) and removed, what
    could not be fetched, and what the inventory must set in addition to the mirror."""

    manifest: MirrorManifest
    fetched: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    missing: tuple[Missing, ...] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        return bool(self.fetched or self.removed)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"manifest": self.manifest.to_json()}


def default_output(stack: str, suite: str) -> Path:
    return paths.cache() / "mirror" / f"{stack}-{suite}"


def make(needs: Needs, settings: Settings, say: Say = lambda _: None) -> MirrorOutcome:
    """Make or repair the folder; if nothing is to do, only read and compare what is there. Raises
    UserError if it lacks what every inventory needs; with vendors, that is one of the missing."""
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            raise UserError(f"{program} is missing", hint=f"install the package {package}")
    _require_used(needs, settings)
    with manifests.writing(settings.output):
        return _MirrorRun(needs, settings, say).make()


class _MirrorRun:
    def __init__(self, needs: Needs, settings: Settings, say: Say) -> None:
        self.needs, self.settings, self.say = needs, settings, say
        self.output = settings.output
        self.before = manifests.read(self.output)
        self.broken = manifests.damaged(self.output, self.before) if self.before else ()
        root = Root(settings.cache / "apt/files", needs.target.architecture)
        self.fetcher = Fetcher(self.output, root, settings.mirror, say)
        self.fetched = self.fetcher.fetched
        self.missing = list(needs.refused)
        self.variables: dict[str, Any] = {}

    def make(self) -> MirrorOutcome:
        needs, output, before = self.needs, self.output, self.before
        requirements = {
            one: wheels.read(one, needs.root, needs.target) for one in needs.requirements
        }
        files = self.files()
        inputs, missing_files = _inputs(needs, self.settings), len(self.missing)
        try:
            if before and self.is_right(before, inputs):
                others = tuple(item for item in before.files if item.kind != "file")
                fingerprint = before.key_fingerprint
            else:
                others, fingerprint = self.others(requirements)
        except UserError as error:
            if not (needs.repositories or needs.files):
                raise
            failed = Missing("apt/ and wheels/", needs.stack, needs.suite, f"fails: {error}")
            self.missing.append(failed)
            return self.outcome(self.manifest(tuple(files), "", ""))
        # A later run tries again to fetch what is missing; it always tries single files.
        inputs = "" if self.missing[missing_files:] else inputs
        after = self.manifest((*others, *files), inputs, fingerprint)
        if before and replace(after, created=before.created) == before:
            after = before
        else:
            manifests.write(output, after)
        if not self.missing:
            shutil.rmtree(output / PARTIAL, ignore_errors=True)
        removed = _strays(output, after)
        for path in removed:
            (output / path).unlink()
        for folder, _, _ in os.walk(output / "apt", topdown=False):
            if not any(Path(folder).iterdir()):
                Path(folder).rmdir()
        return self.outcome(after, removed)

    def is_right(self, before: MirrorManifest, inputs: str) -> bool:
        """True if nothing but single files of vendors is to do."""
        single = {item.path for item in before.files if item.kind == "file"}
        broken = [path for path in self.broken if path not in single]
        for path in broken:
            self.say(f"{path} is missing or altered: fetching it again")
        is_same = before.inputs_sha256 == inputs and not self.settings.refresh
        return is_same and not broken and not _strays(self.output, before)

    def others(
        self, requirements: Mapping[wheels.RequirementsFile, Sequence[wheels.Pinned]]
    ) -> tuple[tuple[Item, ...], str]:
        """Have everything but single files of vendors in the folder; the items, and the fingerprint
        of the key that signs."""
        needs, output, partial = self.needs, self.output, self.output / PARTIAL
        partial.mkdir(exist_ok=True)
        # Packages first: if they fail, that is known before the large wheels are fetched.
        indexed, debs = self.packages()
        house = wheels.bring(needs.target, requirements, output, partial, self.fetched, self.say)
        architecture, key = needs.target.architecture, self.settings.cache / "mirror-key"
        index, fingerprint = apt.write_index(
            indexed, needs.suite, architecture, output / "apt", key
        )
        return (*index, *debs, *house), fingerprint

    def manifest(self, files: tuple[Item, ...], inputs: str, fingerprint: str) -> MirrorManifest:
        needs = self.needs
        lacking = (SkippedNeed(one.name, one.reason) for one in self.missing)
        archives = [f"{one.uri} {' '.join(one.suites)}" for one in self.settings.sources]
        of_vendors = [one.item.source for one in needs.repositories]
        of_vendors += [one.item.source for one in needs.files]
        return MirrorManifest(
            stack=needs.stack,
            suite=needs.suite,
            architecture=needs.target.architecture,
            python=needs.target.python,
            inputs_sha256=inputs,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            sources=tuple(dict.fromkeys([*archives, *of_vendors])),
            key_fingerprint=fingerprint,
            skipped=(*needs.skipped, *lacking),
            files=files,
        )

    def outcome(self, after: MirrorManifest, removed: tuple[str, ...] = ()) -> MirrorOutcome:
        fetched, missing = tuple(dict.fromkeys(self.fetched)), tuple(self.missing)
        repaired = tuple(path for path in fetched if path in self.broken)
        return MirrorOutcome(after, fetched, repaired, removed, missing, self.variables)

    # ---- single files of vendors

    def files(self) -> list[Item]:
        """Have the single files of vendors in the folder; note what the inventory must set."""
        settings = self.settings
        if settings.keys:
            self.variables["dlperf_vendor_keys"] = dict(settings.keys)
        if self.needs.files:
            apt.prepare(self.fetcher.root)
        return [item for one in self.needs.files if (item := self.file(one))]

    def file(self, one: VendorFile) -> Item | None:
        source, settings = one.url or f"{one.source_variable} of the operator", self.settings
        given = settings.files.get(one.source_variable, "")
        checksum = settings.checksums.get(one.sha256_variable, "")
        earlier = self.before.files if self.before else ()
        try:
            file = vendors.bring_file(one, given, checksum, earlier, self.fetcher)
        except FetchError as error:
            remedy = (
                f"Give --file {one.source_variable}=PATH, --checksum {one.sha256_variable}=SHA256."
            )
            self.missing.append(Missing(one.name, one.wanted_by, source, str(error), remedy))
            return None
        if file is None:
            return None
        path, sha256 = file
        if sha256 != one.sha256:
            self.variables[one.sha256_variable] = sha256
        if not one.url:
            # No mirror of vendors has it: the roles copy it from the controller.
            self.variables[one.source_variable] = str((self.output / path).resolve())
        why, size = f"{one.source_variable}: {source}", (self.output / path).stat().st_size
        return Item(path, "file", one.name, "", sha256, size, (one.wanted_by,), why)

    # ---- packages

    def packages(self) -> tuple[list[Deb822], list[Item]]:
        """Have all packages in the folder. Return those for the folder's own index (a vendor's
        package is in the vendor's index), and the items of all."""
        needs, settings = self.needs, self.settings
        wanted = {role: names for role, names in needs.packages.items() if names}
        if not wanted and not needs.repositories:
            return [], []
        self.say(f"reading the package lists of {needs.suite}")
        root, of_vendors, items = self.lists()
        installed, unpacked, absent = of_vendors.wanted(root)
        self.missing += absent
        where = f"stack {needs.stack}, apt_packages"
        if further := [*installed, *needs.packages.get(FURTHER, ())]:
            where += " with " + ", ".join(further)
        for role, names in installed.items():
            wanted[role] = (*wanted.get(role, ()), *names)
        theirs = of_vendors.unpacked(root, unpacked)
        chosen = apt.closure(root, settings.base, wanted, where=where) if wanted else {}
        if wanted:
            theirs |= of_vendors.members(root, {choice.name for choice in chosen})
        indexed: dict[AptPackage, Item] = {}
        for choice, (entry, reason) in chosen.items():
            inside = apt.path_of(entry)
            path = of_vendors.path(choice)
            items_of = theirs if path else indexed
            items_of[choice] = choice.item(path or inside, reason.wanted_by, reason.why)
        lost = self.fetch(root, indexed | theirs)
        self.leave_out(indexed, lost)
        for choice in theirs.keys() & lost.keys():
            file, by = Path(theirs[choice].path), ", ".join(theirs[choice].wanted_by)
            source = f"https://{file.parent.relative_to(vendors.FOLDER)}"
            problem, remedy = lost[choice], "Run it again; --refresh reads a new index."
            self.missing.append(
                Missing(file.name, by, source, f"could not be fetched: {problem}", remedy)
            )
        items += [item for choice, item in (indexed | theirs).items() if choice not in lost]
        return [chosen[choice][0] for choice in indexed if choice not in lost], items

    def lists(self) -> tuple[Root, Vendors, list[Item]]:
        """An apt that has read the package lists, the vendors' repositories among them, and the
        items of these repositories' keys and indexes."""
        needs, settings, architecture = self.needs, self.settings, self.needs.target.architecture
        families = {one.name: one for one in needs.repositories}
        sources: dict[str, Source] = {}
        reasons: dict[str, str] = {}
        if families:
            apt.prepare(self.fetcher.root)
        for name, one in families.items():
            self.say(f"reading {one.uri}")
            try:
                keyrings = settings.cache / "apt/keyrings"
                sources[name] = vendors.source_of(one, self.fetcher, keyrings)
            except FetchError as error:
                reasons[name] = str(error)
        # Every choice of sources has a directory, so that the lists of two mirrors do not mix.
        choice = repr((settings.sources, *sources.values(), architecture)).encode()
        folder = f"{needs.suite}-{hashlib.sha256(choice).hexdigest()[:12]}"
        root = Root(settings.cache / "apt" / folder, architecture)
        pins = vendors.preferences(needs.repositories)
        failed = apt.read_lists(root, settings.sources, list(sources.values()), pins)
        items: list[Item] = []
        for name, one in families.items():
            try:
                if name in reasons or sources[name] in failed:
                    raise FetchError(reasons.get(name) or f"fails: {failed[sources[name]]}")
                items += self.index(one, apt.signed_files(root, sources[name]))
            except FetchError as error:
                sources.pop(name, None)
                remedy = "If the site has a copy, name it with --vendor-mirror."
                remedy = "" if settings.mirror else remedy
                by, source = ", ".join(self.wanters(name)), one.item.source
                self.missing.append(Missing(f"repository {name}", by, source, str(error), remedy))
        usable = {one: sources[one.name] for one in needs.repositories if one.name in sources}
        return root, Vendors(self.fetcher, usable), items

    def index(self, one: VendorRepository, signed: Mapping[str, Path]) -> list[Item]:
        """Have a repository's signed index in the folder; the items of that and of its key."""
        index = vendors.bring_index(one, signed, self.fetcher, self.needs.target.architecture)
        kinds = {self.fetcher.path(one.key): "key", **dict.fromkeys(index, "index")}
        by, why, output = self.wanters(one.name), f"repository {one.name}", self.output
        sizes = {path: (output / path).stat().st_size for path in kinds}
        digests = manifests.digests(output, kinds)
        return [
            Item(path, kind, Path(path).name, "", digests[path], sizes[path], by, why)
            for path, kind in kinds.items()
        ]

    def wanters(self, repository: str) -> tuple[str, ...]:
        names = [one.wanted_by for one in self.needs.repositories if one.name == repository]
        return tuple(dict.fromkeys(names))

    def fetch(self, root: Root, items: Mapping[AptPackage, Item]) -> dict[AptPackage, str]:
        """Have each package at its place. Return those that could not be fetched, with apt's
        reason."""
        output, partial = self.output, self.output / PARTIAL
        present = manifests.digests(output, (item.path for item in items.values()))
        absent = [one for one, item in items.items() if present.get(item.path) != one.sha256]
        ready = manifests.digests(partial, (one.filename for one in absent))
        wanted = [one for one in absent if ready.get(one.filename) != one.sha256]
        lost: dict[AptPackage, str] = {}
        if wanted:
            megabytes = sum(one.size for one in wanted) / 1e6
            self.say(f"fetching {len(wanted)} of {len(items)} packages, {megabytes:.0f} MB")
            lost = apt.download(root, wanted, partial)
        for one in absent:
            if one not in lost:
                path = items[one].path
                manifests.move_verified(partial / one.filename, output / path, one.sha256)
                self.fetched.append(path)
        return lost

    def leave_out(self, indexed: Mapping[AptPackage, Item], lost: Mapping[AptPackage, str]) -> None:
        """Note packages that the archive lacks. Raises UserError for those of roles that always
        run."""
        items = {one: item for one, item in indexed.items() if one in lost}
        needed = {
            one: item for one, item in items.items() if not OPTIONAL.issuperset(item.wanted_by)
        }
        named = needed or items
        names = shortened([f"{one.name} {one.version}" for one in named])
        roles = ", ".join(dict.fromkeys(role for item in named.values() for role in item.wanted_by))
        message = "; ".join(dict.fromkeys(lost[one] for one in named))
        remedy = "Choose another archive with --debian-mirror, or run it again later."
        if needed:
            what = f"packages could not be fetched: {names}, for {roles}"
            raise UserError(what, found=message, hint=remedy)
        if items:
            source = ", ".join(source.uri for source in self.settings.sources)
            reason = f"could not be fetched: {message}"
            self.missing.append(Missing(names, roles, source, reason, remedy))


def _require_used(needs: Needs, settings: Settings) -> None:
    """Refuse an option for what the stack does not use, and an invalid checksum."""
    for option, given, names in (
        ("--checksum", settings.checksums, [one.sha256_variable for one in needs.files]),
        ("--file", settings.files, [one.source_variable for one in needs.files]),
        ("--vendor-key", settings.keys, [one.name for one in needs.repositories]),
    ):
        for name in given:
            if name not in names:
                raise UserError(
                    "the stack does not use this",
                    where=option,
                    expected=" or ".join(dict.fromkeys(names)),
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


def _inputs(needs: Needs, settings: Settings) -> str:
    """A digest of everything that decides what is in the folder, except the archive's state."""
    document = {
        "format": manifests.FORMAT,
        "stack": needs.stack,
        "suite": needs.suite,
        "target": repr(needs.target),
        "packages": {role: list(names) for role, names in needs.packages.items()},
        "base": list(settings.base),
        "requirements": [
            [repr(wanted), manifests.digest(needs.root / wanted.path)]
            for wanted in needs.requirements
        ],
        "skipped": [repr(entry) for entry in needs.skipped],
        "sources": [source.stanza() for source in settings.sources],
        "vendors": [repr(one) for one in needs.repositories],
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _strays(output: Path, manifest: MirrorManifest) -> tuple[str, ...]:
    """Files below apt/ and wheels/ that the manifest does not name."""
    named = {item.path for item in manifest.files}
    files = (
        path.relative_to(output).as_posix()
        for part in ("apt", "wheels")
        for path in (output / part).rglob("*")
        if path.is_symlink() or not path.is_dir()
    )
    return tuple(sorted(path for path in files if path not in named))
