"""A log on disk: a small one is read into memory, a large one is streamed. One that gzip compressed
is expanded; its digest is that of the expanded log."""

from __future__ import annotations

import io
import os
from functools import cached_property
from pathlib import Path

from .. import logs
from ..core.errors import UserError
from ..measure.by_line import located, nothing_found
from .compressed import expanded, is_compressed

# Of a larger log, only one chunk is in memory at any time.
SMALL = 8 * 2**20
_CHUNK = 2**20


class Log:
    """The log at a path, examined once. Raises UserError if the file cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_compressed = False

    @cached_property
    def data(self) -> bytes | None:
        """The whole log; None if it is large."""
        with self._file() as file:
            # One byte more than the size shows whether the file grew. A larger limit would make
            # read() allocate that much memory.
            size = SMALL if self.is_compressed else os.fstat(file.fileno()).st_size
            data = file.read(size + 1) if size <= SMALL else None
        return data if data is None or len(data) <= size else None

    @cached_property
    def form(self) -> logs.Format:
        """Its format. Raises UserError if the format is unknown or the file is not text."""
        if early := logs.detect_early(self.data[: logs.FIRST]) if self.data else None:
            return early
        try:
            with self.stream() as stream:
                form = logs.detect(stream)
        except logs.LineError as error:
            raise located(error, str(self.path)) from None
        if form is None:
            raise nothing_found(list(logs.formats().values()), str(self.path), self._lines())
        return form

    def stream(self) -> io.BufferedReader | io.BytesIO:
        """Its bytes from the beginning. The caller closes the stream."""
        return self._file() if self.data is None else io.BytesIO(self.data)

    def _file(self) -> io.BufferedReader:
        try:
            file = self.path.open("rb")
            self.is_compressed = is_compressed(file)
            return expanded(self.path, file) if self.is_compressed else file
        except OSError as error:
            raise UserError(
                "the log cannot be read", where=str(self.path), found=error.strerror or str(error)
            ) from None

    def _lines(self) -> int:
        lines, last = 0, b"\n"
        with self.stream() as stream:
            while chunk := stream.read(_CHUNK):
                lines += chunk.count(b"\n")
                last = chunk[-1:]
        return lines + (last != b"\n")
