"""A mirror folder, made or repaired: what is right stays, the rest is fetched."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from debian.deb822 import Deb822

from ..core.errors import UserError
from ..core.lists import shortened
from . import apt, vendors, wheels
from . import manifest as manifests
from .apt import AptPackage, Root
from .archives import Source
from .manifest import Item, MirrorManifest, Missing, SkippedNeed
from .needs import FURTHER, OPTIONAL, Needs
from .release_tables import VendorFile
from .vendors import FOLDER, Downloads, FetchError, Vendors

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


def make(needs: Needs, settings: Settings, say: Say = lambda _: None) -> MirrorOutcome:
    """Make or repair the folder; if nothing is to do, only read and compare what is there. Raises
    UserError if it lacks what every inventory needs; with vendors, that is one of the missing."""
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            raise UserError(f"{program} is missing", hint=f"install the package {package}")
    _require_used(needs, settings)
    with manifests.writing(settings.output):
        return _MirrorRun(needs, settings, say).make()


def _require_used(needs: Needs, settings: Settings) -> None:
    """Refuse an option for what the stack does not use, and an invalid checksum."""
    used = {
        "--checksum": (settings.checksums, [one.sha256_variable for one in needs.files]),
        "--file": (settings.files, [one.source_variable for one in needs.files]),
        "--vendor-key": (settings.keys, [one.name for one in needs.repositories]),
    }
    for option, (given, names) in used.items():
        if unused := [name for name in given if name not in names]:
            expected, problem = " or ".join(dict.fromkeys(names)), "the stack does not use this"
            raise UserError(problem, where=option, expected=expected, found=unused[0])
    for name, sha256 in settings.checksums.items():
        if not re.fullmatch("[0-9a-fA-F]{64}", sha256):
            problem, expected = "invalid sha256", "64 hexadecimal digits, as sha256sum prints them"
            raise UserError(problem, where=f"--checksum {name}", expected=expected, found=sha256)


class _MirrorRun:
    def __init__(self, needs: Needs, settings: Settings, say: Say) -> None:
        self.needs, self.settings, self.say = needs, settings, say
        self.output = settings.output
        self.before = manifests.read(self.output)
        self.broken = manifests.damaged(self.output, self.before) if self.before else ()
        root = Root(settings.cache / "apt/files", needs.target.architecture)
        apt.prepare(root)
        self.downloads = Downloads(self.output, root, settings.mirror, say)
        self.fetched = self.downloads.fetched
        locks = needs.requirements
        self.locks = {lock: wheels.read(lock, needs.root, needs.target) for lock in locks}
        self.missing = list(needs.refused)
        self.variables: dict[str, Any] = {}

    def make(self) -> MirrorOutcome:
        output, before = self.output, self.before
        files = self.files()
        inputs, missing_files = self.inputs(), len(self.missing)
        try:
            if before and self.is_right(before, inputs):
                others = [item for item in before.files if item.kind != "file"]
                fingerprint = before.key_fingerprint
            else:
                others, fingerprint = self.others()
        except UserError as error:
            needs = self.needs
            if not needs.of_vendors:
                raise
            reason = f"fails: {error}"
            self.missing.append(Missing("apt/ and wheels/", needs.stack, needs.suite, reason))
            return self.outcome(self.manifest(files, "", ""))
        # A later run tries again to fetch what is missing; it always tries single files.
        inputs = "" if self.missing[missing_files:] else inputs
        after = self.manifest([*others, *files], inputs, fingerprint)
        if before and replace(after, created=before.created) == before:
            after = before
        else:
            manifests.write(output, after)
        removed = _strays(output, after)
        for path in removed:
            (output / path).unlink()
        for folder, _, _ in os.walk(output / "apt", topdown=False):
            if not any(Path(folder).iterdir()):
                Path(folder).rmdir()
        return self.outcome(after, removed)

    def inputs(self) -> str:
        """A digest of everything that decides what is in the folder, except single files and the
        archive's state."""
        needs, settings = self.needs, self.settings
        locks = [manifests.digest(needs.root / lock.path) for lock in self.locks]
        rest = replace(needs, root=Path(), files=(), refused=())
        document = repr((manifests.FORMAT, rest, locks, settings.sources, settings.base))
        return hashlib.sha256(document.encode()).hexdigest()

    def is_right(self, before: MirrorManifest, inputs: str) -> bool:
        """True if nothing but single files of vendors is to do."""
        single = {item.path for item in before.files if item.kind == "file"}
        broken = [path for path in self.broken if path not in single]
        for path in broken:
            self.say(f"{path} is missing or altered: fetching it again")
        is_same = before.inputs_sha256 == inputs and not self.settings.refresh
        return is_same and not broken and not _strays(self.output, before)

    def others(self) -> tuple[list[Item], str]:
        """Have everything but single files of vendors in the folder; the items, and the fingerprint
        of the key that signs."""
        needs, output = self.needs, self.output
        # Packages first: if they fail, that is known before the large wheels are fetched.
        indexed, debs = self.packages()
        house = wheels.bring(needs.target, self.locks, output, self.fetched, self.say)
        key = self.settings.cache / "mirror-key"
        architecture = needs.target.architecture
        with manifests.alone(self.settings.cache, self.say):
            index, fingerprint = apt.write_index(
                indexed, needs.suite, architecture, output / "apt", key
            )
        return [*index, *debs, *house], fingerprint

    def manifest(self, files: list[Item], inputs: str, fingerprint: str) -> MirrorManifest:
        needs = self.needs
        lacking = (SkippedNeed(one.name, one.reason) for one in self.missing)
        archives = [f"{one.uri} {' '.join(one.suites)}" for one in self.settings.sources]
        of_vendors = [one.item.source for one in needs.of_vendors]
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
            files=tuple(files),
        )

    def outcome(self, after: MirrorManifest, removed: tuple[str, ...] = ()) -> MirrorOutcome:
        fetched, missing = tuple(dict.fromkeys(self.fetched)), tuple(self.missing)
        repaired = tuple(path for path in fetched if path in self.broken)
        return MirrorOutcome(after, fetched, repaired, removed, missing, self.variables)

    # ---- single files of vendors

    def files(self) -> list[Item]:
        """Have the single files of vendors in the folder; note what the inventory must set."""
        if self.settings.keys:
            self.variables["dlperf_vendor_keys"] = dict(self.settings.keys)
        return [item for one in self.needs.files if (item := self.file(one))]

    def file(self, one: VendorFile) -> Item | None:
        source, settings = one.url or f"{one.source_variable} of the operator", self.settings
        given = settings.files.get(one.source_variable, "")
        checksum = settings.checksums.get(one.sha256_variable, "")
        earlier = self.before.files if self.before else ()
        try:
            file = vendors.bring_file(one, given, checksum, earlier, self.downloads)
        except FetchError as error:
            options = f"--file {one.source_variable}=PATH, --checksum {one.sha256_variable}=SHA256"
            lost = Missing(one.name, one.wanted_by, source, str(error), f"Give {options}.")
            self.missing.append(lost)
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
        needs = self.needs
        wanted = {role: [*names] for role, names in needs.packages.items() if names}
        if not wanted and not needs.repositories:
            return [], []
        with manifests.alone(self.settings.cache, self.say):
            debs, entries, items = self.chosen(wanted)
        by_path = {item.path: choice for choice, item in debs.items()}
        self.say(f"{len(debs)} packages, {sum(one.size for one in debs) / 1e6:.0f} MB")
        failed = self.downloads.fetch({p: (one.url, one.sha256) for p, one in by_path.items()})
        lost = {by_path[path]: reason for path, reason in failed.items()}
        self.note(lost, debs)
        items += [item for choice, item in debs.items() if choice not in lost]
        return [entry for choice, entry in entries.items() if choice not in lost], items

    def chosen(
        self, wanted: dict[str, list[str]]
    ) -> tuple[dict[AptPackage, Item], dict[AptPackage, Deb822], list[Item]]:
        """All packages that `wanted` and the vendors' parts need, those of them for the folder's
        own index, and the items of the vendors' repositories."""
        needs = self.needs
        self.say(f"reading the package lists of {needs.suite}")
        root, of_vendors, items = self.lists()
        installed, unpacked, absent = of_vendors.wanted(root)
        self.missing += absent
        further = [*installed, *needs.packages.get(FURTHER, ())]
        where = f"stack {needs.stack}, apt_packages" + " with" * bool(further)
        where = " ".join((where, ", ".join(further))).strip()
        for role, names in installed.items():
            wanted.setdefault(role, []).extend(names)
        chosen = apt.closure(root, self.settings.base, wanted, where=where) if wanted else {}
        debs = of_vendors.outside(root, unpacked, {choice.name for choice in chosen})
        entries = {}
        for choice, (entry, reason) in chosen.items():
            path = of_vendors.path(choice)
            debs[choice] = choice.item(path or apt.path_of(entry), reason.wanted_by, reason.why)
            if not path:
                entries[choice] = entry
        return debs, entries, items

    def lists(self) -> tuple[Root, Vendors, list[Item]]:
        """An apt that has read the package lists, the vendors' repositories among them, and the
        items of these repositories' keys and indexes."""
        needs, settings, architecture = self.needs, self.settings, self.needs.target.architecture
        families = {one.name: one for one in needs.repositories}
        sources: dict[str, Source] = {}
        reasons: dict[str, str] = {}
        for name, one in families.items():
            self.say(f"reading {one.uri}")
            try:
                keyrings = settings.cache / "apt/keyrings"
                sources[name] = vendors.source_of(one, self.downloads, keyrings)
            except FetchError as error:
                reasons[name] = str(error)
        # Every choice of sources has a directory, so that the lists of two mirrors do not mix.
        choice = repr((settings.sources, *sources.values(), architecture)).encode()
        folder = f"{needs.suite}-{hashlib.sha256(choice).hexdigest()[:12]}"
        root = Root(settings.cache / "apt" / folder, architecture)
        pins = vendors.preferences(needs.repositories)
        failed = apt.read_lists(root, settings.sources, list(sources.values()), pins)
        reasons |= {n: f"fails: {failed[one]}" for n, one in sources.items() if one in failed}
        items: list[Item] = []
        for name in [name for name in families if name not in reasons]:
            one, signed = families[name], apt.signed_files(root, sources[name])
            try:
                index = vendors.bring_index(one, signed, self.downloads, architecture)
            except FetchError as error:
                reasons[name] = str(error)
                continue
            kinds = {self.downloads.path(one.key): "key", **dict.fromkeys(index, "index")}
            wanters = self.wanters(name)
            items += apt.items_of(self.output, "", kinds, wanters, f"repository {name}")
        remedy = "If the site has a copy, name it with --vendor-mirror." * (not settings.mirror)
        for name, reason in reasons.items():
            what, by = f"repository {name}", ", ".join(self.wanters(name))
            self.missing.append(Missing(what, by, families[name].item.source, reason, remedy))
        usable = {one: sources[one.name] for one in needs.repositories if one.name not in reasons}
        return root, Vendors(self.downloads, usable), items

    def wanters(self, repository: str) -> tuple[str, ...]:
        names = [one.wanted_by for one in self.needs.repositories if one.name == repository]
        return tuple(dict.fromkeys(names))

    def note(self, lost: Mapping[AptPackage, str], debs: Mapping[AptPackage, Item]) -> None:
        """Note packages that could not be fetched. Raises UserError if a role that always runs
        needs one of the distribution's."""
        for choice, reason in lost.items():
            name, by = f"{choice.name} {choice.version}", ", ".join(debs[choice].wanted_by)
            source, _, _ = choice.url.rpartition("/")
            remedy = "Run it again later; --refresh reads a new index."
            if (path := Path(debs[choice].path)).is_relative_to(FOLDER):
                source = f"https://{path.parent.relative_to(FOLDER)}"
            self.missing.append(Missing(name, by, source, reason, remedy))
        indexed = (one for one in lost if not debs[one].path.startswith(FOLDER))
        needed = [one for one in indexed if not OPTIONAL.issuperset(debs[one].wanted_by)]
        if needed:
            names = shortened([f"{one.name} {one.version}" for one in needed])
            roles = ", ".join(dict.fromkeys(by for one in needed for by in debs[one].wanted_by))
            raise UserError(
                f"packages could not be fetched: {names}, for {roles}",
                found="; ".join(dict.fromkeys(lost[one] for one in needed)),
                hint="Choose another archive with --debian-mirror, or run it again later.",
            )


def _strays(output: Path, manifest: MirrorManifest) -> tuple[str, ...]:
    """Files below apt/ and wheels/ that the manifest does not name."""
    named = {item.path for item in manifest.files}
    files = [path for part in ("apt", "wheels") for path in (output / part).rglob("*")]
    files = [path for path in files if path.is_symlink() or not path.is_dir()]
    names = (path.relative_to(output).as_posix() for path in files)
    return tuple(sorted(name for name in names if name not in named))
