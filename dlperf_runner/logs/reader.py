"""Cut a log into blocks of whole lines, in constant memory: as UTF-8, without colours, and without
what launchers write before each line, which names its rank. This module does not know what a line
means."""

from __future__ import annotations

import codecs
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, count, repeat
from typing import NamedTuple

from ..core.linear import finder
from .records import CUT

# mpirun -tag-output -timestamp-output: "Tue Jun 14 15:40:21 2022[1,0]<stdout>:", or only one of the
# two parts. Open MPI 5 names the job: "[prterun-node1-77@1,0]<stdout>: ". With unbuffered output,
# the tag can be in the middle of a line or after a number.
_TIME = rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}"
_RANK = rb"\[(?P<job>[^\[\]\s@]{0,200}+@)?\d{1,9},(?P<rank>\d{1,9})\]"
_TAG = re.compile(rb"(?:(?:%s)?%s|%s)<std(?:out|err|diag)>:(?(job) ?)" % (_TIME, _RANK, _TIME))
# Time stamps before a line: kubectl logs --timestamps, docker logs -t, and ts.
_STAMP = (
    rb"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?>(?:\.\d{1,9}+)?)(?:Z|[+-]\d\d:\d\d)"
    rb"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) "
)
# The writer of a line: "[rank0]:" of PyTorch; "[default7]:" and "[trainer0|3]:" of torchrun; the
# pod of kubectl logs --prefix; "[20251202 09:12:08][rank-0/8][INFO ] [---trainer.py:100] : " of
# AMD's Primus, "[20260929 19:48:42][rank-0/1][INFO]     " of its MaxText; " 3: " of srun --label;
# "(RayTrainWorker pid=4711, ip=10.0.0.2) " of Ray, "(worker1, rank=1, pid=4711, ip=10.0.0.2) " of
# SkyPilot; "trainer-1  | " of docker compose.
_WRITER = (
    rb"\[(?:rank ?(?P<torch>\d{1,9})|[a-z]\w{0,64}?(?P<role>\d{1,9}(?:\|\d{1,9})?))\]:"
    rb"(?>(?: (?! ))?)"
    rb"|\[\d{8} \d\d:\d\d:\d\d\]\[rank-(?P<primus>\d{1,9})/\d{1,9}\]"
    rb"(?:(?:\[[^\]]{1,200}\] ?){1,3}: |\[[A-Z]{1,16} {0,8}\] {1,5}+)"
    rb"|\[(?P<pod>pod/[^\]\s]{1,300}+)\] "
    rb"|\((?P<actor>[A-Za-z][^\s(),]{0,64}+(?>(?:\([^\s()]{0,64}+\))?)(?>(?:, rank=\d{1,6}+)?),? "
    rb"pid=\d{1,9}+(?>(?:, ip=[\w.:]{1,64}+)?))\) "
    rb"|(?P<service>(?!(?:epoch|step|iter|iteration|batch|phase|stage|train|val|eval|test)[-_])"
    rb"[a-z][\w.-]{0,64}?[-_]\d{1,4}) {1,40}\| "
    rb"| {0,8}+(?P<task>\d{1,7}): "
)
_LABEL = re.compile(rb"(?>(?:%s)?)(?:%s)|%s" % (_STAMP, _WRITER, _STAMP))
# The rest of a number that was wrapped: a line that begins like this, behind a label or not.
_GOES_ON = re.compile(
    rb"(?>(?:%s|%s)?)[\d.]" % (_TAG.pattern, re.sub(rb"\?P<\w+>", b"?:", _LABEL.pattern))
)
# Colours and other orders to a terminal.
_ESCAPES = re.compile(
    rb"\x1b(?:\[[0-?]{0,32}+[ -/]{0,4}+[@-~]|\][^\x07\x1b]{0,400}+(?:\x07|\x1b\\))"
)
_MARKS = (
    *((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le")),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# What stands for a byte that is not UTF-8.
REPLACED = "\ufffd".encode()
_FIRST = 2**12  # bytes, whose lines are hardly ever all of one of several ranks
_NEWLINE = b"\n"[0]
_MANY = 16  # markers
LONGEST = 2**18  # bytes in a line; a line of interest has about 100, a printed namespace 2000


class Block(NamedTuple):
    """Lines of a log. `first` is the number of the first one. `numbers` are the numbers of all
    lines if they do not follow each other, `ranks` their ranks if launchers name them. `labelled`
    are all lines with their labels, if the block has only some of them."""

    data: bytes
    first: int
    numbers: Sequence[int] = ()
    ranks: Sequence[str | None] = ()
    labelled: bytes | None = None

    @property
    def last(self) -> int:
        """The number of the last line of the log that is not empty, 0 if all in the block are."""
        text = (self.data if self.labelled is None else self.labelled).rstrip(b"\n")
        return self.first + text.count(b"\n") if text else 0

    def line(self, at: int) -> int:
        """The number of the line at an offset."""
        before = self.data.count(b"\n", 0, at)
        return self.numbers[before] if self.numbers else self.first + before

    def of_rank(self, rank: str | None) -> Block:
        """The lines of a rank, and those without a rank; all if the rank is not known."""
        if rank is None or {*self.ranks} <= {rank, None}:
            return self
        lines = zip(self.data.split(b"\n"), self.numbers, self.ranks, strict=True)
        kept = [line for line in lines if line[2] in (None, rank)]
        texts, numbers, ranks = zip(*kept, strict=True) if kept else ((), (), ())
        return Block(b"\n".join(texts), self.first, numbers, ranks, self.labelled)

    def writers(self, offsets: Iterable[int]) -> Iterator[str | None]:
        """The rank that wrote the line of each offset; the offsets ascend."""
        line = before = 0
        for at in offsets:
            line, before = line + self.data.count(b"\n", before, at), at
            yield self.ranks[line]


def holds(data: bytes, marker: bytes) -> bool:
    """True if the marker occurs. Python searches from the end more than twice as fast as from the
    beginning."""
    return data.rfind(marker) >= 0


_finder = functools.lru_cache(maxsize=16)(finder)


def present(data: bytes, markers: tuple[bytes, ...]) -> list[int]:
    """The indices of the markers that occur, in any order."""
    return _finder(markers)(data)


def blocks(pieces: Iterable[bytes], markers: Sequence[bytes]) -> Iterator[Block]:
    """The lines of a log, which comes in pieces of any length. Of lines with labels of launchers,
    only those with one of the markers. A longer line than LONGEST is divided between words.
    If a log ends without a newline, CUT is appended to its last line, because a number at the end
    of that line may be incomplete. A byte that is not UTF-8 becomes REPLACED.
    """
    data, first = b"", 1
    for piece in _as_utf8(pieces):
        # Only now, because most logs are a single block.
        if end := _end_of_block(data):
            yield _cleaned(data[:end], first, markers)
            first += data.count(b"\n", 0, end)
        data = data[end:] + piece
    if data:
        cut = b"" if data.endswith(b"\n") else CUT.encode()
        yield _cleaned(data + cut, first, markers)


def _as_utf8(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces of a log in UTF-8 or, with a byte order mark, in UTF-16."""
    rest = filter(None, pieces)
    start = next(rest, b"")
    while start and len(start) < len(codecs.BOM_UTF8) and (more := next(rest, b"")):
        start += more
    mark, coding = next((m for m in _MARKS if start.startswith(m[0])), (b"", "utf-8"))
    if coding == "utf-8":
        yield start[len(mark) :]
        yield from rest
        return
    decoder = codecs.getincrementaldecoder(coding)("replace")
    yield decoder.decode(start[len(mark) :]).encode()
    yield from (decoder.decode(piece).encode() for piece in rest)
    yield decoder.decode(b"", final=True).encode()


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
    return data.rfind(b"\r") + 1 or data.rfind(b" ") + 1 or _whole_characters(data)


def _whole_characters(data: bytes) -> int:
    """The end of the data, or the beginning of its last character of several bytes."""
    return next((len(data) - n for n in range(1, 5) if data[-n] >= 0xC0), len(data))


def _cleaned(data: bytes, first: int, markers: Sequence[bytes]) -> Block:
    """Lines as a block of text without colours, and without labels of launchers. A line that
    several ranks wrote becomes a line for each."""
    if not data.isascii() and not _is_utf8(data):
        data = data.decode("utf-8", "replace").encode()
    if block := _without_tag(data, first):
        return block
    if holds(data, b"\x1b") and not _has_tags(data):
        data = _ESCAPES.sub(b"", data)
    return _with_labels(data, first, markers) if _has_labels(data, markers) else Block(data, first)


def _without_tag(data: bytes, first: int) -> Block | None:
    """The lines without mpirun's tag, if it is the same before all of them: this is the fastest way
    to take it away."""
    tag = _TAG.match(data)
    if tag is None or tag["rank"] is None or tag["job"]:
        return None
    begin = b"\n" + tag[0]
    if data.count(begin, 0, _FIRST) < data.count(b"\n", 0, _FIRST) - 1:
        return None
    plain = data[len(tag[0]) :].replace(begin, b"\n")
    newlines = _newlines(plain)
    tagged = newlines + (data[-1:] != b"\n")
    if len(data) - len(plain) != len(tag[0]) * tagged or _has_tags(plain):
        return None
    numbers, ranks = range(first, first + newlines + 1), [tag["rank"].decode()] * (newlines + 1)
    return Block(_without_escapes(plain), first, numbers, ranks)


def _newlines(data: bytes) -> int:
    """The number of lines. NumPy counts a byte that is frequent six times as fast, in long data."""
    if len(data) < _FIRST:
        return data.count(b"\n")
    from ..core.arrays import np

    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == _NEWLINE))


def _with_labels(data: bytes, first: int, markers: Sequence[bytes]) -> Block:
    """The lines with one of the markers, without the labels before them."""
    lines = data.split(b"\n")
    rows = [
        (text, first + index, rank)
        for index in _with_marker(data, lines, markers)
        for rank, text in _by_rank(lines[index])
    ]
    texts, numbers, ranks = zip(*rows, strict=True) if rows else ((), (), ())
    if holds(data, b"\x1b"):
        texts = tuple(map(_without_escapes, texts))
    return Block(b"\n".join(texts), first, numbers, ranks, data)


def _without_escapes(data: bytes) -> bytes:
    return _ESCAPES.sub(b"", data) if holds(data, b"\x1b") else data


def _is_utf8(data: bytes) -> bool:
    try:
        codecs.utf_8_decode(data, "strict", True)
    except UnicodeDecodeError:
        return False
    return True


def _has_tags(data: bytes) -> bool:
    """True if mpirun's tags are in the lines, and so may be in the middle of anything."""
    start = data.find(b"<")  # a single byte is found faster
    return start >= 0 and data.find(b"<std", start) >= 0


def _has_labels(data: bytes, markers: Sequence[bytes]) -> bool:
    """True if launchers wrote before the lines: the last line with the first marker that occurs
    tells."""
    if _has_tags(data):
        return True
    if len(markers) > _MANY:
        markers = [markers[index] for index in sorted(present(data, tuple(markers)))]
    places = (data.rfind(marker) for marker in filter(None, markers))
    at = next((at for at in places if at >= 0), None)
    return at is not None and _LABEL.match(data, _start_of_line(data, at)) is not None


def _start_of_line(data: bytes, at: int) -> int:
    return data.rfind(b"\n", 0, at) + 1


def _with_marker(data: bytes, lines: Sequence[bytes], markers: Sequence[bytes]) -> list[int]:
    """The indices of the lines with a marker, and of lines on which their last numbers go on."""
    indices: set[int] = set()
    for marker in {marker for marker in markers if holds(data, marker)}:
        indices.update(compress(count(), map(bytes.count, lines, repeat(marker))))
    after = [n + 1 for n in indices if n + 1 < len(lines)]
    return sorted(indices.union(compress(after, map(_GOES_ON.match, [lines[n] for n in after]))))


@functools.lru_cache(maxsize=128)  # without times, a log has a tag for each rank
def _tag(head: bytes) -> tuple[str | None, bytes] | None:
    """The rank of a tag of mpirun, and what may follow the tag; None if it is no tag."""
    tag = _TAG.fullmatch(head + b">:")
    if tag is None:
        return None
    return tag["rank"].decode() if tag["rank"] else None, b" " if tag["job"] else b""


def _by_rank(line: bytes) -> Iterable[tuple[str | None, bytes]]:
    """The text of each rank that wrote a part of the line. The text before the first tag belongs
    to the rank of that tag, because the tag landed in the middle of that rank's output."""
    head, end_of_tag, text = line.partition(b">:")
    if end_of_tag and (only := _tag(head)) and text.find(b"<std") < 0:
        return ((only[0], text.removeprefix(only[1])),)
    if line.find(b"<std") < 0:
        label = _LABEL.match(line)
        names = (
            label.group("torch", "role", "primus", "pod", "task", "actor", "service")
            if label
            else ()
        )
        name = next(filter(None, names), None)
        return [(name and name.decode("utf-8", "replace"), line[label.end() if label else 0 :])]
    texts: dict[str | None, bytes] = {}
    rank, end, before = None, 0, line
    for tag in _TAG.finditer(line):
        piece, end = line[end : tag.start()], tag.end()
        if texts:
            texts[rank] += piece
        else:
            before = piece
        rank = tag["rank"].decode() if tag["rank"] else None
        texts.setdefault(rank, b"" if texts else before)
    texts[rank] = texts[rank] + line[end:] if texts else line
    return texts.items()
