"""Find the lines of interest in the bytes of a log: fast, and in constant memory. This module does
not know what a line means."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from typing import Protocol

from .records import CUT, Line, LineError

CHUNK = 2**18  # fits into the cache of a core; every byte is read several times
# A line of interest has about 100 characters, a printed namespace about 2000. Of longer lines (such
# as a progress bar without a newline for hours) this much is kept before and after the marker.
CONTEXT = 2**14
# If lines of interest follow each other this closely, splitting all lines is faster.
_MANY = 8
_CLOSE = 2000  # bytes from one to the next, on average

_NEWLINE = ord("\n")


class Readable(Protocol):
    def readinto(self, buffer: memoryview, /) -> int | None: ...


class Candidates:
    """The lines of a log that contain one of the markers. Iterate only once.

    `head_markers` count only up to the first line with one of `markers`. A carriage return ends a
    line, as a newline does, but only newlines are counted, as in editors. `lines` is the number of
    lines read so far; at the end, that of all lines. Bytes that are not UTF-8 raise LineError. If
    a log ends without a newline, CUT is appended to its last line, because a number at the end of
    that line may be incomplete.
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
        # One buffer serves the whole log: the rest of the previous round, then the next chunk.
        buffer = bytearray(2 * self._context + self._chunk)
        view = memoryview(buffer)
        decoder = codecs.getincrementaldecoder("utf-8")()
        wanted = self._markers + self._head_markers
        size = 0
        done = 0  # buffer[:done] was searched; it stays as the context of an unfinished line
        floor = 0  # end of the last line of interest; everything before it was yielded
        newlines = 0  # number of newlines before buffer[done]
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
            # Up to `cut` the data are complete: whole lines, or enough of an endless line.
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
                    # From the line just found to the last whole line.
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
        """The lines of interest in `data`, which has whole lines and follows `newlines` newlines;
        None if splitting at newlines does not suffice."""
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
        """Start and end of the line with the marker at `at`, within `buffer[floor:size]`."""
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
    """Raise LineError if `piece` does not continue as UTF-8. `newlines` newlines and then the
    bytes `before` precede it."""
    data = bytes(piece)
    pending = decoder.getstate()[0]
    if data and data.isascii() and not pending:
        return
    try:
        decoder.decode(data, final=not data)
    except UnicodeDecodeError as error:
        # The decoder counts from the bytes that it kept from earlier pieces.
        at = error.start - len(pending)
        line = newlines + bytes(before).count(b"\n") + data[: max(at, 0)].count(b"\n") + 1
        raise LineError(
            line,
            "the log is not valid UTF-8",
            expected="text",
            found=f"byte 0x{(pending + data)[error.start]:02x}",
        ) from None
