"""Read a log compressed with gzip, up to a limit: a small file can expand to any size."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from ..core.errors import UserError

MAGIC = b"\x1f\x8b"
# Logs of training shrink to a tenth, very regular ones to a hundredth. gzip can reach a thousandth.
MOST_RATIO = 250
ALWAYS_ALLOWED = 64 * 2**20  # bytes


def expanded(path: Path, size: int) -> Iterator[bytes]:
    """The expanded content of a file in pieces of this size. Raises UserError if the file is
    damaged or expands beyond the limit."""
    left = limit = max(ALWAYS_ALLOWED, MOST_RATIO * path.stat().st_size)
    try:
        with gzip.open(path) as file:
            while piece := file.read(size):
                left -= len(piece)
                if left < 0:
                    raise UserError(
                        "the compressed log is suspiciously large",
                        where=str(path),
                        expected=f"at most {limit // 2**20} MiB when expanded",
                        found="more",
                        hint="if it is really a log, expand it with gunzip first",
                    )
                yield piece
    except (EOFError, OSError, zlib.error) as error:
        raise UserError(
            "the compressed log is damaged",
            where=str(path),
            expected="a complete file of gzip",
            found=str(error),
        ) from None
