"""The command `bundle`: creates the mirror directory for air-gapped sites."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..core import paths
from ..core.errors import UserError
from ..options import AsJson, Limit, option, print_json, print_note, screen
from ..plan.choice import parse_choice

if TYPE_CHECKING:
    from ..bundle.archives import Source
    from ..bundle.mirror import MirrorOutcome
    from ..bundle.wheels import Target
    from ..catalog.reader import Catalog

ORDER = 30
_Inventory = Annotated[
    list[str] | None,
    option(
        "--inventory -i",
        "Ansible inventory whose nodes name and change the stack; may be repeated. Default:"
        " the stack as the catalogue has it.",
        "PATH",
    ),
]
_Stack = Annotated[
    str,
    option(
        "--stack",
        "The stack of the nodes; default: the inventory's, or cpu.",
        "NAME",
    ),
]
_Suite = Annotated[
    str,
    option(
        "--suite",
        "Debian or Ubuntu release of the nodes; default: the inventory's dlperf_suite, or the"
        " first one of the stack.",
        "NAME",
    ),
]
_Processor = Annotated[
    str,
    option(
        "--processor",
        "Processor of the nodes of a stack with GPUs; default: the first one of the stack.",
        "x86_64|aarch64",
    ),
]
_Framework = Annotated[
    str,
    option(
        "--framework",
        "Only the environments of these frameworks; default: all of the stack.",
        "NAME[,NAME]",
    ),
]
_Python = Annotated[
    str,
    option(
        "--python",
        "Version of python_env_interpreter on the nodes, which then build none; default:"
        " the version of the stack or of the release.",
        "X.Y",
    ),
]
_OutputDir = Annotated[
    Path | None,
    option(
        "--output-dir",
        "Output directory; default: .cache/mirror/<stack>-<suite> in the project.",
        "DIR",
    ),
]
_DebianMirror = Annotated[
    str,
    option(
        "--debian-mirror",
        "A mirror of Debian or Ubuntu; default: the archive that this machine uses if it"
        " runs the same distribution, otherwise the official archive.",
        "URL",
    ),
]
_DebianSecurityMirror = Annotated[
    str,
    option(
        "--debian-security-mirror",
        "A mirror of the security updates; default: derived from --debian-mirror.",
        "URL",
    ),
]
_Package = Annotated[
    list[str] | None,
    option(
        "--package",
        "An additional package of the distribution, such as linux-headers-VERSION for the"
        " kernel of the nodes; may be repeated.",
        "NAME",
    ),
]
_VendorMirror = Annotated[
    str,
    option(
        "--vendor-mirror",
        "A copy of the vendors' files, with https://<host>/<path> at <host>/<path>;"
        " default: the vendors' own servers.",
        "URL|DIR",
    ),
]
_VendorKey = Annotated[
    list[str] | None,
    option(
        "--vendor-key",
        "Fingerprint of a repository that the mirror has re-signed; may be repeated.",
        "REPOSITORY=FINGERPRINT",
    ),
]
_Checksum = Annotated[
    list[str] | None,
    option(
        "--checksum",
        "Checksum of a vendor's file, named by the role's variable; may be repeated.",
        "VARIABLE=SHA256",
    ),
]
_File = Annotated[
    list[str] | None,
    option(
        "--file",
        "A local copy of a vendor's file, named by the role's variable; may be repeated.",
        "VARIABLE=PATH",
    ),
]
_ListOnly = Annotated[bool, option("--list", "Only list what the mirror would contain.")]


def command(
    inventory: _Inventory = None,
    limit: Limit = "",
    stack: _Stack = "",
    suite: _Suite = "",
    processor: _Processor = "",
    framework: _Framework = "",
    python: _Python = "",
    output_dir: _OutputDir = None,
    debian_mirror: _DebianMirror = "",
    debian_security_mirror: _DebianSecurityMirror = "",
    package: _Package = None,
    vendor_mirror: _VendorMirror = "",
    vendor_key: _VendorKey = None,
    checksum: _Checksum = None,
    file: _File = None,
    refresh: Annotated[bool, option("--refresh", "Check for newer packages.")] = False,
    list_only: _ListOnly = False,
    as_json: AsJson = False,
) -> None:
    """Create a mirror directory from which nodes install offline, with the vendors' files of GPUs.
    The exit status is 1 if a file could not be fetched.

    Example: dlperf bundle --stack h100-cuda12.9 --suite jammy"""
    from ..bundle import mirror
    from ..bundle.needs import LIST_COLUMNS, listed_needs, listed_stack, of_stack, without_python
    from ..bundle.release_tables import wanted

    further = tuple(package or ())
    catalog, stack, suite = _system(inventory, limit, stack, suite, processor)
    chosen = without_python(catalog.stack(stack)) if python else catalog.stack(stack)
    given = {"--checksum": checksum, "--file": file, "--vendor-key": vendor_key}
    has_gpus = chosen.accelerator == "gpu"
    has_vendors = has_gpus or bool(wanted(chosen, suite))
    title, names = f"{stack} on {suite}", parse_choice({"framework": framework}).framework
    if has_vendors and list_only:
        entries = listed_stack(catalog, chosen, suite, further)
        return _print_listing(title, LIST_COLUMNS, entries, as_json)
    if not has_vendors:
        _refuse_useless({**given, "--vendor-mirror": vendor_mirror}, stack)
    checksums, files, keys = (_pairs(option, texts or []) for option, texts in given.items())
    fingerprints = {name: [key] for name, key in keys.items()}
    needs = of_stack(catalog, stack, suite, paths.shipped(), names, python, further, fingerprints)
    settings = mirror.Settings(
        output_dir or mirror.default_output(stack, suite),
        paths.cache(),
        _sources(suite, debian_mirror, debian_security_mirror, needs.target, has_gpus=has_gpus),
        refresh,
        mirror=vendor_mirror,
        checksums=checksums,
        files=files,
        keys=fingerprints,
    )
    for skipped in needs.skipped:
        print_note(f"left out: {skipped}")
    if list_only:
        return _print_listing(title, LIST_COLUMNS[:3], listed_needs(needs), as_json)
    outcome = mirror.make(needs, settings, print_note)
    _print(settings.output, outcome, has_vendors, as_json)
    raise typer.Exit(bool(outcome.missing))


def _system(
    inventory: Sequence[str] | None, limit: str, stack: str, suite: str, processor: str
) -> tuple[Catalog, str, str]:
    """The catalogue, with the inventory's changes, and the names of the stack and the system."""
    from ..bundle.needs import as_inventory_says, on_processor
    from ..catalog.reader import load_catalog
    from ..plan.inventory import read_inventory

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
    from ..bundle.archives import DISTRIBUTIONS, host_sources, sources_of
    from ..catalog.suites import SUITES

    distribution = DISTRIBUTIONS[SUITES[suite].distribution]
    if target.markers["platform_machine"] != platform.machine():
        mirror = mirror or (distribution.ports if target.architecture == "arm64" else "")
    if mirror:
        return sources_of(distribution, suite, mirror, security, has_gpus=has_gpus)
    return host_sources(suite, distribution=distribution, has_gpus=has_gpus)


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
        name, equals, value = text.partition("=")
        if not (name and equals and value):
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
