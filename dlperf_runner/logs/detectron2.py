"""detectron2: the printed time is that of a step, in s, the mean of all steps so far without the
first two of the process.

    [11/01 11:23:38 d2.utils.events]:  eta: 8:08:27  iter: 639  total_loss: 1.194  loss_cls: 0.831
      time: 0.3326  last_time: 0.3301  data_time: 0.0328  last_data_time: 0.0311   lr: 0.006394
      max_mem: 3961M       (on one line)

    [07/21 14:40:44 lb.utils.events]:  eta: 0:09:57  iteration: 99/220  consumed_samples: 6400
      total_loss: 9.32  lm_loss: 8.6  time: 0.3326 s/iter  data_time: 0.0008 s/iter
      total_throughput: 192.42 samples/s lr: 1.00e-04      (of OneFlow's LiBai, on one line)

`last_time`, of one step, is printed since 2023; there may be no `eta`. Iterations count from 0. The
first process prints every 20 of them: 19, 39 ... Evaluations and checkpoints are not in the times.

Rates are those of the steps between two lines, by both means. Those have four decimals, so late in
a run a rate takes as many lines as make it known within 2 %. If they depend on it, the first
iteration of the process has to be known, from `Starting training from iteration`.

Source: facebookresearch/detectron2 989f52d (2019), da8c500 (2023) and 02b5c4e (2026),
detectron2/utils/events.py (CommonMetricPrinter), engine/hooks.py (IterationTimer, PeriodicWriter);
Oneflow-Inc/libai 00ecbf0, libai/utils/events.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from . import text
from .records import Columns, Entries, Expression, Format, Header, LineError, StepTable, stated
from .statements import headers
from .steps import counted_blocks

_UNCOUNTED = 2  # steps
_HALF = 0.00005  # of the last decimal, in s
_MOST_ROUNDED = 0.02  # of a time, as a share


class _Line(NamedTuple):
    """The steps up to a line, those of its mean time, which is in s, the loss, and the number of
    the line."""

    step: int
    counted: int
    mean: float
    loss: float | None
    line: int


def as_table(form: Format, scan: Entries, pieces: Iterable[bytes]) -> StepTable:
    """The rates between lines. Raises LineError if they do not follow from the means. Of several
    batch sizes before a line, the last one is used: the command line changes that of a file."""
    table, lines, batch = StepTable([], Columns()), list[_Line](), list[Header]()
    start = None
    markers = [b"Starting training ", b"IMS_PER_BATCH: ", *form.markers]
    for block, of_rank in counted_blocks(form, pieces, markers=markers):
        table.headers.extend(headers(form, block, of_rank))
        for match in scan.finditer(of_rank.data):
            at = of_rank.line(match.start())
            if match["start"]:
                start = int(match["start"])
            elif match["batch"]:
                batch = [Header(at, global_batch_size=int(match["batch"]))]
            else:
                table.headers.extend(batch)
                mean, loss = text.optional_numbers([match["rate"], match["loss"] or b""])
                step, batch = int(match["step"]) + 1, []
                counted = max(1, step - (start or 0) - _UNCOUNTED)
                lines.append(_Line(step, counted, mean or 0.0, loss, at))
    table.headers.extend(batch)
    stride = _stride(lines, start)
    kept = lines[stride - 1 :: stride]
    for before, line in pairwise([*lines[:1], *kept]):
        steps, seconds = line.step - before.step, line.counted * line.mean
        seconds -= before.counted * before.mean
        if steps < 1:  # the first line, or the steps do not follow
            steps, seconds = 1, line.mean
        if seconds <= 0:
            raise _unknown(line, f"does not follow from that of line {before.line}")
        table.columns.samples_per_second.append(steps / seconds)
    table.columns.steps, table.columns.losses = [n.step for n in kept], [n.loss for n in kept]
    table.columns.unix_times = [None] * len(kept)
    return table._replace(lines=[line.line for line in kept])


def _stride(lines: Sequence[_Line], start: int | None) -> int:
    """The number of lines of which a rate is known well enough. Raises LineError if the log has
    hardly more, or if the rates depend on where the process began, which nothing says."""
    if len(lines) < 2 or (interval := lines[1].step - lines[0].step) < 1:
        return 1
    first, last = lines[0], lines[-1]
    rounded = 2 * _HALF * last.counted / (_MOST_ROUNDED * interval * max(last.mean, _HALF))
    if (stride := max(1, math.ceil(rounded))) > len(lines) // 2:
        raise _unknown(last, "has too few digits for so few lines")
    seconds = last.counted * last.mean - first.counted * first.mean
    by_start = max(0, first.step - interval) * (last.mean - first.mean)
    if start is None and abs(by_start) > _MOST_ROUNDED * abs(seconds):
        raise _unknown(first, "depends on the first iteration of its process")
    return stride


def _unknown(line: _Line, why: str) -> LineError:
    return LineError(
        line.line,
        f"the mean time of a step {why}",
        expected="lines of one process, from `Starting training from iteration` on",
        found=f"{line.mean:.4f} in iteration {line.step - 1}",
        hint="give all lines of the process, or those of its first 1000 iterations",
    )


_ENTRY = (
    rb" iter: (?P<step>\d{1,12}+)  (?:total_loss: (?P<loss>%s)  )?(?>[^\r\n]{0,8000}?(?<= )"
    rb"time: )(?P<rate>\d{1,6}+\.\d{4})  (?=last_time: |data_time: | ?lr: )" % text.WORD
)
_LINES = Format(
    name="detectron2",
    sample="eta: 8:08:27  iter: 639  total_loss: 1.194  ...  time: 0.3326  data_time: 0.0328 ...",
    marker=b" iter: ",
    entry=Expression(_ENTRY),
    rate=rb"\d+\.\d{4}",
    statements=(
        stated("World size: ", r"Rank of current process: \d+\. World size: (?P<world_size>\d+)"),
    ),
    zero_based=True,
    seconds=1.0,
    rates_are_per="step",
    framework="pytorch",
)
_SETTINGS = (
    rb"Starting training from iteration (?P<start>\d{1,12}+)"
    rb"|(?m:^) {1,8}IMS_PER_BATCH: (?P<batch>\d{1,9}+)(?!\S|\r?\n\d)|"
)
_LIBAI_ENTRY = (
    rb" iteration: (?P<step>\d{1,12}+)/\d{1,12}+  consumed_samples: \d{1,15}+  "
    rb"(?:total_loss: (?P<loss>%s)  )?(?>[^\r\n]{0,2000}?(?<= )time: )(?P<rate>\d{1,6}+\.\d{4})"
    rb" s/iter  " % text.WORD
)
_LIBAI = replace(
    _LINES,
    sample="eta: 0:09:57  iteration: 99/220  consumed_samples: 6400  ...  time: 0.3326 s/iter ...",
    marker=b" iteration: ",
    entry=Expression(_LIBAI_ENTRY),
    framework="oneflow",
)
FORMAT = replace(
    _LINES,
    table=partial(as_table, _LINES, Expression(_SETTINGS + _ENTRY)),
    variants=(
        replace(_LIBAI, table=partial(as_table, _LIBAI, Expression(_SETTINGS + _LIBAI_ENTRY))),
    ),
)
