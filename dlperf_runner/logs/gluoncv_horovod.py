"""GluonCV's train_horovod.py: the printed rate is that of all devices, over `log_interval` steps.

    INFO:root:Namespace(batch_size=128, dtype='float32', log_interval=1, ...)
    INFO:root:world_size=8
    INFO:root:Epoch[0] Rank[0] Batch[2] Loss[8.603]
    INFO:root:Epoch[0] Batch[2]<TAB>Speed: 2.05 samples/sec
    INFO:root:Epoch[0]<TAB>Speed: 2.26 samples/sec

The last line is the rate of the epoch, not of a step. Batches count from 1. Epochs after the first
are ignored, as in the published rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from . import text
from .records import Columns, Format, Header, Line, Step

_ENTRY = re.compile(
    r"Epoch\[0\] (?:Rank\[\d+\] )?Batch\[(\d{1,12})\]"
    r"(?:[^\S\n]+Speed: (\S+) samples/sec| Loss\[([^\]\n]*)\])",
    re.ASCII,
)
_WORLD = re.compile(r"\bworld_size=(\d+)", re.ASCII)


def parse(lines: Iterable[Line]) -> Iterator[Step | Header]:
    """Steps and headers, in the order of the log."""
    loss_of: tuple[int, float | None] = (0, None)
    for number, line, rank in text.by_rank(lines):
        found = False
        for batch, printed, loss in _ENTRY.findall(line):
            found = True
            step = int(batch)
            if printed:
                known = loss_of[1] if loss_of[0] == step else None
                yield Step(step, text.rate(number, printed), number, printed, known, None, rank)
            else:
                loss_of = step, text.optional_number(loss)
        if not found:
            yield from _headers(number, line)


def _headers(number: int, line: str) -> Iterator[Header]:
    if "Namespace(" in line:
        options = text.namespace(line)
        yield Header(
            line=number,
            batch_size_per_device=text.count(number, "batch size", options.get("batch_size")),
            precision=text.precision(options.get("dtype")),
            total_steps=text.count(number, "number of steps", options.get("iterations")),
            log_every=text.count(number, "log interval", options.get("log_interval")),
        )
    elif world := _WORLD.search(line):
        yield Header(line=number, world_size=text.count(number, "world size", world[1]))


def columns(lines: str) -> Columns | None:
    """The steps of a whole log. Either every step follows its loss, or no step has a loss."""
    batches, rates, losses = text.transposed(_ENTRY.findall(lines), 3)
    if any(losses):
        if batches[::2] != batches[1::2] or any(rates[::2]):
            return None
        batches, rates, losses = batches[::2], rates[1::2], losses[::2]
    speeds, known = text.numbers(rates), text.optional_numbers(losses)
    if speeds is None or known is None:
        return None
    return Columns(list(map(int, batches)), speeds, known, [None] * len(speeds))


FORMAT = Format(
    name="gluoncv_horovod",
    sample="INFO:root:Epoch[0] Batch[2]\tSpeed: 2.05 samples/sec",
    # One search finds both the lines with the rate and the lines with the loss between them.
    step_markers=("] Batch[",),
    head_markers=("Namespace(", "world_size="),
    parse=parse,
    columns=columns,
)
