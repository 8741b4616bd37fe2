"""The command `bandwidth`: shows the tables of nccl-tests."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ..options import AsJson, exit_with, print_json, screen

ORDER = 230


def command(
    paths: Annotated[list[Path], typer.Argument(help="Logs of nccl-tests.", metavar="LOG...")],
    as_json: AsJson = False,
) -> None:
    """Show the bus bandwidth by message size from logs of nccl-tests. The exit status is 1 if
    results were wrong, and 2 if a log cannot be read or its table is incomplete."""
    from ..core.errors import UserError
    from ..report.bandwidth_text import render
    from ..results.bandwidth import read_bandwidth

    tables, problems = {}, []
    for path in paths:
        try:
            tables[str(path)] = read_bandwidth(path)
        except UserError as error:
            problems.append(error)
    if as_json:
        documents = {name: [asdict(table) for table in found] for name, found in tables.items()}
        # One table is the usual case.
        print_json({"logs": {n: d[0] if len(d) == 1 else d for n, d in documents.items()}})
    else:
        print(render(tables, screen()), end="")
    exit_with(problems, any(t.is_wrong for found in tables.values() for t in found))
