"""The command `bundle`: the mirror folder of sites without a way out."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.errors import UserError
from .completion import completes
from .options import AsJson

if TYPE_CHECKING:
    from ..bundle.mirror import Outcome
    from ..bundle.needs import Needs
    from ..bundle.settings import Settings
    from ..bundle.vendor_fetch import Outcome as Vendors
    from ..catalog.stack import Stack


def bundle(
    stack: Annotated[
        str,
        typer.Option("--stack", help="A stack.", metavar="NAME", autocompletion=completes("stack")),
    ] = "cpu",
    suite: Annotated[
        str,
        typer.Option(
            "--suite",
            help="The nodes' Debian or Ubuntu release; default: the stack's first.",
            metavar="NAME",
            show_default=False,
        ),
    ] = "",
    framework: Annotated[
        str,
        typer.Option(
            "--framework",
            help="Only the environments of these; default: of all that have one for the stack.",
            metavar="NAME[,NAME]",
            autocompletion=completes("framework"),
            show_default=False,
        ),
    ] = "",
    python: Annotated[
        str,
        typer.Option(
            "--python",
            help="Version of the nodes' python_env_interpreter; default: of the stack's Python, or"
            " the release's.",
            metavar="X.Y",
            show_default=False,
        ),
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", help="Default: .cache/mirror/<stack>-<suite> of the project.", metavar="DIR"
        ),
    ] = None,
    debian_mirror: Annotated[
        str,
        typer.Option(
            "--debian-mirror",
            help="A mirror of the distribution, Debian or Ubuntu; default: where this machine has"
            " its own packages, if it has the same one, else the official archive.",
            metavar="URL",
            show_default=False,
        ),
    ] = "",
    debian_security_mirror: Annotated[
        str,
        typer.Option(
            "--debian-security-mirror",
            help="Its security updates; default: where --debian-mirror should have them.",
            metavar="URL",
            show_default=False,
        ),
    ] = "",
    package: Annotated[
        list[str] | None,
        typer.Option(
            "--package",
            help="A further package of the distribution, as the linux-headers-VERSION of the"
            " nodes' kernel; may be repeated.",
            metavar="NAME",
        ),
    ] = None,
    vendor_mirror: Annotated[
        str,
        typer.Option(
            "--vendor-mirror",
            help="A copy of what vendors have at https://<host>/<path>, as <host>/<path>; default:"
            " the vendors.",
            metavar="URL|DIR",
            show_default=False,
        ),
    ] = "",
    vendor_key: Annotated[
        list[str] | None,
        typer.Option(
            "--vendor-key",
            help="Fingerprint of a repository that its mirror signs anew; may be repeated.",
            metavar="REPOSITORY=FINGERPRINT",
        ),
    ] = None,
    checksum: Annotated[
        list[str] | None,
        typer.Option(
            "--checksum",
            help="Checksum of a vendor's file, by the role's variable; may be repeated.",
            metavar="VARIABLE=SHA256",
        ),
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file",
            help="A vendor's file that is here, by the role's variable; may be repeated.",
            metavar="VARIABLE=PATH",
        ),
    ] = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Look for newer packages in the archive.")
    ] = False,
    list_only: Annotated[
        bool, typer.Option("--list", help="Only show what would be in it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make the mirror folder from which nodes without a way out install. For a stack with GPUs it
    has what vendors publish, too; what could not be had is named, and the exit status is 1 then."""
    from ..bundle import mirror, vendor
    from ..catalog.reader import load_catalog
    from ..plan.choice import parse_choice
    from ..report.text import table

    further = tuple(package or ())
    catalog = load_catalog()
    chosen = catalog.stack(stack, "--stack")
    suite = suite or next(iter(chosen.suites), "")
    given = {"--checksum": checksum, "--file": file, "--vendor-key": vendor_key}
    has_vendors = chosen.accelerator == "gpu" or bool(vendor.wanted(chosen, suite))
    if not has_vendors:
        _refuse({**given, "--vendor-mirror": vendor_mirror}, stack)
    elif list_only:
        rows = vendor.listing(catalog, chosen, suite, further)
        _print_listing(vendor.COLUMNS, rows, vendor.as_text(rows), as_json)
        return
    folder = output or mirror.default_output(stack, suite)
    frameworks = parse_choice({"framework": framework}).framework
    if has_vendors:
        vendor.require_suite(chosen, suite)
    sources = (debian_mirror or None, debian_security_mirror or None)
    needs, settings = mirror.choose(
        stack, suite, folder, *sources, refresh, frameworks, python, further
    )
    for skipped in needs.skipped:
        _say(f"left out: {skipped}")
    if has_vendors:
        _with_vendors(chosen, needs, settings, vendor_mirror, given, as_json)
        return
    if list_only:
        columns, names = ("kind", "name", "wanted by"), mirror.listing(needs)
        _print_listing(columns, names, table(f"{stack} on {suite}", columns, names), as_json)
        return
    made = mirror.make(needs, settings, say=_say)
    if as_json:
        _print_json(made.manifest.to_json())
    else:
        print(_sentence(folder, made))


