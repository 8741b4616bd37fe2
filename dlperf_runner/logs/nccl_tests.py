"""nccl-tests (all_reduce_perf and the others): a table of message sizes.

    # Collective test starting: all_reduce_perf
    # nThread 1 nGpus 1 minBytes 1073741824 maxBytes 17179869184 step: 2(factor) warmup iters: 5 ...
    #       size         count      type   redop    root     time   algbw   busbw #wrong     time ..
      1073741824     268435456     float     sum      -1   4470.5  240.18  450.34      0   4471.2 ..
    # Out of bounds values : 0 OK
    # Avg bus bandwidth    : 443.007

The heading names the columns; versions and options add some: `algo`, `proto`, a time stamp, times
of single iterations. Versions before 2022 print an `error` in the place of #wrong, and those before
2.17 no name of the program.

The first numbers are of out-of-place operations, the others of in-place ones. busbw, in GB/s (1e9
bytes), is comparable between numbers of ranks. #wrong is N/A without a check.

With `-o all`, `-d
all` and `-r all`, each size has a row for each operation, type and root; such a table is no run.
The average is over all sizes, so it depends on the chosen sizes.

With `-O 0`, rccl-tests print the columns of in-place operations only; the line above the heading
says so. With several cycles (`-N`, or `-s` of older rccl-tests), the sizes begin again. Until 2022,
rccl-tests wrote `nThread: 1 minBytes: 8`, and an asterisk behind an error that is too large.

With `-J FILE`, the same is in one JSON object, whose devices are all, or one of each process.
Until February 2026, its average is called average_bus_bandwidith.

As the log of a run, the table is one rate a cycle: the bus bandwidth of the largest size, out of
place if it was measured, over all iterations. Those that warm up do not count as steps.

Source: NVIDIA/nccl-tests a0b82b2, src/common.cu and src/util.cu, and doc/PERFORMANCE.md on busbw;
ROCm/rccl-tests 6405c76 and ae3e635; ROCm/rocm-systems 032d8f6, projects/rccl-tests.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter
from pathlib import PurePath
from typing import Any

from .reader import Block, blocks
from .records import CUT, Columns, Expression, Format, Header, LineError, StepTable

_BLANKS = rb" {1,40}+"
_NUMBER = rb"\d{1,32}+(?>(?:\.\d{1,32}+)?)(?>(?:e[+-]\d{1,3}+)?)"
_IS_NUMBER = re.compile(_NUMBER)
_IS_ROOT = re.compile(rb"-?\d{1,9}")
_IS_OPERATION = re.compile(rb"[a-z]\w{0,32}")
_IS_WRONG = re.compile(rb"%s\*?|N/A" % _NUMBER)
# Behind the size: the number of elements, the type, the operation and the root.
_KIND = (
    rb"%(b)s(?P<count>\d{1,18}+)%(b)s(?P<type>[a-z][\w-]{0,32}+)"
    rb"(?:%(b)s(?P<redop>[a-z]\w{0,32}+))?(?:%(b)s-?\d{1,9}+)?" % {b"b": _BLANKS}
)
# Anything may stand before a line: what launchers and services write is not always known.
_ROW = re.compile(rb"(?<!\S)\d{1,18}+%s%s[\d.]" % (_KIND, _BLANKS))
_PLACE = re.compile(rb"# {1,200}+(out-of-place|in-place)")
_HEADING = re.compile(rb"# {1,40}+size {1,40}+count {1,40}+(?:type|time) {1,40}+[^\r\n]{0,400}")
_SIZES = re.compile(
    rb"minBytes:? (\d{1,18}) maxBytes:? (\d{1,18}) step: (\d{1,18})\((factor|bytes)\)"
    rb"(?: warmup(?: i|I)ters: \d{1,9}+ iters: (\d{1,9}) )?"
    rb"(?:agg iters: (\d{1,9}+) validation: \d{1,9}+ graph: (\d{1,9}+))?"
)
_LESS = re.compile(rb"# Reducing maxBytes to (\d{1,18}) due to memory")
_RANK = re.compile(
    rb"#%(b)sRank%(b)s(\d{1,9}+)%(b)s(?>(?:Group%(b)s(\d{1,9}+) )?)"
    rb"(?>.{0,200}? on%(b)s)(\S{1,255}+) device " % {b"b": _BLANKS}
)
_PROGRAM = re.compile(rb"# Collective test starting: (?>(?:\S{0,255}/)?)([a-z_]{1,64}?)_perf")
_AVERAGE = re.compile(
    rb"# Avg bus bandwidth%s: (%s)(?: (?:OK|FAILED))? {0,40}+(?=[\r\n]|\Z)" % (_BLANKS, _NUMBER)
)
_BLOCKING = re.compile(rb"# Blocking Enabled:")
_FAILED = re.compile(rb"# (?:Out of bounds values|Bitwise mismatches) {1,8}: \d{1,18}+ FAILED")
FAILURE = re.compile(rb"Test (?:NCCL|CUDA) failure [^\r\n]{1,200}")
# What the lines of a table begin with, or have in them.
_PARTS = re.compile(
    b"|".join(
        rb"(?P<%s>%s)" % (name, re.sub(rb"\?P<\w+>", b"?:", pattern.pattern))
        for name, pattern in (
            *((b"program", _PROGRAM), (b"sizes", _SIZES), (b"less", _LESS), (b"rank", _RANK)),
            *((b"blocking", _BLOCKING), (b"place", _PLACE), (b"heading", _HEADING), (b"row", _ROW)),
            *((b"failed", _FAILED), (b"average", _AVERAGE), (b"failure", FAILURE)),
        )
    )
)
# With NCCL_DEBUG=INFO, lines of NCCL land in the middle of a row: those of other ranks, which share
# the file, or of algorithms that connect late. A name before them that begins with a digit would be
# a part of the number.
_NOTICE = rb"[\w.-]{0,254}+:\d{1,9}+:\d{1,9}+ \[\d{1,4}+\] NCCL (?>INFO|WARN) [^\n]{0,500}+\n"
_NOTICES = re.compile(rb"(?m)(?>(?P<apart>^)\w|[A-Za-z])%s(?>(?:\w%s){0,300})" % (_NOTICE, _NOTICE))
_JSON = b'"average_bus_bandwid'
_BEGINS_JSON, _HEAD = re.compile(rb'\s{0,8}\{"(?:version|start_time)":'), 4096
_MARKERS = [
    *(
        b"Bytes",
        b"Blocking ",
        b"bandwidth",
        b"Out of",
        b"Bitwise ",
        b" Rank ",
        b"starting: ",
        b" count ",
        b"-place",
    ),
    *(b" failure ", _JSON),
    *(b"float", b"int", b"half", b"double", b"f8"),
]
HINT_OF_FAILURE = "NCCL_DEBUG=WARN in its environment shows the reason"
_SHOWN = "show them: dlperf bandwidth LOG"
_IN_PLACE = "the bus bandwidth is that of in-place operations; the log has no others"
_OTHERS = "tables of other programs (OSU, perftest, mscclpp-test) are not read, only of nccl-tests"
_WHOLE = "give all that the program printed; tables of nccl-tests 1 are not read"
# sendrecv_perf names an operation, too.
_REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce", "sendrecv")
# By (n - 1) / n of n ranks: the bus bandwidth per algorithm bandwidth. Others have both alike.
_FACTORS = {
    "all_reduce": 2,
    "all_gather": 1,
    "reduce_scatter": 1,
    "alltoall": 1,
    "gather": 1,
    "scatter": 1,
}
_WITHOUT_REDUCTION = (
    *("all_gather", "alltoall", "broadcast", "gather", "hypercube", "scatter", "sendrecv"),
)
_PRECISIONS = {"float": "fp32", "half": "fp16", "bfloat16": "bf16", "double": "fp64"}


@dataclass(frozen=True)
class Bandwidth:
    """A message size in bytes, the operation of a reduction, the elements' type and the root (-1:
    none, as nccl-tests print it); time in us, algorithm and bus bandwidth in GB/s, out of place and
    in place. What was not measured is None: all of a place, the
    time if that of the CPU was printed, `wrong` if the results were not checked."""

    size: int
    redop: str | None
    time_us: float | None = None
    algbw: float | None = None
    busbw: float | None = None
    in_place_time_us: float | None = None
    in_place_algbw: float | None = None
    in_place_busbw: float | None = None
    wrong: float | None = None
    in_place_wrong: float | None = None
    datatype: str | None = None
    root: int = -1

    @property
    def kind(self) -> tuple[str | None, str | None, int]:
        """Type, operation and root, in which rows of the same size may differ."""
        return self.datatype, self.redop, self.root

    @property
    def first_busbw(self) -> float:
        """The bus bandwidth out of place, if that was measured."""
        return self.in_place_busbw or 0.0 if self.busbw is None else self.busbw

    @property
    def first_algbw(self) -> float:
        """The algorithm bandwidth of the same place."""
        return self.in_place_algbw or 0.0 if self.busbw is None else self.algbw or 0.0


@dataclass
class NcclTests:
    """The rows in the order of the log, and the average that the program prints at its end.
    `largest` and `iterations` are as its head states them; of the sizes up to this largest one,
    `measured` is the last. `collective` is that of its name
    (all_reduce), which older versions do not print. `groups`: those of its ranks, which
    NCCL_TESTS_SPLIT makes several that run at the same time. `settings`: the options other than
    the default that change the rates (-G, -m, -z)."""

    rows: list[Bandwidth] = field(default_factory=list)
    sizes: int | None = None
    largest: int | None = None
    measured: int | None = None
    iterations: int | None = None
    ranks: int = 0
    hosts: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    collective: str | None = None
    average_busbw: float | None = None
    is_wrong: bool = False


@dataclass
class _Reading:
    """The tables before a line, and that of the line; how many processes named a rank 0 for it; the
    ends of its sizes, where its first columns are from (out-of-place, in-place), its columns, and
    the line of a heading without those that are needed; the first line with an error; and the
    lines up to the end of the last whole table."""

    tables: list[NcclTests] = field(default_factory=list)
    table: NcclTests = field(default_factory=NcclTests)
    processes: int = 0
    sizes: tuple[int, int, int, bytes] | None = None
    place: bytes = b""
    columns: Sequence[bytes] = ()
    other_heading: tuple[int, str] | None = None
    failure: tuple[int, str] | None = None
    last: int = 1
    whole: int = 0


def read(pieces: Iterable[bytes]) -> list[NcclTests]:
    """The tables of a log, which comes in pieces of any length. Raises LineError if one is not
    whole."""
    head, pieces = b"", iter(pieces)
    while len(head) < _HEAD and (piece := next(pieces, b"")):
        head += piece
    if _BEGINS_JSON.match(head):  # a line that may be longer than those of other logs
        return [_of_json(b"".join((head, *pieces)))]
    reading = _Reading()
    for block in map(_whole_rows, blocks(chain((head,), pieces), _MARKERS)):
        if _JSON in block.data:
            reading.tables += [_of_json(t) for t in block.data.split(b"\n") if _JSON in t]
            continue
        for part in _PARTS.finditer(block.data):
            _take(reading, block, part)
        reading.last = block.last or reading.last
    if reading.table != NcclTests() or not reading.tables:
        try:
            _finish(reading)
        except LineError as error:
            if reading.tables:  # a job may have ended within its last one
                error.hint = f"{error.hint}; or keep the tables above: head -n {reading.whole} LOG"
            raise
    return reading.tables


def _whole_rows(block: Block) -> Block:
    """The lines without NCCL's in the middle of them."""
    if b" NCCL " not in block.data or block.numbers:
        return block
    rows = _NOTICES.sub(lambda m: b"" if m["apart"] is None else m[0], block.data)
    return block._replace(data=rows)


