"""The command `bandwidth`: shows the tables of nccl-tests."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import compress
from pathlib import Path
from types import MappingProxyType

from ..core.errors import UserError
from ..core.printable import printable
from ..logs.nccl_tests import Bandwidth, NcclTests, read
from ..options import exit_with, print_json, screen
from ..report.tables import Column, cell
from ..report.terminal import PIPE, Screen, View, table
from ..results.log_file import LogFile

ORDER = 230
HELP = "paths LOG...: Logs of nccl-tests."


def command(
    paths: list[Path],
    as_json: bool = False,
) -> None:
    """Show the bus bandwidth by message size from logs of nccl-tests. The exit status is 1 if
    results were wrong, and 2 if a log cannot be read or its table is incomplete.

    Example: dlperf bandwidth all_reduce.log"""
    if folder := next(filter(Path.is_dir, paths), None):
        raise UserError(
            "not a log",
            where=str(folder),
            expected="logs of nccl-tests",
            found="a directory",
            hint=f"dlperf summarize {shlex.quote(str(folder))} reads all logs below it",
        )
    tables = view(dict.fromkeys(paths))
    if as_json:
        print_json({"logs": tables.document})
    else:
        print(tables.render(screen()), end="")
    exit_with(tables.problems, tables.is_negative)


def view(files: Mapping[Path, Path | None], _: Mapping[Path, Path] = MappingProxyType({})) -> View:
    """The tables of logs, by path with the content of members of archives."""
    tables: dict[str, list[NcclTests]] = {}
    problems = []
    for path, content in files.items():
        try:
            tables[str(path)] = read_bandwidth(path, content)
        except UserError as error:
            problems.append(error)
    documents = {name: [asdict(each) for each in of_log] for name, of_log in tables.items()}
    # One table is the usual case.
    document = {name: d[0] if len(d) == 1 else d for name, d in documents.items()}
    is_wrong = any(each.is_wrong for of_log in tables.values() for each in of_log)
    return View("bandwidth", partial(render, tables), document, problems, is_wrong)


def read_bandwidth(path: Path, content: Path | None = None) -> list[NcclTests]:
    """The tables of a log. Raises UserError if one is not whole."""
    log = LogFile(path, content=content)
    with log.errors():
        return read(log.pieces())


def _wrong(row: Bandwidth) -> float | None:
    """The wrong results of both places; None if none was checked."""
    checked = [number for number in (row.wrong, row.in_place_wrong) if number is not None]
    return sum(checked) if checked else None


_COLUMNS = (
    Column("bytes", True),
    Column("busbw (GB/s)", True),
    Column("in place", True),
    Column("time (us)", True),
    Column("in place", True),
    Column("wrong", True),
)


def render(logs: Mapping[str, Sequence[NcclTests]], screen: Screen = PIPE) -> str:
    """The tables of each log, and the average that its program printed below each. A size is named
    with its type, operation or root if the table has several."""
    lines: list[str] = []
    for name, each in ((name, each) for name, tables in logs.items() for each in tables):
        differing = [len({*part}) > 1 for part in zip(*(r.kind for r in each.rows), strict=True)]
        rows = [
            (
                cell(" ".join(map(str, (row.size, *compress(row.kind, differing))))),
                cell(row.busbw, ".2f"),
                cell(row.in_place_busbw, ".2f"),
                cell(row.time_us, ".1f"),
                cell(row.in_place_time_us, ".1f"),
                cell(_wrong(row)),
            )
            for row in each.rows
        ]
        what = f" ({each.collective})" if each.collective and len(logs[name]) > 1 else ""
        lines += [printable(name + what), "", table(_COLUMNS, rows, screen)]
        lines += [f"Average over all sizes: {each.average_busbw:g} GB/s."]
        if (groups := len(each.groups)) > 1:
            lines += [f"Each rate is that of one of {groups} groups of ranks, all at once."]
        if each.settings:
            options = ", ".join(f"{name} {value}" for name, value in each.settings.items())
            lines += [f"Measured with {options}."]
        lines += ["The program found wrong results: FAILED."] * each.is_wrong + [""]
    return "\n".join(lines)
