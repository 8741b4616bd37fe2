"""Logs of training programs: bytes in, headers and columns of steps out. One module per format.

Every module of this package with a `FORMAT` is a format; it needs no registration.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.lists import grouped
from . import gluoncv_horovod, steps, text
from .ranks import Ranks
from .reader import Block, blocks, present
from .records import CUT, Columns, Format, Header, LineError, Statement, StepTable
from .statements import headers, without_changed

__all__ = [
    "Columns",
    "Format",
    "Header",
    "LineError",
    "Log",
    "Statement",
    "detect",
    "first_line",
    "formats",
    "line_of",
    "other_at_end",
    "parse",
    "parse_tail",
    "rate_of_epoch",
]

FIRST = 2**11
END = 2**9


@dataclass
class Log:
    """The content of a log. `has_ranks`: labels of launchers name the ranks; the steps are those of
    the first rank that prints steps. `memory_gib`: the highest memory use of a device that lines
    with a rate print. `compute_rates`: their rates without waiting for data. `skipped`: the steps
    of each rate that changed no weight. `tflops` and `mfu` (in percent) are those of a device, as
    the program computed them. `epoch_length`: the steps of an epoch, if lines count
    them in each anew. `marked`: how often the marker of the format occurs, 0 if the caller knows
    the most lines. `evaluated`: the steps in whose place an evaluation has a line, with the
    number of rates before. All are empty if the format does not have them. `is_whole`: the log was
    read to its end."""

    headers: list[Header]
    columns: Columns
    has_ranks: bool = False
    memory_gib: float | None = None
    compute_rates: list[float | None] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    tflops: list[float | None] = field(default_factory=list)
    mfu: list[float | None] = field(default_factory=list)
    epoch_length: int | None = None
    notes: Sequence[str] = ()
    marked: int = 0
    evaluated: Mapping[int, int] = field(default_factory=dict)
    is_whole: bool = True


@functools.cache
def formats() -> dict[str, Format]:
    """The formats of this package by name."""
    by_name: dict[str, Format] = {}
    for module in pkgutil.iter_modules(__path__):
        entry = getattr(importlib.import_module(f"{__name__}.{module.name}"), "FORMAT", None)
        if isinstance(entry, Format):
            by_name[entry.name] = entry
    return by_name


def parse(
    form: Format, pieces: Iterable[bytes], most: int | None = None, rank: str | None = None
) -> Log:
    """The content of a log, which comes in pieces of any length. Stops after `most` lines with a
    rate. `rank`: that whose lines count, by default the first that prints a rate; then ranks must
    have the same rates. No rank says whose rates `rank_rates` are. Raises LineError."""
    if form.table is not None:
        table = StepTable(*form.table(pieces))
        length, notes = table.epoch_length, table.notes
        return Log(table.headers, table.columns, epoch_length=length, notes=notes)
    log = Log([], Columns())
    seen, ranks = steps.Seen(), Ranks()
    watch = form.watch() if form.watch else None
    stated: set[tuple[object, ...]] = set()
    for block, of_rank in steps.counted_blocks(form, pieces, rank):
        if most is not None and len(log.columns.steps) > most:
            log.is_whole = False
            break
        log.has_ranks = log.has_ranks or any(rank is not None for rank in block.ranks)
        if rank is None or form.rank_rates:
            ranks.add(form, block, of_rank)
        watched = (watch(of_rank) or ()) if watch else ()
        for header in sorted((*headers(form, block, of_rank), *watched), key=lambda h: h.line):
            # A program may print the same thing in every step.
            without_line = tuple(vars(header).values())[1:]
            if header.final_samples_per_second or without_line not in stated:
                stated.add(without_line)
                log.headers.append(header)
        if form.marker and not most:
            log.marked += of_rank.data.count(form.marker)
        before = set(seen.of_run)
        columns = steps.columns(form, of_rank, seen)
        if log.columns.steps:
            log.columns.extend(columns)
        else:
            log.columns = columns
        for group, values in seen.of_run.items():
            is_one = steps.OF_RUN[group][1] or len(values) == 1
            if is_one and (group not in before or len(values) > 1):
                log.headers.append(_of_run(form, of_rank, group, values))
    ranks.check(form.rank_rates)
    log.headers = without_changed(log.headers)
    log.memory_gib, log.compute_rates = seen.memory_gib, seen.compute_rates
    log.marked -= seen.without_rate if log.marked else 0
    log.skipped, log.tflops, log.mfu = seen.skipped, seen.tflops, seen.mfu
    log.epoch_length, log.evaluated = seen.epoch_length, seen.evaluated
    return log


def _of_run(form: Format, block: Block, group: str, values: set[bytes]) -> Header:
    """The header for a statement of the whole run in lines with a rate. Raises LineError if they
    differ: of steps with other batch sizes, for instance, steps per second say nothing."""
    field, words = steps.OF_RUN[group]
    matches = steps.with_rate(form, block.data)
    first = next(matches)
    if len(values) > 1:
        other = next((match for match in matches if match[group] != first[group]), first)
        raise LineError(
            block.line(other.start(group)),
            f"the {words} changes during the run",
            expected="one",
            found=", ".join(map(bytes.decode, sorted(values))),
        )
    stated: dict[str, Any] = {field: int(*values) + (group == "last")}
    return Header(block.line(first.start(group)), **stated)


def line_of(form: Format, pieces: Iterable[bytes], index: int, rank: str | None = None) -> int:
    """The line number of the line with a rate of that index. Reads the log again, so that no line
    number is counted for logs without problems."""
    if form.table is not None:
        pieces = [*pieces]  # they are read twice if the table has no lines
        if lines := StepTable(*form.table(pieces)).lines:
            return lines[index]
    epoch, seen = None, 0
    for _, block in steps.counted_blocks(form, pieces, rank):
        for match in form.entry.finditer(block.data):
            if form.only_first_epoch:
                epoch = epoch or match["epoch"]
            if match["rate"] and (epoch is None or match["epoch"] == epoch):
                if seen == index:
                    return block.line(match.start("rate"))
                seen += 1
    raise IndexError(f"the log has {seen} rates, so none of index {index}")


def first_line(form: Format, pieces: Iterable[bytes]) -> str | None:
    """The first line with a rate, without labels; None if there is none."""
    for block in blocks(pieces, [form.marker]):
        for match in steps.with_rate(form, block.data):
            start = block.data.rfind(b"\n", 0, match.start("rate")) + 1
            line, *_ = block.data[start:].split(b"\n", 1)
            before, after = line[: match.start("rate") - start], line[match.start("rate") - start :]
            whole = before[before.rfind(b"\r") + 1 :] + after.split(b"\r", 1)[0]
            return whole.decode("utf-8", "replace").removesuffix(CUT)
    return None


def detect(pieces: Iterable[bytes], among: Mapping[str, Format] | None = None) -> Format | None:
    """The format of the first line with a rate, by default `among` the built-in ones; None if no
    line has a rate. Before the rates of a library's steps, those of its program's steps count,
    wherever they are."""
    forms = _with_variants(tuple((formats() if among is None else among).values()))
    markers, library = tuple(forms), None
    for block in blocks(_growing(pieces), markers):
        matches = [
            (match.start(), number, form)
            for index in present(block.data, markers)
            for number, form in forms[markers[index]]
            if (match := next(steps.with_rate(form, block.data), None))
        ]
        if matches and library is None:
            first = min(matches)[2]
            if not first.is_library:
                return first
            library = first
        # A table may be of something else in the log, as the bar of a validation is.
        of_program = [m for m in matches if not (m[2].is_library or m[2].whole_run or m[2].table)]
        if of_program:
            return min(of_program)[2]
    return library


@functools.lru_cache(maxsize=8)
def _with_variants(programs: tuple[Format, ...]) -> dict[bytes, list[tuple[int, Format]]]:
    """The formats and their variants with their order, by marker."""
    forms = enumerate(form for main in programs for form in (main, *main.variants))
    return grouped(forms, lambda numbered: numbered[1].marker)


def rate_of_epoch(pieces: Iterable[bytes]) -> tuple[int, str] | None:
    """The first rate of a whole epoch, with its line, in a log without rates of steps; None if it
    has none."""
    for block in blocks(pieces, [b"samples/sec"]):
        if match := gluoncv_horovod.RATE_OF_EPOCH.search(block.data):
            return block.line(match.start()), match[0].decode()
    return None


def other_at_end(form: Format, end: bytes) -> Format | None:
    """Another training program's built-in format that has a rate at the end of a log: after the
    last line that may be of `form`, or in the last bytes. None for a format of the user, which may
    describe the same lines. To search all of each log for all formats would be slow."""
    if form.name not in formats():
        return None
    start = max(0, min(end.rfind(form.marker), len(end) - END))
    tail = end[end.rfind(b"\n", 0, start) + 1 :]
    others, markers = _in_order()
    for index in sorted(present(tail, markers)):
        other = others[index]
        if other.name == form.name or other.table is not None:
            continue
        if other.whole_run or form.is_library or other.is_library:
            continue  # these may be of the same program
        if any(steps.with_rate(other, tail)):
            return other
    return None


@functools.cache
def _in_order() -> tuple[list[Format], tuple[bytes, ...]]:
    """The formats of this package, and their markers."""
    others = [*formats().values()]
    return others, tuple(other.marker for other in others)


def _growing(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Most logs print a step early; searching for the markers of all formats in more is slow."""
    for piece in pieces:
        start, size = 0, FIRST
        while start < len(piece):
            yield piece[start : start + size]
            start, size = start + size, 2 * size


def parse_tail(form: Format | None, tail: str) -> float | None:
    """The last rate in a piece of a log, which may begin and end anywhere; None if it has none, or
    if its format is unknown."""
    if form is None:
        return None
    # The rate shows that the run is alive; a surrogate or an odd byte must not hide it.
    rates = []
    for _, block in steps.counted_blocks(form, [tail.encode("utf-8", "replace")]):
        for match in steps.with_rate(form, block.data):
            try:
                rates.append(text.rate_in(match, form))
            except LineError:
                continue
    return rates[-1] if rates else None
