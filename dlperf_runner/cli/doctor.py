"""The command `doctor`: checks whether the nodes are ready for benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import (
    AsJson,
    Inventories,
    Limit,
    option,
    print_json,
    print_note,
    refuse_given,
    screen,
    with_texts,
)

if TYPE_CHECKING:
    from ..doctor.findings import Finding


_OF_JOBS = {
    "partition": "The partition to check; default: all, with a test job in Slurm's default one.",
    "account": "The account of the test job.",
    "qos": "The quality of service of the test job.",
    "reservation": "The reservation of the test job.",
    "constraint": "Features that the nodes of the test job must have.",
}
_SCHEDULER = (
    "Check a cluster from a login node of this scheduler (slurm), instead of an inventory's nodes."
)
_TEXTS = [("scheduler", "--scheduler", _SCHEDULER, "NAME")]
_TEXTS += [
    (name, f"--{name}", f"With --scheduler: {text[0].lower()}{text[1:]}", "NAME")
    for name, text in _OF_JOBS.items()
]


@with_texts(_TEXTS)
def doctor(
    scheduled: Mapping[str, str],
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
            "Also measure the bus bandwidth of all nodes with nccl-allreduce; if it is low, or if"
            " the stack has no limit, also that of each node and of pairs.",
        ),
    ] = False,
    everything: Annotated[bool, option("--all", "Also show passing checks.")] = False,
    as_json: AsJson = False,
    as_nhc: Annotated[
        bool, option("--nhc", "Print one line if a check failed, as LBNL's Node Health Check does.")
    ] = False,
) -> None:
    """Check each node and the whole cluster. The exit status is 1 if a check failed."""
    from dataclasses import asdict

    from ..core.errors import UserError
    from ..doctor.nodes import status_of
    from ..report.findings_text import nhc_line, render

    if as_nhc and (as_json or everything):
        raise UserError("--nhc prints one line; it cannot be combined with --json or --all")
    if facts and (dcgm is not None or bandwidth):
        raise UserError("--dcgm and --bandwidth run tests; they cannot be combined with --facts")
    about_nodes = {
        "inventory": inventory, "limit": limit, "facts": facts, "dcgm": dcgm, "bandwidth": bandwidth
    }  # fmt: skip
    if scheduled["scheduler"]:
        findings = _of_cluster(scheduled, about_nodes)
    else:
        from ..commands.doctor import examine

        refuse_given(scheduled, "this option has an effect only with --scheduler")
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


def _of_cluster(scheduled: Mapping[str, str], about_nodes: Mapping[str, object]) -> list[Finding]:
    from ..commands.login_node import examine_cluster

    refuse_given(about_nodes, "this option has no effect with --scheduler")
    options = {name: scheduled[name] for name in _OF_JOBS if scheduled[name]}
    return examine_cluster(scheduled["scheduler"], options, Path.cwd())
