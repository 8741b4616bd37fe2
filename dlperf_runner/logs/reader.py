"""From the bytes of a log to its lines of interest: fast, in memory that the log's size does not
change. Nothing here knows what a line means."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from typing import Protocol

from .records import CUT, Line, LineError

CHUNK = 2**18  # fits into the cache of a core; every byte is looked at several times
# A line of interest has about a hundred characters, a printed namespace two thousand. Of longer
# ones (a progress bar that writes no newline for hours) this much is kept before and behind.
CONTEXT = 2**14
# Lines of interest that follow each other this closely are found faster by splitting all lines.
_MANY = 8
_CLOSE = 2000  # bytes from one to the next, on average

_NEWLINE = ord("\n")


class Readable(Protocol):
    def readinto(self, buffer: memoryview, /) -> int | None: ...


class Candidates:
    """The lines of a log that have one of the markers; made once, iterated once.

    `head_markers` count only up to the first line that has one of `markers`. A carriage return
    ends a line as well as a newline does, but only newlines are counted: that is what editors
    show. `lines` is the number of lines read so far, and of all lines at the end. Bytes that are
    not UTF-8 raise LineError. Where a log ends without a newline, CUT stands behind its last line:
    a number at the end of that may be the beginning of another.
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
        self._markers = tuple(marker.encode() for marker in markers)
        self._head_markers = tuple(marker.encode() for marker in head_markers)
        self._chunk = chunk
        self._context = max(context, *map(len, self._markers + self._head_markers))
        self.lines = 0

    def __iter__(self) -> Iterator[Line]:
        # One buffer for the whole log: what is left of the last round, then the next chunk.
        buffer = bytearray(2 * self._context + self._chunk)
        view = memoryview(buffer)
        decoder = codecs.getincrementaldecoder("utf-8")()
        wanted = self._markers + self._head_markers
        size = 0
        done = 0  # buffer[:done] is searched, and kept as context of an unfinished line
        floor = 0  # where the last line of interest ended; what stands before it was given away
        newlines = 0  # before buffer[done]
        more = True
        while more:
            behind = max(0, done - self._context)
            buffer[: size - behind] = buffer[behind:size]
            size, done, floor = size - behind, done - behind, max(0, floor - behind)
            piece = view[
                size : size + (self._stream.readinto(view[size : size + self._chunk]) or 0)
            ]
            more = len(piece) > 0
            _check_text(decoder, piece, newlines, view[done:size])
            size += len(piece)
            # Up to `cut` everything is known: whole lines, or enough of a line without end.
            cut = size
            if more:
                cut = max(buffer.rfind(b"\n", done, size) + 1, size - self._context, done)
            has_returns = buffer.find(b"\r", floor, size) >= 0
            following = [_find(buffer, marker, done, size) for marker in wanted]
            seen, since = 0, done
            while (at := min(following)) < cut:
                start, end = self._around(buffer, floor, at, size, has_returns)
                newlines += buffer.count(b"\n", done, at)
                done = floor = end
                self.lines = newlines
                line = bytes(view[start:end])
                is_cut = end == size and not more
                yield newlines + 1, line.decode("utf-8", "replace") + (CUT if is_cut else "")
                if wanted is not self._markers and any(m in line for m in self._markers):
                    wanted = self._markers
                    following = following[: len(wanted)]
                seen += 1
                if seen == _MANY:
                    # Behind the line just found, up to the last whole line.
                    if wanted is self._markers and done - since < _MANY * _CLOSE:
                        whole = cut if buffer[cut - 1] == _NEWLINE else done
                        found_lines = self._split(view[done:whole], newlines, has_returns)
                        if found_lines is not None:
                            for number, text in found_lines:
                                self.lines = number - 1
                                yield number, text
                            newlines += buffer.count(b"\n", done, whole)
                            done = floor = max(whole, done)
                            following = [_find(buffer, m, done, size) for m in wanted]
                    seen, since = 0, done
                for index, found in enumerate(following):
                    if found < done:
                        following[index] = _find(buffer, wanted[index], done, size)
            if done < cut:
                newlines += buffer.count(b"\n", done, cut)
                done = cut
        self.lines = newlines + (1 if size and buffer[size - 1 : size] != b"\n" else 0)

    def _split(self, data: memoryview, newlines: int, has_returns: bool) -> list[Line] | None:
        """The lines of interest of whole lines, after so many newlines; None where they cannot
        simply be split."""
        if has_returns or not data:
            return None
        lines = enumerate(str(data, "utf-8", "replace").split("\n"), newlines + 1)
        texts = [marker.decode() for marker in self._markers]
        if len(texts) == 1:
            (only,) = texts
            found = [line for line in lines if only in line[1]]
        else:
            found = [line for line in lines if any(text in line[1] for text in texts)]
        return None if any(len(text) > self._context for _, text in found) else found

    def _around(
        self, buffer: bytearray, floor: int, at: int, size: int, has_returns: bool
    ) -> tuple[int, int]:
        """Where the line of the marker at `at` begins and ends, in `buffer[floor:size]`."""
        low, high = max(floor, at - self._context), min(size, at + self._context)
        start = buffer.rfind(b"\n", low, at) + 1 or low
        end = buffer.find(b"\n", at, high)
        if end < 0:
            end = high
        if has_returns:
            start = buffer.rfind(b"\r", start, at) + 1 or start
            carriage_return = buffer.find(b"\r", at, end)
            end = end if carriage_return < 0 else carriage_return
        return start, end


def _find(buffer: bytearray, marker: bytes, start: int, never: int) -> int:
    at = buffer.find(marker, start, never)
    return at if at >= 0 else never


def _check_text(
    decoder: codecs.IncrementalDecoder, piece: memoryview, newlines: int, before: memoryview
) -> None:
    """Raise LineError unless `piece` goes on as UTF-8; `newlines` and then `before` precede it."""
    data = bytes(piece)
    pending = decoder.getstate()[0]
    if data and data.isascii() and not pending:
        return
    try:
        decoder.decode(data, final=not data)
    except UnicodeDecodeError as error:
        # The decoder counts from the bytes that it kept of the pieces before.
        at = error.start - len(pending)
        line = newlines + bytes(before).count(b"\n") + data[: max(at, 0)].count(b"\n") + 1
        raise LineError(
            line,
            "this is not UTF-8",
            expected="text",
            found=f"byte 0x{(pending + data)[error.start]:02x}",
        ) from None
