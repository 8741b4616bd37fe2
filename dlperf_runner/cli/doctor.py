"""The command `doctor`: are the nodes fit?"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson, Inventories, Limit, print_json


def doctor(
    inventory: Inventories = None,
    limit: Limit = "",
    facts: Annotated[
        Path | None,
        typer.Option(
            "--facts",
            help="Facts that preflight.yml has kept, instead of new ones.",
            metavar="FILE",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Show what is well in full, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say whether the nodes are fit, each and together; exit status 1 where one is not."""
    from dataclasses import asdict

    from ..commands.doctor import examine
    from ..doctor.nodes import status_of
    from ..report.findings_text import render

    findings = examine(inventory or (), limit, facts)
    status = status_of(findings)
    if as_json:
        document = {"status": status, "findings": [asdict(finding) for finding in findings]}
        print_json(document)
    else:
        print(render(findings, shutil.get_terminal_size((100, 24)).columns, everything), end="")
    if status == "failed":
        raise typer.Exit(1)
