"""PLSC on PaddlePaddle: the printed rate (qps) is of the world, over the last `log period` steps.

    INFO 2026-11-20 13:40:15,997 entry.py:1029] Pass:0 batch:0 lr:0.00039063 loss:40.266624 qps:0.99

Batches count from 0. The time stamp is the host's local time, to the millisecond. Passes after
the first are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from . import text
from .records import Format, Header, Line, Step

_ENTRY = re.compile(
    r"(?:(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) \S+ )?"
    r"Pass:0 batch:(\d{1,12}) (?:lr:\S+ )?loss:(\S+) qps:(\S+)",
    re.ASCII,
)
_BATCH = re.compile(r"Set train batch size to (\d+)", re.ASCII)
_WORLD = re.compile(r"num_trainers: (\d+)", re.ASCII)
_PERIOD = re.compile(r"Set log period to (\d+)", re.ASCII)


def parse(lines: Iterable[Line]) -> Iterator[Step | Header]:
    """Steps and headers of a log, in its order."""
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
    # Batch size: "Set train batch size to 4."; what stands above it, under "Default
    # configuration", is not what runs. World: "trainer_id: 0, num_trainers: 1".
    if batch := _BATCH.search(line):
        size = text.count(number, "batch size", batch[1])
        yield Header(line=number, batch_size_per_device=size)
    if world := _WORLD.search(line):
        yield Header(line=number, world_size=text.count(number, "number of trainers", world[1]))
    if period := _PERIOD.search(line):
        yield Header(line=number, log_every=text.count(number, "log period", period[1]))


FORMAT = Format(
    name="plsc",
    sample="INFO 2026-11-20 13:40:15,997 entry.py:1029] Pass:0 batch:0 ... loss:40.27 qps:0.99",
    step_markers=(" qps:",),
    head_markers=("Set train batch size to", "num_trainers:", "Set log period to"),
    parse=parse,
    zero_based=True,
)
