"""The command `bandwidth`: shows the tables of nccl-tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ..core.printable import printable
from ..logs.nccl_tests import NcclTests, read
from ..options import AsJson, exit_with, print_json, screen
from ..report.tables import Column, cell
from ..report.terminal import PIPE, Screen, table
from ..results.log_file import LogFile

ORDER = 230


def command(
    paths: Annotated[list[Path], typer.Argument(help="Logs of nccl-tests.", metavar="LOG...")],
    as_json: AsJson = False,
) -> None:
    """Show the bus bandwidth by message size from logs of nccl-tests. The exit status is 1 if
    results were wrong, and 2 if a log cannot be read or its table is incomplete."""
    from ..core.errors import UserError

    tables, problems = {}, []
    for path in paths:
        try:
            tables[str(path)] = read_bandwidth(path)
        except UserError as error:
            problems.append(error)
    if as_json:
        print_json({"logs": {name: asdict(table) for name, table in tables.items()}})
    else:
        print(render(tables, screen()), end="")
    exit_with(problems, any(table.is_wrong for table in tables.values()))


def read_bandwidth(path: Path) -> NcclTests:
    """The table of a log. Raises UserError if it is not whole."""
    log = LogFile(path)
    with log.errors():
        return read(log.pieces())


_COLUMNS = (
    Column("bytes", True),
    Column("busbw (GB/s)", True),
    Column("in place", True),
    Column("time (us)", True),
    Column("in place", True),
    Column("wrong", True),
)


def render(tables: Mapping[str, NcclTests], screen: Screen = PIPE) -> str:
    """A table for each log, and the average that its program printed."""
    lines: list[str] = []
    for name, found in tables.items():
        rows = [
            (
                cell(row.size),
                cell(row.busbw, ".2f"),
                cell(row.in_place_busbw, ".2f"),
                cell(row.time_us, ".1f"),
                cell(row.in_place_time_us, ".1f"),
                cell(None if row.wrong is None else row.wrong + (row.in_place_wrong or 0)),
            )
            for row in found.rows
        ]
        lines += [printable(name), "", table(_COLUMNS, rows, screen)]
        lines += [f"Average over all sizes: {found.average_busbw:g} GB/s.", ""]
    return "\n".join(lines)
