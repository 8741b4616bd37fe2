"""Read a log of nccl-tests."""

from __future__ import annotations

from pathlib import Path

from ..logs.nccl_tests import NcclTests, read
from .log_file import LogFile


def read_bandwidth(path: Path) -> list[NcclTests]:
    """The tables of a log. Raises UserError if one is not whole."""
    log = LogFile(path)
    with log.errors():
        return read(log.pieces())
