"""The command `bundle`: creates the mirror directory for air-gapped sites."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..core import paths
from ..core.errors import UserError
from ..options import print_json, print_note, screen
from ..plan.choice import parse_choice

if TYPE_CHECKING:
    from ..catalog.reader import Catalog
    from .archives import Source
    from .mirror import MirrorOutcome
    from .wheels import Target

ORDER = 30
HELP = """
--inventory -i PATH: Ansible inventory whose nodes name and change the stack; may be repeated.
  Default: the stack as the catalogue has it.
--stack NAME: The stack of the nodes; default: the inventory's, or cpu.
--suite NAME: Debian or Ubuntu release of the nodes; default: the inventory's dlperf_suite, or the
  first one of the stack.
--processor x86_64|aarch64: Processor of the nodes of a stack with GPUs; default: the first one of
  the stack.
--framework NAME[,NAME]: Only the environments of these frameworks; default: all of the stack.
--python X.Y: Version of python_env_interpreter on the nodes, which then build none; default: the
  version of the stack or of the release.
--output-dir DIR: Output directory; default: .cache/mirror/<stack>-<suite> in the project.
--debian-mirror URL: A mirror of Debian or Ubuntu; default: the archive that this machine uses if it
  runs the same distribution, otherwise the official archive.
--debian-security-mirror URL: A mirror of the security updates; default: derived from
  --debian-mirror.
--package NAME: An additional package of the distribution, such as linux-headers-VERSION for the
  kernel of the nodes; may be repeated.
--vendor-mirror URL|DIR: A copy of the vendors' files, with https://<host>/<path> at <host>/<path>;
  default: the vendors' own servers.
--vendor-key REPOSITORY=FINGERPRINT: Fingerprint of a repository that the mirror has re-signed; may
  be repeated.
--checksum VARIABLE=SHA256: Checksum of a vendor's file, named by the role's variable; may be
  repeated.
--file VARIABLE=PATH: A local copy of a vendor's file, named by the role's variable; may be
  repeated.
--refresh: Check for newer packages.
list_only --list: Only list what the mirror would contain.
"""


def command(
    inventory: list[str] | None = None,
    limit: str = "",
    stack: str = "",
    suite: str = "",
    processor: str = "",
    framework: str = "",
    python: str = "",
    output_dir: Path | None = None,
    debian_mirror: str = "",
    debian_security_mirror: str = "",
    package: list[str] | None = None,
    vendor_mirror: str = "",
    vendor_key: list[str] | None = None,
    checksum: list[str] | None = None,
    file: list[str] | None = None,
    refresh: bool = False,
    list_only: bool = False,
    as_json: bool = False,
) -> None:
    """Create a mirror directory from which nodes install offline, with the vendors' files of GPUs.
    The exit status is 1 if a file could not be fetched.

    Example: dlperf bundle --stack h100-cuda12.9 --suite jammy"""
    from . import mirror
    from .needs import LIST_COLUMNS, listing, of_stack

    catalog, stack, suite = _system(inventory, limit, stack, suite, processor)
    given = {"--checksum": checksum, "--file": file, "--vendor-key": vendor_key}
    checksums, files, keys = (_pairs(name, texts or []) for name, texts in given.items())
    fingerprints = {name: [key] for name, key in keys.items()}
    names, further = parse_choice({"framework": framework}).framework, tuple(package or ())
    needs = of_stack(catalog, stack, suite, paths.shipped(), names, python, further, fingerprints)
    if list_only:
        return _print_listing(f"{stack} on {suite}", LIST_COLUMNS, listing(needs), as_json)
    for skipped in needs.skipped:
        print_note(f"left out: {skipped}")
    if not needs.of_vendors:
        _refuse_useless({**given, "--vendor-mirror": vendor_mirror}, stack)
    has_gpus = catalog.stack(stack).accelerator == "gpu"
    settings = mirror.Settings(
        output_dir or paths.cache() / "mirror" / f"{stack}-{suite}",
        paths.cache(),
        _sources(suite, debian_mirror, debian_security_mirror, needs.target, has_gpus=has_gpus),
        refresh,
        mirror=vendor_mirror,
        checksums=checksums,
        files=files,
        keys=fingerprints,
    )
    outcome = mirror.make(needs, settings, print_note)
    _print(settings.output, outcome, bool(needs.of_vendors), as_json)
    raise typer.Exit(bool(outcome.missing))


def _system(
    inventory: Sequence[str] | None, limit: str, stack: str, suite: str, processor: str
) -> tuple[Catalog, str, str]:
    """The catalogue, with the inventory's changes, and the names of the stack and the system."""
    from ..catalog.reader import load_catalog
    from ..plan.inventory import read_inventory
    from .needs import as_inventory_says, on_processor

    catalog = load_catalog()
    if inventory:
        nodes = read_inventory(inventory, limit or None)
        catalog, stack, suite = as_inventory_says(catalog, nodes, stack, suite)
    elif limit:
        raise UserError("there is nothing to limit", where="--limit", expected="an --inventory")
    stack = stack or "cpu"
    if processor:
        changed = on_processor(catalog.stack(stack, "--stack"), processor)
        catalog = dataclasses.replace(catalog, stacks={**catalog.stacks, stack: changed})
    return catalog, stack, suite or next(iter(catalog.stack(stack, "--stack").suites), "")


def _refuse_useless(given: Mapping[str, object], stack: str) -> None:
    """Refuse options about vendors, for a stack that needs nothing of theirs."""
    if useless := [name for name, value in given.items() if value]:
        problem = "the stack needs no files from vendors"
        raise UserError(problem, where=useless[0], found=f"stack {stack}")


def _sources(
    suite: str, mirror: str, security: str, target: Target, *, has_gpus: bool
) -> tuple[Source, ...]:
    """The archives of the distribution: the mirror's, or as this machine has them."""
    from ..catalog.suites import SUITES
    from .archives import DISTRIBUTIONS, host_sources, sources_of

    distribution = DISTRIBUTIONS[SUITES[suite].distribution]
    if target.machine != platform.machine():
        mirror = mirror or (distribution.ports if target.architecture == "arm64" else "")
    if mirror:
        return sources_of(distribution, suite, mirror, security, has_gpus=has_gpus)
    return host_sources(suite, distribution, has_gpus=has_gpus)


def _print(folder: Path, outcome: MirrorOutcome, has_vendors: bool, as_json: bool) -> None:
    import yaml

    from ..core.lists import counted

    if as_json:
        document = outcome.to_json()
        print_json(document if has_vendors else document["manifest"])
        return
    files, fetched = len(outcome.manifest.files), len(outcome.fetched)
    removed = len(outcome.removed)
    print(f"{folder}: {counted(files, 'file')}, {fetched} fetched, {removed} removed")
    if outcome.variables:
        print("\nSet in the inventory, in addition to dlperf_vendor_mirror:")
        print(yaml.safe_dump(dict(outcome.variables), width=1000), end="")
    if missing := outcome.missing:
        print(f"\nmissing: {len(missing)}\n")
        print("\n\n".join(map(str, missing)))


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not (name and value):
            raise UserError("invalid pair", where=option, expected="NAME=VALUE", found=text)
        pairs[name] = value
    return pairs


def _print_listing(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], as_json: bool
) -> None:
    from ..report.tables import Column
    from ..report.terminal import table

    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print(f"{title}\n\n{table([Column(name) for name in columns], rows, screen())}", end="")
