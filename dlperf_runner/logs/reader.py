"""From the bytes of a log to its lines of interest: fast, in memory that the log's size does not
change. Nothing here knows what a line means."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from typing import Protocol

from .records import Line, LineError

CHUNK = 2**20
# A line of interest has about a hundred characters, a printed namespace two thousand. Of longer
# ones (a progress bar that writes no newline for hours) this much is kept before and behind.
CONTEXT = 2**14


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Candidates:
    """The lines of a log that have one of the markers; made once, iterated once.

    `head_markers` count only up to the first line that has one of `markers`. A carriage return
    ends a line as well as a newline does, but only newlines are counted: that is what editors
    show. `lines` is the number of lines read so far, and of all lines at the end. Bytes that are
    not UTF-8 raise LineError.
    """

    def __init__(
        self,
        stream: Readable,
        markers: Sequence[str],
        head_markers: Sequence[str] = (),
        *,
        chunk: int = CHUNK,
        context: int = CONTEXT,
    ) -> None:
        self._stream = stream
        self._markers = tuple(markers)
        self._head_markers = tuple(head_markers)
        self._chunk = chunk
        self._context = max(context, *(len(m) for m in (*markers, *head_markers)))
        self.lines = 0

    def __iter__(self) -> Iterator[Line]:
        decoder = codecs.getincrementaldecoder("utf-8")()
        wanted = self._markers + self._head_markers
        text = ""
        done = 0  # text[:done] is searched, and kept as context of an unfinished line
        floor = 0  # where the last line of interest ended; what stands before it was given away
        newlines = 0  # before text[done]
        more = True
        while more:
            data = self._stream.read(self._chunk)
            more = bool(data)
            pending = decoder.getstate()[0]
            try:
                piece = decoder.decode(data, final=not more)
            except UnicodeDecodeError as error:
                line = newlines + text.count("\n", done) + 1
                raise _not_text(line, pending + data, error.start) from None
            behind = max(0, done - self._context)
            text, done, floor = text[behind:] + piece, done - behind, max(0, floor - behind)
            # Up to `cut` everything is known: whole lines, or enough of a line without end.
            cut = len(text)
            if more:
                cut = max(text.rfind("\n", done) + 1, cut - self._context, done)
            never, has_returns = len(text), "\r" in text
            following = [_find(text, marker, done, never) for marker in wanted]
            while (at := min(following)) < cut:
                start, end = self._around(text, floor, at, has_returns)
                newlines += text.count("\n", done, at)
                done = floor = end
                self.lines = newlines
                line_text = text[start:end]
                yield newlines + 1, line_text
                if wanted is not self._markers and any(m in line_text for m in self._markers):
                    wanted = self._markers
                    following = following[: len(wanted)]
                for index, found in enumerate(following):
                    if found < done:
                        following[index] = _find(text, wanted[index], done, never)
            if done < cut:
                newlines += text.count("\n", done, cut)
                done = cut
        self.lines = newlines + (1 if text and not text.endswith("\n") else 0)

    def _around(self, text: str, floor: int, at: int, has_returns: bool) -> tuple[int, int]:
        """Where the line of the marker at `at` begins and ends, in `text[floor:]`."""
        low, high = max(floor, at - self._context), min(len(text), at + self._context)
        start = text.rfind("\n", low, at) + 1 or low
        end = text.find("\n", at, high)
        if end < 0:
            end = high
        if has_returns:
            start = text.rfind("\r", start, at) + 1 or start
            carriage_return = text.find("\r", at, end)
            end = end if carriage_return < 0 else carriage_return
        return start, end


def _find(text: str, marker: str, start: int, never: int) -> int:
    at = text.find(marker, start)
    return at if at >= 0 else never


def _not_text(line: int, data: bytes, at: int) -> LineError:
    return LineError(
        line + data.count(b"\n", 0, at),
        "this is not UTF-8",
        expected="text",
        found=f"byte 0x{data[at]:02x}",
    )
