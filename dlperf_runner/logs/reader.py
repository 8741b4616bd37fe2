"""Cut a log into blocks of whole lines, in constant memory, without mpirun's tags. This module does
not know what a line means."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from .records import CUT, LineError

# mpirun -tag-output -timestamp-output: "Tue Jun 14 15:40:21 2022[1,0]<stdout>:", or only one of the
# two parts. Open MPI 5 names the job: "[prterun-node1-77@1,0]<stdout>: ". With unbuffered output,
# the tag can be in the middle of a line or after a number.
_TIME = rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}"
_RANK = rb"\[(?P<job>[^\[\]\s@]{0,200}+@)?\d{1,9},(?P<rank>\d{1,9})\]"
_TAG = re.compile(rb"(?:(?:%s)?%s|%s)<std(?:out|err|diag)>:(?(job) ?)" % (_TIME, _RANK, _TIME))
# The rest of a number that was wrapped: a line that begins like this, behind a tag or not.
_GOES_ON = re.compile(rb"(?:%s)?[\d.]" % _TAG.pattern)
LONGEST = 2**18  # bytes in a line; a line of interest has about 100, a printed namespace 2000


class Block(NamedTuple):
    """Lines of a log. `first` is the number of the first one. `numbers` are the numbers of all
    lines if they do not follow each other, `ranks` their ranks if mpirun's tags name them."""

    data: bytes
    first: int
    numbers: Sequence[int] = ()
    ranks: Sequence[int | None] = ()

    def line(self, at: int) -> int:
        """The number of the line at an offset."""
        before = self.data.count(b"\n", 0, at)
        return self.numbers[before] if self.numbers else self.first + before

    def of_rank(self, rank: int | None) -> Block:
        """The lines of a rank, and those without a rank; all if the rank is not known."""
        if rank is None or not self.ranks:
            return self
        lines = zip(self.data.split(b"\n"), self.numbers, self.ranks, strict=True)
        kept = [line for line in lines if line[2] in (None, rank)]
        texts, numbers, ranks = zip(*kept, strict=True) if kept else ((), (), ())
        return Block(b"\n".join(texts), self.first, numbers, ranks)

    def writers(self, offsets: Iterable[int]) -> Iterator[int | None]:
        """The rank that wrote the line of each offset; the offsets ascend."""
        line = before = 0
        for at in offsets:
            line, before = line + self.data.count(b"\n", before, at), at
            yield self.ranks[line]


def holds(data: bytes, marker: bytes) -> bool:
    """Whether the marker occurs. Python searches from the end more than twice as fast as from the
    beginning."""
    return data.rfind(marker) >= 0


def blocks(pieces: Iterable[bytes], markers: Sequence[bytes]) -> Iterator[Block]:
    """The lines of a log, which comes in pieces of any length. Of lines with mpirun's tags, only
    those with one of the markers. A longer line than LONGEST is divided between words.
    If a log ends without a newline, CUT is appended to its last line, because a number at the end
    of that line may be incomplete. Bytes that are not UTF-8 raise LineError.
    """
    data, first = b"", 1
    check = _Utf8()
    for piece in filter(None, pieces):
        # Only now, because most logs are a single block.
        if end := _end_of_block(data):
            yield _untagged(Block(data[:end], first), markers)
            first += data.count(b"\n", 0, end)
        check.next(piece)
        data = data[end:] + piece
    check.next(b"")
    if data:
        cut = b"" if data.endswith(b"\n") else CUT.encode()
        yield _untagged(Block(data + cut, first), markers)


def _end_of_block(data: bytes) -> int:
    """The beginning of the last whole line that is not the rest of a line before it: the piece to
    come may begin with the rest of that line. Of an endless line (such as a progress bar), the end
    of the last word."""
    start = end = data.rfind(b"\n") + 1
    is_long = len(data) - end > LONGEST
    while start and end - start <= LONGEST and not is_long:
        start = data.rfind(b"\n", 0, start - 1) + 1
        if not _GOES_ON.match(data, start):
            return start
    if end or not is_long:
        return end
    return data.rfind(b"\r") + 1 or data.rfind(b" ") + 1 or len(data)


class _Utf8:
    """Checks that pieces of bytes are UTF-8 together."""

    def __init__(self) -> None:
        self._newlines, self._last = 0, b""  # before the last piece, and that piece
        self._pending = b""  # the beginning of a character

    def next(self, piece: bytes) -> None:
        """Check the next piece; an empty one is the end."""
        if self._pending or not piece.isascii():
            data = self._pending + piece
            try:
                _, end = codecs.utf_8_decode(data, "strict", not piece)
            except UnicodeDecodeError as error:
                at = max(error.start - len(self._pending), 0)
                before = self._last.count(b"\n") + piece.count(b"\n", 0, at)
                raise LineError(
                    self._newlines + before + 1,
                    "the log is not valid UTF-8",
                    expected="text",
                    found=f"byte 0x{data[error.start]:02x}",
                ) from None
            self._pending = data[end:]
        if piece:
            self._newlines, self._last = self._newlines + self._last.count(b"\n"), piece


def _untagged(block: Block, markers: Sequence[bytes]) -> Block:
    """The block without mpirun's tags. A line that several ranks wrote becomes a line for each."""
    data = block.data
    start = data.find(b"<")  # a single byte is found faster
    if start < 0 or data.find(b"<std", start) < 0:
        return block
    wanted = re.compile(b"|".join(map(re.escape, markers))).search
    found = [
        (text, number, rank)
        for number, line in enumerate(data.split(b"\n"), block.first)
        if wanted(line) or _GOES_ON.match(line)
        for rank, text in _by_rank(line)
    ]
    texts, numbers, ranks = zip(*found, strict=True) if found else ((), (), ())
    return Block(b"\n".join(texts), block.first, numbers, ranks)


def _by_rank(line: bytes) -> Iterable[tuple[int | None, bytes]]:
    """The text of each rank that wrote a part of the line. The text before the first tag belongs
    to the rank of that tag, because the tag landed in the middle of that rank's output."""
    texts: dict[int | None, bytes] = {}
    rank, end, before = None, 0, line
    for tag in _TAG.finditer(line):
        piece, end = line[end : tag.start()], tag.end()
        if texts:
            texts[rank] += piece
        else:
            before = piece
        rank = int(tag["rank"]) if tag["rank"] else None
        texts.setdefault(rank, b"" if texts else before)
    texts[rank] = texts[rank] + line[end:] if texts else line
    return texts.items()