def _of_json(data: bytes) -> NcclTests:
    """The table of a file that `-J` wrote. Raises LineError if it is not whole."""
    try:
        document = json.loads(data.removesuffix(CUT.encode()))  # -J writes no newline
        config, devices = document["config"], document["config"]["devices"]
        of_process = _count(config["nthreads"]) * _count(config["ngpus"])
        # Listed are all devices, or the first one of each process.
        processes = max(_count(device["rank"]) for device in devices) // of_process + 1
        (average,) = (document[key] for key in document if key.startswith("average_bus_"))
        checks = (document["out_of_bounds"], document.get("bitwise_mismatches", {"okay": "true"}))
        rows = [_row_of_json(result) for result in document["results"]]
        program = PurePath(document["args"][0]).name
        table = NcclTests(
            rows,
            sizes=_series(*_steps_of_json(config))[0],
            largest=rows[-1].size,
            iterations=_count(config["iterations"]),
            ranks=processes * of_process,
            hosts=tuple(dict.fromkeys(str(device["hostname"]) for device in devices)),
            groups=tuple(dict.fromkeys(_count(device.get("group", 0)) for device in devices)),
            settings=_settings(
                config.get("aggregated_iterations", 1),
                config.get("graph", 0),
                config.get("blocking_collectives") == "true",
            ),
            collective=program.partition("_perf")[0] if "_perf" in program else None,
            average_busbw=_amount(average.get("bandwidth", average.get("bandwidith"))),
            is_wrong=any(check["okay"] != "true" for check in checks),
        )
    except (
        ValueError,
        ArithmeticError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        problem, expected = "the JSON of nccl-tests is not whole", "all that -J wrote"
        raise LineError(1, problem, expected=expected, found=repr(error), hint=_WHOLE) from None
    _refuse_missing_rows(table, 1)
    _refuse_contradictions(table, 1)
    return table


def _amount(value: Any) -> float:
    if not 0 <= float(value) < math.inf:
        raise ValueError(f"{value} is no amount")
    return float(value)


def _count(value: Any) -> int:
    return int(_amount(value))


def _settings(aggregated: Any, graphs: Any, is_blocking: bool = False) -> dict[str, str]:
    """The options that change the rates, without those that have their default."""
    settings = {"aggregated_iterations": str(_count(aggregated))} if _count(aggregated) > 1 else {}
    settings |= {"cuda_graphs": str(_count(graphs))} if _count(graphs) > 0 else {}
    return settings | ({"blocking": "true"} if is_blocking else {})


def _steps_of_json(config: Mapping[str, Any]) -> tuple[int, int, int, bytes]:
    """Least and largest size, the step between sizes and its kind."""
    kind = "factor" if "step_factor" in config else "bytes"
    numbers = (config["minimum_bytes"], config["maximum_bytes"], config[f"step_{kind}"])
    least, most, step = map(_count, numbers)
    return least, most, step, kind.encode()


def _row_of_json(result: Mapping[str, Any]) -> Bandwidth:
    values: dict[str, Any] = {"datatype": str(result["type"]), "root": int(result["root"])}
    for key, prefix in (("out_of_place", ""), ("in_place", "in_place_")):
        place = result.get(key) or {}
        time = place.get("time")
        values[f"{prefix}time_us"] = None if time is None else _amount(time)
        for rate in ("alg", "bus"):
            values[f"{prefix}{rate}bw"] = _amount(place[f"{rate}_bw"]) if place else None
        wrong = place.get("nwrong")
        values[f"{prefix}wrong"] = None if wrong is None else _count(wrong)
    return Bandwidth(_count(result["size"]), str(result["redop"]), **values)


def _take(reading: _Reading, block: Block, part: re.Match[bytes]) -> None:
    """Take a part of a line. The first line of a table follows the average of the one before."""
    table, data = reading.table, part[0]
    if part.lastgroup == "row":
        _add_row(reading, block, part.start())
    elif part.lastgroup == "rank" and (rank := _RANK.match(data)):
        table.ranks += 1
        reading.processes += int(rank[1]) == 0
        table.groups = tuple(dict.fromkeys((*table.groups, int(rank[2] or 0))))
        table.hosts = tuple(dict.fromkeys((*table.hosts, rank[3].decode("utf-8", "replace"))))
    elif part.lastgroup == "program" and (program := _PROGRAM.match(data)):
        table.collective = program[1].decode()
    elif part.lastgroup == "sizes" and (sizes := _SIZES.match(data)):
        least, most, step = (int(sizes[n]) for n in (1, 2, 3))
        reading.sizes = least, most, step, sizes[4]
        table.largest, table.iterations = most, int(sizes[5]) if sizes[5] else None
        table.settings |= _settings(sizes[6] or 1, sizes[7] or 0)
    elif part.lastgroup == "blocking":
        table.settings["blocking"] = "true"
    elif part.lastgroup == "less" and (less := _LESS.match(data)) and reading.sizes:
        least, _, step, kind = reading.sizes
        reading.sizes = least, int(less[1]), step, kind
        table.largest = None
    elif part.lastgroup == "place" and (place := _PLACE.match(data)):
        reading.place = place[1]
    elif part.lastgroup == "heading":
        words = data[1:].split()
        places = len(_starts(words))
        is_known = words[2] == b"type" and words.count(b"busbw") == places
        is_known = is_known and (places == 2 or (places == 1 and bool(reading.place)))
        reading.columns = words if is_known else ()
        reading.other_heading = (
            None if is_known else (block.line(part.start()), data.decode("utf-8", "replace"))
        )
    elif part.lastgroup == "failure" and reading.failure is None:
        reading.failure = block.line(part.start()), data.decode("utf-8", "replace")
    elif part.lastgroup == "failed":
        judged = table if table.rows or not reading.tables else reading.tables[-1]
        judged.is_wrong = True
    elif part.lastgroup == "average" and (average := _AVERAGE.match(data)):
        table.average_busbw = float(average[1])
        reading.last = block.line(part.start())
        _finish(reading)
        reading.whole = reading.last


def _finish(reading: _Reading) -> None:
    """Begin a new table. Raises LineError if the one before is not whole."""
    table, last = reading.table, reading.last
    if reading.sizes:
        table.sizes, table.measured = _series(*reading.sizes)
    if reading.failure and (table.average_busbw is None or reading.processes > 1):
        line, failure = reading.failure
        problem, expected = "the test failed before its table was whole", "# Avg bus bandwidth"
        raise LineError(line, problem, expected=expected, found=failure, hint=HINT_OF_FAILURE)
    if reading.processes > 1:
        problem, expected = "several processes printed tables of their own", "one rank 0"
        ranks = f"{reading.processes} before the first table ended"
        hint = (
            "build nccl-tests with MPI=1: without it, no process knows the others; if these are"
            " runs after one another, remove the lines of the one that was cut off"
        )
        raise LineError(last, problem, expected=expected, found=ranks, hint=hint)
    if reading.other_heading and not table.rows:
        line, heading = reading.other_heading
        problem, expected = "the heading of the table lacks columns", "time and busbw, both twice"
        hint = "with columns of in-place operations only, keep the line above, which says in-place"
        if "type" not in heading.split():
            expected, hint = "type, and " + expected, _OTHERS
        columns = " ".join(heading[1:].split())
        raise LineError(line, problem, expected=expected, found=columns, hint=hint)
    _refuse_missing_rows(table, last)
    if not table.rows or table.average_busbw is None:
        problem, expected = "the log has no whole table of nccl-tests", "# Avg bus bandwidth"
        number, hint = f"{len(table.rows)} sizes", _WHOLE if table != NcclTests() else _OTHERS
        raise LineError(last, problem, expected=expected, found=number, hint=hint)
    _refuse_contradictions(table, last)
    if table.largest is None:
        table.largest = table.rows[-1].size
    reading.tables.append(table)
    reading.table, reading.sizes, reading.columns = NcclTests(), None, ()
    reading.processes = 0
    reading.place, reading.other_heading = b"", None


def _refuse_missing_rows(table: NcclTests, line: int) -> None:
    kinds = len({row.kind for row in table.rows}) or 1
    if table.sizes and (not table.rows or len(table.rows) % (table.sizes * kinds)):
        problem = "lines of the table are missing or damaged"
        expected = f"{table.sizes} sizes" + (f" of {kinds} operations or types" * (kinds > 1))
        raise LineError(line, problem, expected=expected, found=str(len(table.rows)), hint=_WHOLE)


def _refuse_contradictions(table: NcclTests, line: int) -> None:
    """Raise LineError if size, time and rates of the rows, or the average, contradict each other by
    more than any rounding and any way to count bytes."""
    rates, factors, contradiction = [0.0], [], ""
    for row in table.rows:
        for place in ("", "in_place_"):
            time, alg, bus = (getattr(row, f"{place}{n}") for n in ("time_us", "algbw", "busbw"))
            if alg is None:
                continue
            rates.append(bus)
            if alg >= 1:  # two digits behind the point are enough for 1 %
                factors.append((bus / alg, f"busbw {bus:g} at algbw {alg:g}"))
                has_time = time is not None and (time or bus)  # a device alone has nothing to do
                if has_time and not 0.4 < row.size / 1000 / alg / (time or 0.01) < 2.5:
                    contradiction = f"{row.size} bytes in {time:g} us at algbw {alg:g}"
    (low, shown), (high, other) = min(factors, default=(0, "")), max(factors, default=(0, ""))
    mean, average = sum(rates) / max(len(rates) - 1, 1), table.average_busbw or 0
    if high > 1.1 * low:
        contradiction = f"{shown}, and {other}"
    elif mean >= 1 and not 0.4 < average / mean < 2.5:
        contradiction = f"an average of {average:g} over rows with {mean:g}"
    if contradiction:
        problem = "the numbers of the table contradict each other"
        expected = "rates that fit the size and time of their row, each other, and the average"
        raise LineError(line, problem, expected=expected, found=contradiction, hint=_WHOLE)


def _series(least: int, most: int, step: int, kind: bytes) -> tuple[int | None, int | None]:
    """The number of sizes from the least to the most, and the last one of them, which is less if no
    step ends at the most, as of `-b 8 -e 10G -f 2`."""
    if step < 1 or (kind == b"factor" and step < 2) or least < 1:
        return None, None
    if kind == b"bytes":
        return (most - least) // step + 1, most - (most - least) % step
    number = 0
    while least <= most:
        number, least = number + 1, least * step
    return number, least // step


def _add_row(reading: _Reading, block: Block, start: int) -> None:
    """Add the row that begins there, unless it is damaged."""
    end = block.data.find(b"\n", start)
    words = block.data[start : end if end >= 0 else None].rstrip(b"\r").split()
    size, count, datatype, *rest = words
    names = list(reading.columns)
    # alltoallv_perf rounds the bytes for each peer, but not the count.
    is_apart = reading.table.collective != "alltoallv" and int(count) and int(size) % int(count)
    if not names or is_apart:
        return  # the heading is damaged, or the beginning of the line is lost
    redop = None
    if _IS_OPERATION.fullmatch(rest[0]):
        redop, rest = rest[0].decode(), rest[1:]
    first, *others = _starts(names)
    root = b"-1"
    if b"root" in names and len(rest) > len(names) - first and _IS_ROOT.fullmatch(rest[0]):
        root, rest = rest[0], rest[1:]
    values: dict[str, Any] = {"datatype": datatype.decode(), "root": int(root)}
    is_in_place = reading.place == b"in-place"
    for start, end in zip((first, *others), (*others, len(names)), strict=True):
        numbers = dict(zip(names[start:end], rest[start - first : end - first], strict=False))
        wrong = numbers.get(b"#wrong", numbers.get(b"error", b""))
        rates = [numbers.get(name, b"") for name in (names[start], b"algbw", b"busbw")]
        if not _IS_WRONG.fullmatch(wrong) or not all(map(_IS_NUMBER.fullmatch, rates)):
            return
        prefix = "in_place_" if is_in_place or start != first else ""
        values[f"{prefix}time_us"] = float(rates[0]) if names[start] == b"time" else None
        values[f"{prefix}algbw"], values[f"{prefix}busbw"] = map(float, rates[1:])
        checked = float(wrong.rstrip(b"*")) if wrong != b"N/A" else None
        values[f"{prefix}wrong"] = int(wrong) if wrong.isdigit() else checked
    reading.table.rows.append(Bandwidth(int(size), redop, **values))


def _starts(names: Sequence[bytes]) -> list[int]:
    """The first columns of each place."""
    return [n for n, name in enumerate(names) if name in (b"time", b"cputime")]


def as_run(pieces: Iterable[bytes]) -> StepTable:
    """The table as the log of a run. Raises LineError if it is not whole, if it is one of several,
    if it has several types, operations or roots, or if results were wrong."""
    table, *others = read(pieces)
    if others:
        problem, hint = "the log has several tables of nccl-tests", _SHOWN
        shown = ", ".join(t.collective or "a table" for t in (table, *others))
        raise LineError(1, problem, expected="one", found=shown, hint=hint)
    kinds = dict.fromkeys(row.kind for row in table.rows)
    if len(kinds) > 1:
        problem = "the table has several rates of the largest size"
        shown = ", ".join(" ".join(str(p) for p in kind if p not in (None, -1)) for kind in kinds)
        expected = "one type, operation and root"
        raise LineError(1, problem, expected=expected, found=shown, hint=_SHOWN)
    if table.is_wrong:
        problem = "the results of the collective operation are wrong"
        raise LineError(1, problem, expected="0 in each column #wrong", found="FAILED")
    each = table.sizes or len(table.rows)
    largest = table.rows[each - 1 :: each]
    if not all(row.first_busbw > 0 for row in largest):
        problem = "the bus bandwidth of the largest size is 0"
        raise LineError(1, problem, expected="at least two ranks", found=str(table.ranks))
    _refuse_other_ranks(table)
    steps, datatype = table.iterations or 1, largest[0].datatype or ""
    header = Header(
        1,
        world_size=table.ranks or None,
        nodes=len(table.hosts) or None,
        precision=_PRECISIONS.get(datatype, datatype),
        total_steps=table.iterations and table.iterations * len(largest),
        log_every=steps,
        network=table.collective or _candidates(table),
        parameters=(*_message(table), *table.settings.items()),
    )
    rates = [row.first_busbw for row in largest]
    numbers = [steps * (cycle + 1) for cycle in range(len(rates))]
    nothing = [None] * len(rates)
    notes = [] if largest[0].busbw is not None else [_IN_PLACE]
    return StepTable([header], Columns(numbers, rates, [*nothing], [*nothing]), notes=notes)


def _message(table: NcclTests) -> Iterator[tuple[str, str]]:
    if table.largest:
        yield "message_bytes", str(table.largest)
        if table.measured and table.measured < table.largest:
            yield "measured_bytes", str(table.measured)


def _refuse_other_ranks(table: NcclTests) -> None:
    """Raise LineError if the bus bandwidth is not that of all ranks that the log lists."""
    if len(table.groups) > 1:
        problem, shown = "each rate is that of one of several groups of ranks", str(table.groups)
        expected = "one group, without NCCL_TESTS_SPLIT"
        raise LineError(1, problem, expected=expected, found=shown, hint=_SHOWN)
    if table.ranks and table.collective in _FACTORS and not _fits(table.collective, table):
        row = _fastest(table)
        factor = _FACTORS[table.collective] * (table.ranks - 1) / table.ranks
        raise LineError(
            1,
            "the bus bandwidth contradicts the number of ranks",
            expected=f"{factor:.4g} times algbw for {table.collective} on {table.ranks} ranks",
            found=f"busbw {row.first_busbw:g} at algbw {row.first_algbw:g}",
            hint="lines of ranks are missing, or are of another run: " + _WHOLE,
        )


def _fastest(table: NcclTests) -> Bandwidth:
    return max(table.rows, key=attrgetter("first_busbw"))


def _fits(collective: str, table: NcclTests) -> bool:
    """True if the bandwidths can be those of a collective on the ranks of the table."""
    row, share = _fastest(table), (table.ranks - 1) / table.ranks
    alg, factor = row.first_algbw, _FACTORS[collective] * share if collective in _FACTORS else 1
    # Both have two digits behind the point.
    return alg < 1 or not factor or abs(row.first_busbw / alg / factor - 1) <= 0.001 + 0.02 / alg


def _candidates(table: NcclTests) -> str:
    """The operations that a table can be of, where nothing names the program. Until 2.13, its
    column redop was empty, or not there, without a reduction."""
    redop = table.rows[-1].redop
    names = _WITHOUT_REDUCTION if redop in (None, "none") else _REDUCTIONS
    fitting = [name for name in names if table.ranks and _fits(name, table)]
    return "|".join(fitting or names)


_TABLE = Format(
    name="nccl_tests",
    sample="  17179869184    4294967296     float     sum      -1    62871   273.26   478.20 ...",
    marker=b"  ",
    entry=Expression(
        rb"(?<!\S)(?P<step>\d{1,18}+)%(kind)s(?:%(b)s%(n)s){2}%(b)s(?P<rate>%(n)s)"
        rb"%(b)s(?:%(n)s|N/A)(?= {0,40}+[\d\r\nA-Z]| {0,40}+\Z)"
        % {b"kind": _KIND, b"b": _BLANKS, b"n": _NUMBER}
    ),
    rate=_NUMBER,
    statements=(),
    is_fp32=True,
    warmup=(0, 20),
    table=as_run,
)
FORMAT = replace(
    _TABLE,
    variants=(
        replace(
            _TABLE,
            sample='"average_bus_bandwidth":{"bandwidth":261.007,...',
            marker=_JSON,
            entry=Expression(
                rb'(?P<step>)"average_bus_bandwidi?th": ?\{ ?"bandwidi?th": ?(?P<rate>%s)' % _NUMBER
            ),
        ),
    ),
)
