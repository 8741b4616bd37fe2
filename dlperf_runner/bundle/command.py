"""The command `bundle`: creates the mirror directory for air-gapped sites."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.errors import UserError
from ..options import AsJson, Limit, completes, option, print_json, print_note, screen

if TYPE_CHECKING:
    from ..bundle.mirror import MirrorOutcome

ORDER = 30


def command(
    inventory: Annotated[
        list[str] | None,
        option(
            "--inventory -i",
            "Ansible inventory whose nodes name and change the stack; may be repeated. Default:"
            " the stack as the catalogue has it.",
            "PATH",
        ),
    ] = None,
    limit: Limit = "",
    stack: Annotated[
        str,
        option(
            "--stack",
            "The stack of the nodes; default: the inventory's, or cpu.",
            "NAME",
            autocompletion=completes("stack"),
        ),
    ] = "",
    suite: Annotated[
        str,
        option(
            "--suite",
            "Debian or Ubuntu release of the nodes; default: the inventory's dlperf_suite, or the"
            " first one of the stack.",
            "NAME",
        ),
    ] = "",
    framework: Annotated[
        str,
        option(
            "--framework",
            "Only the environments of these frameworks; default: all of the stack.",
            "NAME[,NAME]",
            autocompletion=completes("framework"),
        ),
    ] = "",
    python: Annotated[
        str,
        option(
            "--python",
            "Version of python_env_interpreter on the nodes, which then build none; default:"
            " the version of the stack or of the release.",
            "X.Y",
        ),
    ] = "",
    output_dir: Annotated[
        Path | None,
        option(
            "--output-dir",
            "Output directory; default: .cache/mirror/<stack>-<suite> in the project.",
            "DIR",
        ),
    ] = None,
    debian_mirror: Annotated[
        str,
        option(
            "--debian-mirror",
            "A mirror of Debian or Ubuntu; default: the archive that this machine uses if it"
            " runs the same distribution, otherwise the official archive.",
            "URL",
        ),
    ] = "",
    debian_security_mirror: Annotated[
        str,
        option(
            "--debian-security-mirror",
            "A mirror of the security updates; default: derived from --debian-mirror.",
            "URL",
        ),
    ] = "",
    package: Annotated[
        list[str] | None,
        option(
            "--package",
            "An additional package of the distribution, such as linux-headers-VERSION for the"
            " kernel of the nodes; may be repeated.",
            "NAME",
        ),
    ] = None,
    vendor_mirror: Annotated[
        str,
        option(
            "--vendor-mirror",
            "A copy of the vendors' files, with https://<host>/<path> at <host>/<path>;"
            " default: the vendors' own servers.",
            "URL|DIR",
        ),
    ] = "",
    vendor_key: Annotated[
        list[str] | None,
        option(
            "--vendor-key",
            "Fingerprint of a repository that the mirror has re-signed; may be repeated.",
            "REPOSITORY=FINGERPRINT",
        ),
    ] = None,
    checksum: Annotated[
        list[str] | None,
        option(
            "--checksum",
            "Checksum of a vendor's file, named by the role's variable; may be repeated.",
            "VARIABLE=SHA256",
        ),
    ] = None,
    file: Annotated[
        list[str] | None,
        option(
            "--file",
            "A local copy of a vendor's file, named by the role's variable; may be repeated.",
            "VARIABLE=PATH",
        ),
    ] = None,
    refresh: Annotated[bool, option("--refresh", "Check for newer packages.")] = False,
    list_only: Annotated[
        bool, option("--list", "Only list what the mirror would contain.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create a mirror directory from which nodes install offline. For stacks with GPUs, it also
    contains the vendors' files. The exit status is 1 if a file could not be fetched; the output
    names it."""
    from ..bundle import archives, listing, mirror
    from ..bundle.needs import as_inventory_says, of_stack, without_python
    from ..bundle.release_tables import wanted
    from ..catalog.reader import load_catalog
    from ..catalog.suites import SUITES
    from ..core import paths
    from ..plan.choice import parse_choice
    from ..plan.inventory import read_inventory

    further = tuple(package or ())
    catalog = load_catalog()
    if inventory:
        nodes = read_inventory(inventory, limit or None)
        catalog, stack, suite = as_inventory_says(catalog, nodes, stack, suite)
    elif limit:
        raise UserError("there is nothing to limit", where="--limit", expected="an --inventory")
    stack = stack or "cpu"
    chosen = catalog.stack(stack, "--stack")
    chosen = without_python(chosen) if python else chosen
    suite = suite or next(iter(chosen.suites), "")
    given = {"--checksum": checksum, "--file": file, "--vendor-key": vendor_key}
    has_gpus = chosen.accelerator == "gpu"
    has_vendors = has_gpus or bool(wanted(chosen, suite))
    if not has_vendors:
        if useless := [n for n, v in {**given, "--vendor-mirror": vendor_mirror}.items() if v]:
            problem = "the stack needs no files from vendors"
            raise UserError(problem, where=useless[0], found=f"stack {stack}")
    elif list_only:
        entries = listing.of_stack(catalog, chosen, suite, further)
        _print_listing(f"{stack} on {suite}", listing.COLUMNS, entries, as_json)
        return
    frameworks = parse_choice({"framework": framework}).framework
    checksums, files, keys = (_pairs(option, texts or []) for option, texts in given.items())
    fingerprints = {name: [key] for name, key in keys.items()}
    needs = of_stack(
        catalog, stack, suite, paths.shipped(), frameworks, python, further, fingerprints
    )
    distribution = archives.DISTRIBUTIONS[SUITES[suite].distribution]
    if debian_mirror:
        addresses = (debian_mirror, debian_security_mirror)
        sources = archives.sources_of(distribution, suite, *addresses, has_gpus=has_gpus)
    else:
        sources = archives.host_sources(suite, distribution=distribution, has_gpus=has_gpus)
    settings = mirror.Settings(
        output_dir or mirror.default_output(stack, suite),
        paths.cache(),
        sources,
        refresh,
        mirror=vendor_mirror,
        checksums=checksums,
        files=files,
        keys=fingerprints,
    )
    for skipped in needs.skipped:
        print_note(f"left out: {skipped}")
    if list_only:
        names = listing.of_needs(needs)
        _print_listing(f"{stack} on {suite}", listing.COLUMNS[:3], names, as_json)
        return
    outcome = mirror.make(needs, settings, print_note)
    _print(settings.output, outcome, has_vendors, as_json)
    if outcome.missing:
        raise typer.Exit(1)


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
