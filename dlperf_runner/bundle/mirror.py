"""A mirror folder, made or repaired: what is right stays, the rest is fetched."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from ..catalog.reader import Catalog
from ..catalog.stack import Stack
from ..catalog.suites import SUITES
from ..core import paths
from ..core.errors import UserError
from ..core.lists import shortened
from .debian import apt, archives, closure, signed_index
from .debian.apt import AptPackage
from .debian.archives import Source
from .debian.index_entry import Package
from .folder import manifest as manifests
from .folder.files import digest, writing
from .folder.manifest import Item, MirrorManifest, Missing, SkippedNeed
from .needs import FURTHER, OPTIONAL, Needs, of_stack
from .python import locks, wheels
from .python.locks import Pinned, RequirementsFile
from .vendor import indexes_and_files, packages
from .vendor.download import PARTIAL, FetchError
from .vendor.packages import Vendors
from .vendor.release_tables import FOLDER

# Program -> the package that has it.
PROGRAMS = {"apt-get": "apt", "gpgv": "gpgv", "gpg": "gpg", "gpg-agent": "gpg-agent"}
Say = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """Where a mirror folder goes, and where its packages come from. `cache` keeps the signing key
    and apt's lists, outside the folder that is served."""

    output: Path
    cache: Path
    sources: tuple[Source, ...]
    refresh: bool = False
    base: tuple[str, ...] = apt.BASE
    vendors: Vendors = field(default_factory=Vendors)


@dataclass(frozen=True)
class MirrorOutcome:
    """The paths that were fetched, repaired (fetched because they were damaged) and removed, and
    what could not be fetched."""

    manifest: MirrorManifest
    fetched: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    missing: tuple[Missing, ...] = ()

    @property
    def changed(self) -> bool:
        return bool(self.fetched or self.removed)


@dataclass(frozen=True)
class WithVendors:
    """`ordinary` is None if it failed; `missing` says why."""

    vendors: indexes_and_files.VendorOutcome
    ordinary: MirrorOutcome | None
    missing: tuple[Missing, ...]


def choose(
    catalog: Catalog,
    stack: str,
    suite: str,
    output: Path | None = None,
    debian_mirror: str | None = None,
    debian_security_mirror: str | None = None,
    refresh: bool = False,
    frameworks: tuple[str, ...] = (),
    python: str = "",
    further: tuple[str, ...] = (),
) -> tuple[Needs, Settings]:
    """What the command line asks for: the needs, and where the folder and its packages are.

    Without `frameworks`: those of the catalogue that have an environment for the stack. Without
    `debian_mirror`: the archive that this machine uses, if it runs the same distribution, else the
    official one.
    """
    needs = of_stack(catalog, stack, suite, paths.shipped(), frameworks, python, further)
    has_gpus = catalog.stack(stack).accelerator == "gpu"
    distribution = archives.DISTRIBUTIONS[SUITES[suite].distribution]
    if debian_mirror:
        addresses = (debian_mirror, debian_security_mirror or "")
        sources = archives.sources_of(distribution, suite, *addresses, has_gpus=has_gpus)
    else:
        sources = archives.host_sources(suite, distribution=distribution, has_gpus=has_gpus)
    return needs, Settings(output or default_output(stack, suite), paths.cache(), sources, refresh)


def default_output(stack: str, suite: str) -> Path:
    return paths.cache() / "mirror" / f"{stack}-{suite}"


def make_with_vendors(
    stack: Stack,
    needs: Needs,
    settings: Settings,
    of_vendors: indexes_and_files.VendorSettings,
    say: Say = lambda _: None,
) -> WithVendors:
    """Make or repair the folder of a stack that takes something from vendors."""
    _require_programs()
    first = indexes_and_files.fetch(stack, needs.suite, of_vendors, say)
    vendors = packages.of_stack(
        stack, needs.suite, settings.output, first.manifest, of_vendors.mirror, of_vendors.keys
    )
    try:
        made = make(needs, replace(settings, vendors=vendors), say)
    except UserError as error:
        failed = Missing("apt/ and wheels/", stack.name, needs.suite, f"fails: {error}")
        return WithVendors(first, None, (*first.missing, failed))
    missing = (*first.missing, *made.missing)
    if not missing:
        shutil.rmtree(vendors.folder / PARTIAL, ignore_errors=True)
    return WithVendors(first, made, missing)


def make(needs: Needs, settings: Settings, say: Say = lambda _: None) -> MirrorOutcome:
    """Make or repair the folder; if nothing is to do, only read and compare what is there."""
    requirements = {one: locks.read(one, needs.root, needs.target) for one in needs.requirements}
    inputs = _inputs(needs, settings)
    output = settings.output
    with writing(output):
        before = manifests.read(output)
        broken = manifests.damaged(output, before) if before else ()
        if before and before.inputs_sha256 == inputs and not settings.refresh:
            if not broken and not _strays(output, before):
                # What an interrupted refresh had fetched.
                shutil.rmtree(output / PARTIAL, ignore_errors=True)
                return MirrorOutcome(before)
            for path in broken:
                say(f"{path} is missing or altered: fetching it again")
        return _MirrorRun(needs, settings, say).make(requirements, inputs, before, broken)


