"""The command `doctor`: checks whether the nodes are ready for benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson, Inventories, Limit, option, print_json, print_note, screen


def doctor(
    inventory: Inventories = None,
    limit: Limit = "",
    facts: Annotated[
        Path | None,
        option(
            "--facts", "Use facts that preflight.yml saved, instead of gathering new ones.", "FILE"
        ),
    ] = None,
    dcgm: Annotated[
        int | None,
        option(
            "--dcgm",
            "Also run DCGM's diagnostics on the GPUs: 1 takes seconds, 2 minutes, 3 up to an hour."
            " Nothing else may use the GPUs.",
            "LEVEL",
            min=1,
            max=3,
        ),
    ] = None,
    bandwidth: Annotated[
        bool,
        option(
            "--bandwidth",
            "Also measure the bus bandwidth of all nodes with nccl-allreduce; if it is low or"
            " nothing is expected, that of each node and of pairs, too.",
        ),
    ] = False,
    everything: Annotated[bool, option("--all", "Also show passing checks.")] = False,
    as_json: AsJson = False,
    as_nhc: Annotated[
        bool,
        option("--nhc", "Print one line if a check failed, as LBNL's Node Health Check does."),
    ] = False,
) -> None:
    """Check each node and the whole cluster. The exit status is 1 if a check failed."""
    from dataclasses import asdict

    from ..commands.doctor import examine
    from ..core.errors import UserError
    from ..doctor.nodes import status_of
    from ..report.findings_text import nhc_line, render

    if as_nhc and (as_json or everything):
        raise UserError("--nhc prints one line; it cannot be combined with --json or --all")
    if facts and (dcgm is not None or bandwidth):
        raise UserError("--dcgm and --bandwidth run tests; they cannot be combined with --facts")
    say = print_note if bandwidth else None
    findings = examine(inventory or (), limit, facts, dcgm, say)
    status = status_of(findings)
    if as_json:
        document = {"status": status, "findings": [asdict(finding) for finding in findings]}
        print_json(document)
    elif as_nhc:
        print(nhc_line(findings), end="")
    else:
        print(render(findings, screen().prose, everything), end="")
    if status == "failed":
        raise typer.Exit(1)