def _with_vendors(
    stack: Stack,
    needs: Needs,
    settings: Settings,
    vendor_mirror: str,
    given: Mapping[str, list[str] | None],
    as_json: bool,
) -> None:
    """The vendors' part, then the ordinary one, with what the vendors' packages depend on; what
    could not be had is said last."""
    import yaml

    from ..bundle import mirror, vendor, vendor_fetch, vendor_sources

    pairs = {option: _pairs(option, texts or []) for option, texts in given.items()}
    keys = {name: [key] for name, key in pairs["--vendor-key"].items()}
    suite, folder = needs.suite.name, settings.output
    outcome = vendor_fetch.fetch(
        stack,
        suite,
        vendor_fetch.Settings(
            output=folder,
            mirror=vendor_mirror,
            checksums=pairs["--checksum"],
            files=pairs["--file"],
            keys=keys,
            refresh=settings.refresh,
        ),
        say=_say,
    )
    missing, made = list(outcome.missing), None
    theirs = folder / vendor.FOLDER
    try:
        vendors = vendor_sources.of_stack(
            stack, suite, theirs, outcome.manifest, vendor_mirror, keys
        )
        made = mirror.make(needs, replace(settings, vendors=vendors), say=_say)
    except UserError as error:
        missing.append(
            vendor_fetch.Missing("apt/ and wheels/", stack.name, suite, f"fails: {error}")
        )
    if as_json:
        document = {**outcome.to_json(), "missing": [asdict(one) for one in missing]}
        _print_json({**document, "ordinary": made.manifest.to_json() if made else None})
    else:
        print(_sentence(theirs, outcome))
        if made:
            print(_sentence(folder, made))
        if outcome.variables:
            print("\nThe inventory has to say, beside dlperf_vendor_mirror:")
            print(yaml.safe_dump(dict(outcome.variables), width=1000), end="")
        if missing:
            print(f"\nmissing: {len(missing)}\n")
            print("\n\n".join(map(str, missing)))
    if missing:
        raise typer.Exit(1)


def _refuse(given: Mapping[str, object], stack: str) -> None:
    for option, value in given.items():
        if value:
            raise UserError(
                "this stack has nothing of a vendor", where=option, found=f"stack {stack}"
            )


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UserError("this is no pair", where=option, expected="NAME=VALUE", found=text)
        pairs[name] = value
    return pairs


def _sentence(folder: Path, made: Outcome | Vendors) -> str:
    from ..report.text import counted

    text = f"{folder}: {counted(len(made.manifest.files), 'file')}, {len(made.fetched)} fetched"
    removed = getattr(made, "removed", None)
    return text if removed is None else f"{text}, {len(removed)} removed"


def _print_listing(
    columns: Sequence[str], rows: Sequence[Sequence[str]], text: str, as_json: bool
) -> None:
    if as_json:
        _print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print(text, end="")


def _print_json(document: object) -> None:
    print(json.dumps(document, indent=2, ensure_ascii=False))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
