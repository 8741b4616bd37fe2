"""Read a log compressed with gzip: streamed, and up to a limit, because a small file can expand to
any size."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from pathlib import Path

from ..core.errors import UserError

_MAGIC = b"\x1f\x8b"
# Logs of training shrink to a tenth, very regular ones to a hundredth. gzip can reach a thousandth.
MOST_RATIO = 250
ALWAYS_ALLOWED = 64 * 2**20  # bytes


def is_compressed(file: io.BufferedReader) -> bool:
    """Whether the file is one of gzip, whatever its name says."""
    return file.peek(len(_MAGIC))[: len(_MAGIC)] == _MAGIC


def expanded(path: Path, file: io.BufferedReader) -> io.BufferedReader:
    """The expanded content of the file. Reading raises UserError if the file is damaged or expands
    beyond the limit."""
    return io.BufferedReader(_Expanded(path, file))


class _Expanded(io.RawIOBase):
    def __init__(self, path: Path, file: io.BufferedReader) -> None:
        self._where = str(path)
        self._file = file
        self._gzip = gzip.GzipFile(fileobj=file)
        size = os.fstat(file.fileno()).st_size
        self._left = self._limit = max(ALWAYS_ALLOWED, MOST_RATIO * size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        try:
            size = self._gzip.readinto(buffer)
        except (EOFError, OSError, zlib.error) as error:
            raise UserError(
                "the compressed log is damaged",
                where=self._where,
                expected="a complete file of gzip",
                found=str(error),
            ) from None
        self._left -= size
        if self._left < 0:
            raise UserError(
                "the compressed log is suspiciously large",
                where=self._where,
                expected=f"at most {self._limit // 2**20} MiB when expanded",
                found="more",
                hint="if it is really a log, expand it with gunzip first",
            )
        return size

    def close(self) -> None:
        self._gzip.close()
        self._file.close()
        super().close()