@dataclass
class _MirrorRun:
    needs: Needs
    settings: Settings
    say: Say
    fetched: list[str] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)

    def make(
        self,
        requirements: Mapping[RequirementsFile, tuple[Pinned, ...]],
        inputs: str,
        before: MirrorManifest | None,
        broken: tuple[str, ...],
    ) -> MirrorOutcome:
        _require_programs()
        needs, settings, output = self.needs, self.settings, self.settings.output
        partial = output / PARTIAL
        partial.mkdir(exist_ok=True)
        # Packages first: if they fail, that is known before the large wheels are fetched.
        indexed, debs = self.debs(partial)
        files = wheels.bring(needs.target, requirements, output, partial, self.fetched, self.say)
        architecture, key = needs.target.architecture, settings.cache / "mirror-key"
        index, fingerprint = signed_index.write(
            indexed, needs.suite, architecture, output / "apt", key
        )
        lacking = (SkippedNeed(one.name, one.reason) for one in self.missing)
        after = MirrorManifest(
            stack=needs.stack,
            suite=needs.suite,
            architecture=architecture,
            python=needs.target.python,
            # A later run tries again to fetch what is missing.
            inputs_sha256="" if self.missing else inputs,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            sources=tuple(f"{s.uri} {' '.join(s.suites)}" for s in settings.sources),
            key_fingerprint=fingerprint,
            skipped=(*needs.skipped, *lacking),
            files=(*index, *debs, *files),
        )
        manifests.write(output, after)
        shutil.rmtree(partial)
        removed = _strays(output, after)
        for path in removed:
            (output / path).unlink()
        _drop_empty_folders(output)
        known = {item.path for item in before.files} if before else set()
        repaired = tuple(path for path in broken if path in self.fetched and path in known)
        return MirrorOutcome(after, tuple(self.fetched), repaired, removed, tuple(self.missing))

    def debs(self, partial: Path) -> tuple[list[Package], list[Item]]:
        """Have all packages in the folder. Return those for the folder's own index (a vendor's
        package is in the vendor's index), and the items of all."""
        needs, settings, vendors = self.needs, self.settings, self.settings.vendors
        wanted = {role: names for role, names in needs.packages.items() if names}
        if not wanted and not vendors.families:
            return [], []
        self.say(f"reading the package lists of {needs.suite}")
        sources = (*vendors.sources(settings.cache / "apt/keyrings"), *settings.sources)
        architecture = needs.target.architecture
        root = closure.read_lists(
            settings.cache, needs.suite, architecture, sources, vendors.preferences
        )
        there, unpacked, absent = vendors.packages(root)
        self.missing += absent
        where = f"stack {needs.stack}, apt_packages"
        if further := [*there, *needs.packages.get(FURTHER, ())]:
            where += " with " + ", ".join(further)
        for role, names in there.items():
            wanted[role] = (*wanted.get(role, ()), *names)
        theirs = vendors.unpacked(root, unpacked)
        if not wanted:
            return [], self.of_vendors(theirs.values())
        found = closure.resolve(root, settings.base, wanted, where=where)
        own: dict[AptPackage, str] = {}
        theirs |= vendors.members(root, found.reasons)
        for choice, package in found.packages.items():
            if path := vendors.path(choice):
                theirs[choice] = found.item(choice, path)
            else:
                own[choice] = f"apt/{package.filename}"
        items = self.of_vendors(theirs.values())
        fetched, lost, message = closure.fetch(root, own, settings.output, partial, self.say)
        self.fetched += fetched
        self.leave_out([found.item(choice, own.pop(choice)) for choice in lost], message)
        items += [found.item(choice, path) for choice, path in own.items()]
        return [found.packages[choice] for choice in own], items

    def leave_out(self, items: Sequence[Item], message: str) -> None:
        """Note packages that the archive lacks. Raises UserError for those of roles that always
        run."""
        needed = [item for item in items if not OPTIONAL.issuperset(item.wanted_by)]
        told = needed or items
        names = shortened([f"{item.name} {item.version}" for item in told])
        roles = ", ".join(dict.fromkeys(role for item in told for role in item.wanted_by))
        remedy = "Choose another archive with --debian-mirror, or run it again later."
        if needed:
            what = f"packages could not be fetched: {names}, for {roles}"
            raise UserError(what, found=message, hint=remedy)
        if items:
            source = ", ".join(source.uri for source in self.settings.sources)
            reason = f"could not be fetched: {message}"
            self.missing.append(Missing(names, roles, source, reason, remedy))

    def of_vendors(self, items: Iterable[Item]) -> list[Item]:
        """Fetch vendors' packages; return those that are in the folder now."""
        had = []
        for item in items:
            try:
                if self.settings.vendors.bring(item, self.say):
                    self.fetched.append(item.path)
                had.append(item)
            except FetchError as error:
                name, by = Path(item.path).name, ", ".join(item.wanted_by)
                remedy = "Run it again; --refresh reads a new index."
                source = f"https://{Path(item.path).parent.relative_to(FOLDER)}"
                self.missing.append(Missing(name, by, source, str(error), remedy))
        return had


def _require_programs() -> None:
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            raise UserError(f"{program} is missing", hint=f"install the package {package}")


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
            [repr(wanted), digest(needs.root / wanted.path)] for wanted in needs.requirements
        ],
        "skipped": [repr(entry) for entry in needs.skipped],
        "sources": [source.stanza() for source in settings.sources],
        "vendors": [*map(repr, settings.vendors.families), *settings.vendors.indexes],
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _strays(output: Path, manifest: MirrorManifest | None) -> tuple[str, ...]:
    """Files below apt/ and wheels/ that the manifest does not name."""
    known = {item.path for item in manifest.files} if manifest else set()
    found = (
        path.relative_to(output).as_posix()
        for part in ("apt", "wheels")
        for path in (output / part).rglob("*")
        if path.is_symlink() or not path.is_dir()
    )
    return tuple(sorted(path for path in found if path not in known))


def _drop_empty_folders(output: Path) -> None:
    for folder, _, _ in os.walk(output / "apt", topdown=False):
        if not any(Path(folder).iterdir()):
            Path(folder).rmdir()
