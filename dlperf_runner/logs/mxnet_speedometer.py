"""InsightFace's ArcFace on MXNet: the printed rate is that of one node's process, over 20 steps.

train.py, data parallel (mx.callback.Speedometer), and train_parall.py, model parallel:

    INFO:root:Epoch[0] Batch [0-20]<TAB>Speed: 1.32 samples/sec<TAB>acc=0.000000<TAB>lossvalue=41.5
    INFO:root:Iter[0] Batch [20]<TAB>Speed: 5.97 samples/sec

A process drives all devices of its node (`ctx_num`). Batches effectively count from 1: the line
with 20 covers the batches up to the 20th. Epochs after the first are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from . import text
from .records import Columns, Format, Header, Line, Step

_ENTRY = re.compile(
    r"(?:Epoch|Iter)\[0\] Batch \[(?:\d+-)?(\d{1,12})\][^\S\n]+Speed: (\S+) samples/sec"
    r"(?:[^\S\n]+acc=\S+[^\S\n]+lossvalue=(\S+))?",
    re.ASCII,
)
_MAX_STEPS = re.compile(r"'max_steps': ([1-9]\d*)", re.ASCII)


def parse(lines: Iterable[Line]) -> Iterator[Step | Header]:
    """Steps and headers, in the order of the log."""
    for number, line, rank in text.by_rank(lines):
        if "Namespace(" in line:
            yield _header(number, line)
            continue
        for batch, printed, loss in _ENTRY.findall(line):
            value = text.rate(number, printed)
            known = text.optional_number(loss or None)
            yield Step(int(batch), value, number, printed, known, None, rank)


def _header(number: int, line: str) -> Header:
    # Called with argument: Namespace(batch_size=2, ctx_num=1, frequent=20, ...) {'max_steps': 120}
    options = text.namespace(line)
    steps = _MAX_STEPS.search(line)
    return Header(
        line=number,
        batch_size_per_device=text.count(number, "batch size", options.get("per_batch_size")),
        world_size=text.count(number, "number of devices", options.get("ctx_num")),
        precision=text.precision(options.get("dtype")),  # only this project's script prints it
        total_steps=text.count(number, "number of steps", steps[1] if steps else None),
        log_every=text.count(number, "log interval", options.get("frequent")),
    )


def columns(lines: str) -> Columns | None:
    """The steps of a whole log."""
    batches, rates, losses = text.transposed(_ENTRY.findall(lines), 3)
    speeds, known = text.numbers(rates), text.optional_numbers(losses)
    if speeds is None or known is None:
        return None
    return Columns(list(map(int, batches)), speeds, known, [None] * len(speeds))


FORMAT = Format(
    name="mxnet_speedometer",
    sample="INFO:root:Epoch[0] Batch [0-20]\tSpeed: 1.32 samples/sec",
    step_markers=("samples/sec",),
    head_markers=("Namespace(",),
    parse=parse,
    columns=columns,
)
