"""Read a log compressed with gzip, up to a limit: a small file can expand to any size."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from ..core.errors import UserError
from ..core.files import open_gzip

MAGIC = b"\x1f\x8b"


def expanded(path: Path, size: int) -> Iterator[bytes]:
    """The expanded content of a file in pieces of this size. Raises UserError if the file is
    damaged or expands beyond the limit."""
    try:
        with open_gzip(path) as file:
            while piece := file.read(size):
                yield piece
    except (EOFError, OSError, zlib.error) as error:
        raise UserError(
            "the compressed log is damaged",
            where=str(path),
            expected="a complete file of gzip",
            found=str(error),
        ) from None
