"""PLSC on PaddlePaddle: the printed rate (qps) is that of all devices, over `log period` steps.

    INFO 2026-11-20 13:40:15,997 entry.py:1029] Pass:0 batch:0 lr:0.00039063 loss:40.266624 qps:0.99

Batches count from 0. The time stamp is the host's local time, to the millisecond. Every trainer
prints its own lines, by its own clock, and Paddle's launcher writes the lines of all trainers of a
node into one log. Lines like `trainer_id: 3, num_trainers: 8` give their number. Passes after the
first are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from . import text
from .records import Columns, Format, Header, Line, Step

_ENTRY = re.compile(
    r"(?:(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) \S+ )?"
    r"Pass:0 batch:(\d{1,12}) (?:lr:\S+ )?loss:(\S+) qps:(\S+)",
    re.ASCII,
)
_BATCH = re.compile(r"Set train batch size to (\d+)", re.ASCII)
_WORLD = re.compile(r"\btrainer_id: (\d{1,9}), num_trainers: (\d+)", re.ASCII)
_PERIOD = re.compile(r"Set log period to (\d+)", re.ASCII)
# Only this project's script prints the next two.
_DTYPE = re.compile(r"Set dtype to (\w+)", re.ASCII)
_STEPS = re.compile(r"Set number of batches to (\d+)", re.ASCII)
_FP16 = re.compile(r"Use mixed precision training: (True|False)", re.ASCII)


def parse(lines: Iterable[Line]) -> Iterator[Step | Header]:
    """Steps and headers, in the order of the log."""
    for number, line, rank in text.by_rank(lines):
        if " qps:" not in line:
            yield from _headers(number, line)
        for stamp, batch, loss, printed in _ENTRY.findall(line):
            yield Step(
                step=int(batch) + 1,
                samples_per_second=text.rate(number, printed),
                line=number,
                printed=printed,
                loss=text.optional_number(loss),
                unix_time=text.unix_time(stamp),
                rank=rank,
            )


def _headers(number: int, line: str) -> Iterator[Header]:
    # Batch size: "Set train batch size to 4."; the values above it, under "Default
    # configuration", are not used. World size: "trainer_id: 0, num_trainers: 1".
    if batch := _BATCH.search(line):
        size = text.count(number, "batch size", batch[1])
        yield Header(line=number, batch_size_per_device=size)
    if world := _WORLD.search(line):
        trainers = text.count(number, "number of trainers", world[2])
        yield Header(line=number, world_size=trainers, writer=int(world[1]))
    if period := _PERIOD.search(line):
        yield Header(line=number, log_every=text.count(number, "log period", period[1]))
    if dtype := _DTYPE.search(line):
        yield Header(line=number, precision=text.precision(dtype[1]))
    if fp16 := _FP16.search(line):
        yield Header(line=number, precision="fp16" if fp16[1] == "True" else "fp32")
    if steps := _STEPS.search(line):
        yield Header(line=number, total_steps=text.count(number, "number of steps", steps[1]))


def columns(lines: str) -> Columns | None:
    """The steps of a whole log that one trainer wrote."""
    stamps, batches, losses, rates = text.transposed(_ENTRY.findall(lines), 4)
    speeds, known = text.numbers(rates), text.numbers(losses)
    if speeds is None or known is None:
        return None
    times = [text.unix_time(stamp) for stamp in stamps]
    return Columns([int(batch) + 1 for batch in batches], speeds, known, times)


FORMAT = Format(
    name="plsc",
    sample="INFO 2026-11-20 13:40:15,997 entry.py:1029] Pass:0 batch:0 ... loss:40.27 qps:0.99",
    step_markers=(" qps:",),
    head_markers=(
        *("Set train batch size to", "num_trainers:", "Set log period to"),
        *("Set dtype to", "Set number of batches to", "Use mixed precision training:"),
    ),
    parse=parse,
    columns=columns,
    zero_based=True,
)
