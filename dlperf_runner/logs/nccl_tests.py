"""nccl-tests (all_reduce_perf and the others): a table of message sizes.

    # Collective test starting: all_reduce_perf
    # nThread 1 nGpus 1 minBytes 1073741824 maxBytes 17179869184 step: 2(factor) warmup iters: 5 ...
    #       size         count      type   redop    root     time   algbw   busbw #wrong     time ..
      1073741824     268435456     float     sum      -1   4470.5  240.18  450.34      0   4471.2 ..
    # Out of bounds values : 0 OK
    # Avg bus bandwidth    : 443.007

The first four numbers behind the root are of out-of-place operations, the others of in-place ones.
busbw, in GB/s (1e9 bytes), is comparable between numbers of ranks. #wrong is N/A without a check.
The average is over all sizes, so it depends on the chosen sizes.

As the log of a run, the table is one rate: the bus bandwidth of the largest size, out of place,
over all iterations. Those that warm up do not count as steps.

Source: NVIDIA/nccl-tests a0b82b2, src/common.cu and src/util.cu, and doc/PERFORMANCE.md on busbw.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .reader import Block, blocks, holds
from .records import Columns, Format, Header, LineError

_BLANKS = rb" {1,40}+"
_NUMBER = rb"\d{1,32}+(?:\.\d{1,32}+)?+(?:e[+-]\d{1,3}+)?+"
_HALF = rb"(?:%s%s){3}%s(?:\d{1,18}+|N/A)" % (_BLANKS, _NUMBER, _BLANKS)
# Behind the size: the number of elements, the type, the operation and the root.
_KIND = (
    rb"%(b)s(?P<count>\d{1,18}+)%(b)s(?P<type>[a-z][\w-]{0,32}+)"
    rb"(?:%(b)s(?P<redop>[a-z]\w{0,32}+))?(?:%(b)s-?\d{1,9}+)?" % {b"b": _BLANKS}
)
_ROW = re.compile(
    rb"^ {0,40}+(?P<size>\d{1,18}+)%s(?P<numbers>(?:%s){2}) {0,40}+\r?$" % (_KIND, _HALF),
    re.MULTILINE,
)
_SIZES = re.compile(
    rb"minBytes (\d{1,18}) maxBytes (\d{1,18}) step: (\d{1,18})\((factor|bytes)\)"
    rb"(?: warmup iters: \d{1,9}+ iters: (\d{1,9}) )?"
)
_RANK = re.compile(
    rb"^#%(b)sRank%(b)s(\d{1,9}+) (?>.{0,200}? on%(b)s)(\S{1,255}+) device " % {b"b": _BLANKS},
    re.MULTILINE,
)
_PROGRAM = re.compile(rb"# Collective test starting: (?:\S{0,255}/)?+([a-z_]{1,64}?)_perf")
_AVERAGE = re.compile(rb"# Avg bus bandwidth%s: (%s) {0,40}+(?=[\r\n]|\Z)" % (_BLANKS, _NUMBER))
_FAILED = re.compile(rb"# Out of bounds values : \d{1,18}+ FAILED")
_MARKERS = [
    *(b"Bytes ", b"bandwidth", b"Out of", b" Rank ", b"starting: "),
    *(b"float", b"int", b"half", b"double", b"f8"),
]
_REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce")
_WITHOUT_REDUCTION = ("all_gather", "alltoall", "broadcast", "gather", "scatter", "sendrecv")
_PRECISIONS = {"float": "fp32", "half": "fp16", "bfloat16": "bf16", "double": "fp64"}


@dataclass(frozen=True)
class Bandwidth:
    """A message size in bytes; time in us, algorithm and bus bandwidth in GB/s, out of place and in
    place. `wrong` is None if the results were not checked."""

    size: int
    time_us: float
    algbw: float
    busbw: float
    in_place_time_us: float
    in_place_algbw: float
    in_place_busbw: float
    wrong: int | None
    in_place_wrong: int | None


@dataclass
class NcclTests:
    """The rows in the order of the log, and the average that the program prints at its end.
    `largest` and `iterations` are as its head states them, `collective` is that of its name
    (all_reduce), which older versions do not print, `redop` the operation of a reduction (sum, or
    none), `datatype` that of the elements."""

    rows: list[Bandwidth] = field(default_factory=list)
    sizes: int | None = None
    largest: int | None = None
    iterations: int | None = None
    ranks: int = 0
    hosts: tuple[str, ...] = ()
    collective: str | None = None
    datatype: str | None = None
    redop: str | None = None
    average_busbw: float | None = None
    is_wrong: bool = False


def read(pieces: Iterable[bytes]) -> NcclTests:
    """The content of a log, which comes in pieces of any length. Raises LineError if the table is
    not whole."""
    found, last = NcclTests(), 1
    for block in blocks(pieces, _MARKERS):
        found.rows += _rows(block)
        if content := block.data.rstrip(b"\n"):
            last = block.line(len(content))
        if holds(block.data, b" Rank "):
            devices = _RANK.findall(block.data)
            found.ranks += len(dict(devices))
            hosts = (host.decode("utf-8", "replace") for _, host in devices)
            found.hosts = tuple(dict.fromkeys((*found.hosts, *hosts)))
        if holds(block.data, b"starting: ") and (program := _PROGRAM.search(block.data)):
            found.collective = program[1].decode()
        if not found.datatype and (row := _ROW.search(block.data)):
            found.datatype = row["type"].decode()
            found.redop = row["redop"].decode() if row["redop"] else None
        if sizes := _SIZES.search(block.data):
            least, most, step = (int(sizes[n]) for n in (1, 2, 3))
            found.sizes = _number_of_sizes(least, most, step, sizes[4])
            found.largest, found.iterations = most, int(sizes[5]) if sizes[5] else None
        if average := _AVERAGE.search(block.data):
            found.average_busbw = float(average[1])
        found.is_wrong = found.is_wrong or _FAILED.search(block.data) is not None
    if found.sizes not in (None, len(found.rows)):
        problem = "lines of the table are missing or damaged"
        raise LineError(last, problem, expected=f"{found.sizes} sizes", found=str(len(found.rows)))
    if not found.rows or found.average_busbw is None:
        problem, expected = "the log has no whole table of nccl-tests", "# Avg bus bandwidth"
        raise LineError(last, problem, expected=expected, found=f"{len(found.rows)} sizes")
    return found


def _number_of_sizes(least: int, most: int, step: int, kind: bytes) -> int | None:
    """How many sizes there are from the least to the most."""
    if step < 1 or (kind == b"factor" and step < 2) or least < 1:
        return None
    if kind == b"bytes":
        return (most - least) // step + 1
    number = 0
    while least <= most:
        number, least = number + 1, least * step
    return number


def _rows(block: Block) -> Iterator[Bandwidth]:
    for row in _ROW.finditer(block.data):
        size, elements, numbers = row["size"], row["count"], row["numbers"]
        if int(elements) and int(size) % int(elements):
            continue  # the beginning of the line is lost
        texts = numbers.split()
        counts = [None if text == b"N/A" else int(text) for text in (texts.pop(3), texts.pop())]
        time, alg, bus, in_time, in_alg, in_bus = map(float, texts)
        yield Bandwidth(int(size), time, alg, bus, in_time, in_alg, in_bus, *counts)


def as_run(pieces: Iterable[bytes]) -> tuple[list[Header], Columns]:
    """The table as the log of a run. Raises LineError if it is not whole, or if results were
    wrong."""
    found = read(pieces)
    if found.is_wrong:
        problem = "the results of the collective operation are wrong"
        raise LineError(1, problem, expected="0 in each column #wrong", found="FAILED")
    busbw = found.rows[-1].busbw
    if not busbw:
        problem = "the bus bandwidth of the largest size is 0"
        raise LineError(1, problem, expected="at least two ranks", found=str(found.ranks))
    steps = found.iterations or 1
    header = Header(
        1,
        world_size=found.ranks or None,
        nodes=len(found.hosts) or None,
        precision=_PRECISIONS.get(found.datatype or "", found.datatype),
        total_steps=found.iterations,
        log_every=steps,
        network=found.collective or _candidates(found.redop),
        parameters=(("message_bytes", str(found.largest)),) if found.largest else (),
    )
    return [header], Columns([steps], [busbw], [None], [None])


def _candidates(redop: str | None) -> str | None:
    """The operations that a table of this column can be of, where nothing names the program."""
    if redop is None:
        return None
    return "|".join(_WITHOUT_REDUCTION if redop == "none" else _REDUCTIONS)


FORMAT = Format(
    name="nccl_tests",
    sample="  17179869184    4294967296     float     sum      -1    62871   273.26   478.20 ...",
    marker=b"  ",
    entry=re.compile(
        rb"^ {0,40}+(?P<step>\d{1,18}+)%(kind)s(?:%(b)s%(n)s){2}%(b)s(?P<rate>%(n)s)"
        rb"%(b)s(?:\d{1,18}+|N/A)%(half)s {0,40}+\r?$"
        % {b"kind": _KIND, b"b": _BLANKS, b"n": _NUMBER, b"half": _HALF},
        re.MULTILINE,
    ),
    rate=_NUMBER,
    statements=(),
    is_fp32=True,
    table=as_run,
)
