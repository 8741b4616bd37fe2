"""A mirror folder made, verified and repaired: whatever is right stays, the rest is fetched."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from ..catalog.reader import load_catalog
from ..core.errors import UserError
from . import archives, debs, wheels
from . import manifest as manifests
from .manifest import Item, Manifest
from .needs import Needs, RequirementsFile, marker_environment, of_stack
from .requirements import Pinned, parse
from .settings import Say, Settings

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache"
# Program -> the package that brings it.
PROGRAMS = {"apt-get": "apt", "gpgv": "gpgv", "gpg": "gpg", "gpg-agent": "gpg-agent"}
_PARTIAL = ".partial"
_LOCK = ".lock"


@dataclass(frozen=True)
class Outcome:
    """What making a mirror did: paths that were fetched, repaired (were damaged) and removed."""

    manifest: Manifest
    fetched: tuple[str, ...]
    repaired: tuple[str, ...]
    removed: tuple[str, ...]

    @property
    def changed(self) -> bool:
        return bool(self.fetched or self.removed)


def choose(
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
    """The command line's choice: what is needed, out of the catalogue, and where from and to.

    Without `frameworks`, those of the catalogue that have an environment for the stack. Without
    `debian_mirror`, packages come from where this machine has its own, if it has the same
    distribution, else from the official archive.
    """
    catalog = load_catalog()
    needs = of_stack(catalog, stack, suite, ROOT, frameworks, python, further)
    distribution, has_gpus = needs.suite.distribution, catalog.stack(stack).accelerator == "gpu"
    if debian_mirror:
        addresses = (debian_mirror, debian_security_mirror or "")
        sources = archives.sources_of(distribution, suite, *addresses, has_gpus=has_gpus)
    else:
        sources = archives.host_sources(suite, distribution=distribution, has_gpus=has_gpus)
    return needs, Settings(output or default_output(stack, suite), CACHE, sources, refresh)


def default_output(stack: str, suite: str) -> Path:
    return CACHE / "mirror" / f"{stack}-{suite}"


def listing(needs: Needs) -> list[tuple[str, str, str]]:
    """(kind, name, wanted by) of what a mirror would be made of, as far as the project's own files
    say; dependencies of packages are known to the archive only."""
    rows = [
        ("deb", name, role)
        for role, names in needs.packages.items()
        for name in dict.fromkeys(names)
    ]
    for wanted, pinned in _requirements(needs).items():
        rows += [(wanted.kind_of(pin.name), str(pin), wanted.wanted_by) for pin in pinned]
    return rows


def make(needs: Needs, settings: Settings, say: Say = lambda _: None) -> Outcome:
    """Make or repair the mirror; with nothing to do, only read and compare what is there."""
    requirements = _requirements(needs)
    inputs = _inputs(needs, settings)
    output = settings.output
    try:
        output.mkdir(parents=True, exist_ok=True)
        with alone(output):
            before = manifests.read(output)
            broken = manifests.damaged(output, before) if before else ()
            stray = _strays(output, before)
            if before and before.inputs_sha256 == inputs and not settings.refresh:
                if not broken and not stray:
                    # What a refresh that was interrupted had fetched.
                    shutil.rmtree(output / _PARTIAL, ignore_errors=True)
                    return Outcome(before, (), (), ())
                for path in broken:
                    say(f"{path} is missing or altered: it is fetched again")
            return _make(needs, settings, requirements, inputs, before, broken, say)
    except OSError as error:
        raise UserError(
            f"the mirror could not be written: {error.strerror or error}",
            where=str(error.filename or output),
            hint="a second run goes on where this one stopped",
        ) from error


def _make(
    needs: Needs,
    settings: Settings,
    requirements: Mapping[RequirementsFile, tuple[Pinned, ...]],
    inputs: str,
    before: Manifest | None,
    broken: tuple[str, ...],
    say: Say,
) -> Outcome:
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            raise UserError(f"{program} is missing", hint=f"install the package {package}")
    output, partial = settings.output, settings.output / _PARTIAL
    partial.mkdir(exist_ok=True)
    fetched: list[str] = []
    # What is small first: where it cannot be had, that is said at once.
    packages, deb_items = debs.bring(needs, settings, partial, fetched, say)
    wheel_items = _wheels(needs, output, partial, requirements, fetched, say)
    index, fingerprint = debs.index(needs, settings, packages)
    after = Manifest(
        stack=needs.stack,
        suite=needs.suite.name,
        architecture=needs.architecture,
        python=needs.suite.python,
        inputs_sha256=inputs,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        sources=tuple(f"{s.uri} {' '.join(s.suites)}" for s in settings.sources),
        key_fingerprint=fingerprint,
        skipped=needs.skipped,
        files=(*index, *deb_items, *wheel_items),
    )
    manifests.write(output, after)
    shutil.rmtree(partial)
    removed = _strays(output, after)
    for path in removed:
        (output / path).unlink()
    _drop_empty_folders(output)
    known = {item.path for item in before.files} if before else set()
    repaired = tuple(path for path in broken if path in fetched and path in known)
    return Outcome(after, tuple(fetched), repaired, removed)


def _wheels(
    needs: Needs,
    output: Path,
    partial: Path,
    requirements: Mapping[RequirementsFile, tuple[Pinned, ...]],
    fetched: list[str],
    say: Say,
) -> list[Item]:
    house = output / "wheels"
    house.mkdir(exist_ok=True)
    # (file, requirement) -> who wants it; a file that several environments want is one item.
    chosen: dict[str, tuple[Pinned, RequirementsFile, list[str]]] = {}
    for wanted, pins in requirements.items():
        digests = manifests.digests(house, (p.name for p in house.iterdir()))
        kinds = {pin: wanted.kind_of(pin.name) for pin in pins}
        missing = [pin for pin in pins if not wheels.file_for(pin, digests, kinds[pin])]
        if missing:
            say(f"fetching {', '.join(map(str, missing))} of {wanted.path}")
            for kind in dict.fromkeys(kinds[pin] for pin in missing):
                of_kind = [pin for pin in missing if kinds[pin] == kind]
                wheels.download(needs, replace(wanted, kind=kind), of_kind, partial / "wheels")
            arrived = manifests.digests(
                partial / "wheels", (p.name for p in (partial / "wheels").iterdir())
            )
            for pin in missing:
                name = wheels.file_for(pin, arrived, kinds[pin])
                if name is None:
                    raise UserError(f"pip fetched no {kinds[pin]} of {pin}", where=wanted.path)
                manifests.move_verified(partial / "wheels" / name, house / name, arrived[name])
                fetched.append(f"wheels/{name}")
                digests[name] = arrived[name]
        for pin in pins:
            name = wheels.file_for(pin, digests, kinds[pin]) or ""
            _, _, wanters = chosen.setdefault(name, (pin, wanted, []))
            wanters.append(wanted.wanted_by)
    house_digests = manifests.digests(house, chosen)
    return [
        Item(
            path=f"wheels/{name}",
            kind=wanted.kind_of(pin.name),
            name=pin.name,
            version=pin.version,
            sha256=house_digests[name],
            size=(house / name).stat().st_size,
            wanted_by=tuple(wanters),
            why=f"{pin} in {wanted.path}",
        )
        for name, (pin, wanted, wanters) in sorted(chosen.items())
    ]


def _requirements(needs: Needs) -> dict[RequirementsFile, tuple[Pinned, ...]]:
    environment = marker_environment(needs.suite, needs.architecture)
    return {
        wanted: parse(
            _text(needs.root / wanted.path, wanted), where=wanted.path, environment=environment
        )
        for wanted in needs.requirements
    }


def _text(path: Path, wanted: RequirementsFile) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"the requirements of {wanted.wanted_by} cannot be read",
            where=wanted.path,
            found=str(error),
        ) from error


def _inputs(needs: Needs, settings: Settings) -> str:
    """A digest of everything that decides what the mirror holds, the archive's own state aside."""
    document = {
        "format": manifests.FORMAT,
        "stack": needs.stack,
        "suite": repr(needs.suite),
        "architecture": needs.architecture,
        "packages": {role: list(names) for role, names in needs.packages.items()},
        "base": list(settings.base),
        "requirements": [
            [repr(wanted), manifests.digest(needs.root / wanted.path)]
            for wanted in needs.requirements
        ],
        "skipped": [repr(entry) for entry in needs.skipped],
        "sources": [source.stanza() for source in settings.sources],
        "vendors": [
            repr(one) for one in (*settings.vendors.repositories, settings.vendors.packages)
        ],
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _strays(output: Path, manifest: Manifest | None) -> tuple[str, ...]:
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


@contextmanager
def alone(output: Path) -> Iterator[None]:
    """Hold the folder's lock, so that two runs do not take each other's files for strays."""
    with (output / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                "another run is making this mirror",
                where=str(output),
                hint="wait for it to end, or choose another folder with --output",
            ) from None
        yield
