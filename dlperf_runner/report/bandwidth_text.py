"""Tables of nccl-tests for a terminal: bandwidth by message size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.printable import printable
from ..logs.nccl_tests import NcclTests
from .tables import Column, cell
from .terminal import PIPE, Screen, table

_COLUMNS = (
    Column("bytes", True),
    Column("busbw (GB/s)", True),
    Column("in place", True),
    Column("time (us)", True),
    Column("in place", True),
    Column("wrong", True),
)


def render(logs: Mapping[str, Sequence[NcclTests]], screen: Screen = PIPE) -> str:
    """The tables of each log, and the average that its program printed below each."""
    lines: list[str] = []
    for name, found in ((name, found) for name, tables in logs.items() for found in tables):
        has_several = len({row.redop for row in found.rows}) > 1
        rows = [
            (
                cell(f"{row.size} {row.redop}" if has_several else row.size),
                cell(row.busbw, ".2f"),
                cell(row.in_place_busbw, ".2f"),
                cell(row.time_us, ".1f"),
                cell(row.in_place_time_us, ".1f"),
                cell(None if row.wrong is None else row.wrong + (row.in_place_wrong or 0)),
            )
            for row in found.rows
        ]
        of = f" ({found.collective})" if found.collective and len(logs[name]) > 1 else ""
        lines += [printable(name) + of, "", table(_COLUMNS, rows, screen)]
        lines += [f"Average over all sizes: {found.average_busbw:g} GB/s.", ""]
    return "\n".join(lines)
