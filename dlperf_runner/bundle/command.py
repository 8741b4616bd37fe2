"""The command `bundle`: creates the mirror directory for air-gapped sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.errors import UserError
from ..options import AsJson, Limit, option, print_json, print_note, screen
from ..options.completion import completes

if TYPE_CHECKING:
    from ..bundle.folder.manifest import Missing
    from ..bundle.mirror import MirrorOutcome, WithVendors
    from ..bundle.vendor.indexes_and_files import VendorOutcome

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
    output: Annotated[
        Path | None,
        option(
            "--output",
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
    from ..bundle import listing, mirror
    from ..bundle.needs import as_inventory_says, without_python
    from ..bundle.vendor import indexes_and_files
    from ..bundle.vendor.release_tables import wanted
    from ..catalog.reader import load_catalog
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
    has_vendors = chosen.accelerator == "gpu" or bool(wanted(chosen, suite))
    if not has_vendors:
        if useless := [n for n, v in {**given, "--vendor-mirror": vendor_mirror}.items() if v]:
            problem = "the stack needs no files from vendors"
            raise UserError(problem, where=useless[0], found=f"stack {stack}")
    elif list_only:
        entries = listing.of_stack(catalog, chosen, suite, further)
        _print_listing(f"{stack} on {suite}", listing.COLUMNS, entries, as_json)
        return
    folder = output or mirror.default_output(stack, suite)
    frameworks = parse_choice({"framework": framework}).framework
    sources = (debian_mirror or None, debian_security_mirror or None)
    needs, settings = mirror.choose(
        catalog, stack, suite, folder, *sources, refresh, frameworks, python, further
    )
    for skipped in needs.skipped:
        print_note(f"left out: {skipped}")
    if has_vendors:
        pairs = {option: _pairs(option, texts or []) for option, texts in given.items()}
        keys = {name: [key] for name, key in pairs["--vendor-key"].items()}
        of_vendors = indexes_and_files.VendorSettings(
            folder, vendor_mirror, pairs["--checksum"], pairs["--file"], keys, refresh
        )
        both = mirror.make_with_vendors(chosen, needs, settings, of_vendors, print_note)
        _print_with_vendors(folder, both, as_json)
        if both.missing:
            raise typer.Exit(1)
    elif list_only:
        names = listing.of_needs(needs)
        _print_listing(f"{stack} on {suite}", listing.COLUMNS[:3], names, as_json)
    else:
        made = mirror.make(needs, settings, say=print_note)
        if as_json:
            print_json(made.manifest.to_json())
        else:
            print(_sentence(folder, made))
            _print_missing(made.missing)
        if made.missing:
            raise typer.Exit(1)


def _print_with_vendors(folder: Path, both: WithVendors, as_json: bool) -> None:
    import yaml

    from ..bundle.vendor.release_tables import FOLDER

    vendors, ordinary = both.vendors, both.ordinary
    if as_json:
        missing = [asdict(one) for one in both.missing]
        document = {**vendors.to_json(), "missing": missing}
        print_json({**document, "ordinary": ordinary.manifest.to_json() if ordinary else None})
        return
    print(_sentence(folder / FOLDER, vendors))
    if ordinary:
        print(_sentence(folder, ordinary))
    if vendors.variables:
        print("\nSet in the inventory, in addition to dlperf_vendor_mirror:")
        print(yaml.safe_dump(dict(vendors.variables), width=1000), end="")
    _print_missing(both.missing)


def _print_missing(missing: Sequence[Missing]) -> None:
    if missing:
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


def _sentence(folder: Path, made: MirrorOutcome | VendorOutcome) -> str:
    from ..core.lists import counted

    text = f"{folder}: {counted(len(made.manifest.files), 'file')}, {len(made.fetched)} fetched"
    removed = getattr(made, "removed", None)
    return text if removed is None else f"{text}, {len(removed)} removed"


def _print_listing(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], as_json: bool
) -> None:
    from ..report.tables import Column
    from ..report.terminal import table

    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print(f"{title}\n\n{table([Column(name) for name in columns], rows, screen())}", end="")
