"""Lightning's progress bars, of tqdm and of rich: steps per second, in each epoch anew.

    Epoch 0:  12%|█▏        | 12/100 [00:04<00:29,  2.98it/s, loss=6.98, v_num=15]
    Epoch 0:  12% 12/100 [00:04<00:29,  2.98it/s, loss=6.98, v_num=15]         (in notebooks)
    Epoch 0: |          | 12/? [00:04<00:00,  2.98it/s, v_num=15]     (of a data set without length)
    Epoch 0/9 ━━━╸━━━━━━━━━━━━━━ 12/100 0:00:04 • 0:00:29 2.98it/s v_num: 0.000 loss: 6.980

A bar is written again and again, with carriage returns. Its rate is a running mean: since version
0.7.4 (2020) the bar of tqdm divides all steps of the epoch by their time, and that of rich has the
mean of 30 s.

So the time of a step is the number of steps by the rate, if the printed time agrees, which has
whole seconds, and if that time never goes back; else rates are those of the steps before them.

What is read is the rate of each tenth of an epoch, or of longer parts if there are fewer lines.
A bar with `consumed_samples` is that of NeMo's Megatron models: its steps train a global batch,
which follows from the samples of two bars.

Lines behind the first one of a validation do not count: the time of the bar goes on, and before
version 2 its steps do. Only rank 0 prints. Slow steps are printed as s/it before 2023.

Source: Lightning-AI/pytorch-lightning 7f0c343, 2d75202 (2023), e982800 (2021) and 3e8f2d9 (2020),
callbacks/progress (tqdm_progress.py, rich_progress.py); tqdm 4.66, tqdm/std.py (format_meter).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from statistics import harmonic_mean, median_high
from typing import NamedTuple

from . import text
from .records import Columns, Format, Header, LineError, StepTable, stated
from .statements import headers
from .steps import counted_blocks

PARTS = 10  # of an epoch
_ROUNDED = 0.005  # two decimals
_NEAR = 1.5  # seconds
_FEW = 0.1  # damaged lines, as a share
_VALIDATION = b"Validati"
_CONSUMED = re.compile(
    rb"[^\r\n]{0,600}?, consumed_samples=(?:(\d{1,15}+)(?>(?:\.0{1,4}+)?)[,\]])?"
)


class Update(NamedTuple):
    """A bar at a time. `rate` is in steps per second; `least` and `most`, in seconds, are the times
    since the start of the epoch that agree with it if it is a mean since then. `elapsed` is the
    printed time in whole seconds."""

    step: int
    rate: float
    least: float
    most: float
    elapsed: int
    loss: float | None
    line: int

    @property
    def seconds(self) -> float | None:
        """The time since the start of the epoch; None if the printed time does not agree."""
        least, most = max(self.least, self.elapsed), min(self.most, self.elapsed + 1)
        return min(max(self.step / self.rate, least), most) if least <= most else None


@dataclass
class Epoch:
    """The bar of an epoch with so many steps; `validated`: its validation has begun."""

    length: int
    updates: list[Update] = field(default_factory=list)
    validated: bool = False


def update_of(match: re.Match[bytes], line: int) -> Update | None:
    """The content of a match; None if its bar has not begun to count."""
    step, rate, elapsed = int(match["step"]), float(match["rate"]), 0
    for part in match["elapsed"].split(b":"):
        elapsed = 60 * elapsed + int(part or 0)
    low, high = max(rate - _ROUNDED, 1e-9), rate + _ROUNDED
    if match["unit"].startswith(b"s/"):
        low, high, rate = 1 / high, 1 / low, 1 / rate if rate else 0.0
    if not step or not 0 < rate < text.FASTEST:
        return None
    (loss,) = text.optional_numbers([match["loss"] or b""])
    return Update(step, rate, step / high, step / low, elapsed, loss, line)


def _read(
    form: Format, entry: re.Pattern[bytes], pieces: Iterable[bytes]
) -> tuple[list[Header], dict[int, Epoch]]:
    """The headers, and the updates of each epoch, of the first rank that has a bar."""
    scan = re.compile(rb"(?P<validation>%s)|%s" % (_VALIDATION, entry.pattern))
    stated: list[Header] = []
    epochs: dict[int, Epoch] = {}
    epoch, consumed = None, list[tuple[Update, int | None]]()
    markers = [form.marker, _VALIDATION, *(s.marker.encode() for s in form.statements)]
    for block, of_rank in counted_blocks(form, pieces, markers=markers):
        stated += headers(form, block, of_rank)
        row = before = 0
        has_samples = b"consumed_samples=" in of_rank.data
        for match in scan.finditer(of_rank.data):
            row, before = row + of_rank.data.count(b"\n", before, match.start()), match.start()
            if match["validation"]:
                if epoch:
                    epoch.validated = True
                continue
            line = of_rank.numbers[row] if of_rank.numbers else of_rank.first + row
            number, length = int(match["epoch"]), match["of_epoch"] or b""
            epoch = epochs.setdefault(number, Epoch(int(length) if length.isdigit() else 0))
            update, last = update_of(match, line), epoch.updates[-1:]
            if update and not epoch.validated and not (last and update.step <= last[0].step):
                epoch.updates.append(update)
                seek = has_samples and len(consumed) < 2
                samples = seek and _CONSUMED.match(of_rank.data, match.end())
                if samples and (samples[1] or not consumed):
                    consumed.append((update, int(samples[1]) if samples[1] else None))
    for each in epochs.values():
        if not each.length and each.updates:  # of a data set without length
            each.length = each.updates[-1].step
    return stated + _global_batch(consumed), epochs


def _global_batch(consumed: Sequence[tuple[Update, int | None]]) -> list[Header]:
    """The batch of a step of NeMo's Megatron models, which all devices share: the samples between
    two bars, by their steps. Raises LineError if the bars have only rounded samples."""
    if not consumed:
        return []
    (first, before), (last, after) = consumed[0], consumed[-1]
    steps = last.step - first.step
    if before is None or after is None or steps < 1 or (after - before) % steps:
        raise LineError(
            first.line,
            "a step of this bar trains a global batch, which does not follow from it",
            expected="two bars of an epoch with all digits of consumed_samples",
            found="none",
            hint="give the log from its beginning: later consumed_samples are rounded",
        )
    return [Header(first.line, global_batch_size=(after - before) // steps)]


def are_means(epochs: Iterable[Epoch]) -> bool:
    """True if rates are means since the start of an epoch: the printed time agrees, and the time
    that follows never goes back."""
    number = contradictions = 0
    for epoch in epochs:
        last = 0.0
        for update in epoch.updates:
            number += 1
            contradictions += update.seconds is None or update.most < last
            last = update.least
    return contradictions <= _FEW * number


def _interval(epochs: Iterable[Epoch]) -> int:
    """The usual number of steps between two updates."""
    steps = ([0, *(update.step for update in epoch.updates)] for epoch in epochs)
    return median_high([b - a for one in steps for a, b in pairwise(one)] or [0])


def _of_means(epoch: Epoch, every: int) -> Iterator[tuple[Update, float]]:
    """The rate of each part of an epoch whose rates are means since its start, with the update at
    its end. A part without updates near its ends has none."""
    updates = [update for update in epoch.updates if update.seconds is not None]
    steps = [0, *(update.step for update in updates)]
    seconds = [0.0, *(update.seconds or 0.0 for update in updates)]
    before: float | None = 0.0
    for end in range(every, epoch.length + 1, every):
        at = bisect_left(steps, end)
        if at == len(steps):
            return
        share = (end - steps[at - 1]) / (steps[at] - steps[at - 1])
        time = seconds[at - 1] + share * (seconds[at] - seconds[at - 1])
        near = steps[at] - steps[at - 1] <= 2 * every
        update = updates[at - 1]
        if near and before is not None:
            if time <= before:
                raise LineError(
                    update.line,
                    "the time of the progress bar does not advance",
                    expected=f"more than {before:.1f} s at step {end}",
                    found=f"{time:.1f} s",
                )
            yield update._replace(step=end), every / (time - before)
        before = time if near else None


def _of_steps(epoch: Epoch, every: int) -> Iterator[tuple[Update, float]]:
    """The rate of each part of an epoch whose rates are those of the steps before them. Raises
    LineError if the printed time contradicts them."""
    first = trained = None
    for end in range(every, epoch.length + 1, every):
        updates = [u for u in epoch.updates if end - every < u.step <= end]
        if not updates:
            continue
        last, rate = updates[-1], harmonic_mean([update.rate for update in updates])
        if first is None or trained is None:
            first, trained = last.elapsed, 0.0
        else:
            trained += every / rate
        if abs(last.elapsed - first - trained) > _NEAR + 0.2 * trained:
            raise LineError(
                last.line,
                "the rates of the progress bar contradict its time",
                expected=f"about {first + trained:.0f} s at step {last.step}",
                found=f"{last.elapsed} s",
            )
        yield last._replace(step=end), rate


def as_table(form: Format, entry: re.Pattern[bytes], pieces: Iterable[bytes]) -> StepTable:
    """The rates of the parts of each epoch. Raises LineError if they are not to be understood."""
    return table_of(*_read(form, entry, pieces))


def table_of(stated: list[Header], epochs: Mapping[int, Epoch]) -> StepTable:
    """The rates of the parts of these epochs. Raises LineError if they contradict their times."""
    columns, lines = Columns(), []
    first = next(iter(epochs), 0)
    length = epochs[first].length if epochs else 0
    longest = max((epoch.updates for epoch in epochs.values()), key=len, default=[])
    # A run may end within its first epoch, and an excerpt before its first tenth.
    last = longest[-1].step if longest else 0
    trained = last if len(longest) > 2 * PARTS or last < length // PARTS else length
    every = max(1, min(length, trained) // PARTS, _interval(epochs.values()))
    parts = _of_means if are_means(epochs.values()) else _of_steps
    for number, epoch in epochs.items():
        for update, rate in parts(epoch, every):
            columns.steps.append((number - first) * length + update.step)
            columns.samples_per_second.append(rate)
            columns.losses.append(update.loss)
            columns.unix_times.append(None)
            lines.append(update.line)
    notes = [f"the log ends in its first epoch, at step {trained} of {length}"]
    return StepTable(stated, columns, length or None, lines, notes if trained < length else ())


_COUNT = rb"(?P<step>\d{1,9}+)/(?P<of_epoch>\d{1,9}+)"
_RATE = rb" {1,8}+(?P<rate>\d{1,9}+\.\d{1,9}+)(?P<unit>it/s|s/it)"
_LOSS = rb"(?:[^\r\n\]]{0,200}?(?<!val)[ _]loss(?:_step)?(?:=|: )(?P<loss>[^\s,\]]{1,40}+))?"
_TQDM_BAR = re.compile(
    rb"Epoch (?P<epoch>\d{1,6}+):(?>(?: {1,8}+\d{1,3}+%%)?)(?>(?: ?\|[^|\r\n]{0,1000}+\|| :)?) "
    rb"(?P<step>\d{1,9}+)(?:/(?P<of_epoch>\d{1,9}+|\?)|it) "
    rb"\[(?P<elapsed>[\d:]{4,12}+)(?>(?:<[^,\]\r\n]{0,20}+)?),%s%s" % (_RATE, _LOSS)
)
_TQDM = Format(
    name="lightning",
    sample="Epoch 0:  12%|█▏        | 12/100 [00:04<00:29,  2.98it/s, loss=6.98, v_num=15]",
    marker=b"Epoch ",
    entry=_TQDM_BAR,
    rate=rb"\d+\.\d+",
    statements=(
        stated("Starting with ", r"\bStarting with (?P<world_size>\d{1,9}+) processes"),
        stated("MEMBER: ", r"\bMEMBER: \d{1,9}+/(?P<world_size>\d{1,9}+)"),
        stated(  # before version 1.5
            "16bit precision.", r"Using (?:native|APEX) (?P<precision>16)bit", values={"16": "amp"}
        ),
        stated(
            "utomatic Mixed Precision (AMP)",
            r"Using (?P<precision>16|bf16|bfloat16) ?(?:bit )?(?:native )?Automatic",
            values={"16": "amp"},
        ),
    ),
    rates_are_per="step",
    counts_batches=True,
    framework="pytorch",
    caveat="the bar prints a mean, so the rate of an excerpt that begins within an epoch may be a"
    " few percent off",
)
_RICH_BAR = re.compile(
    rb"Epoch (?P<epoch>\d{1,6}+)/\d{1,6}+ {1,8}+[^\d\r\n]{0,1000}+%s "
    rb"(?P<elapsed>\d[\d:]{3,11}+) \xe2\x80\xa2 [-\d:]{4,12}+%s%s" % (_COUNT, _RATE, _LOSS)
)
_RICH = replace(
    _TQDM,
    sample="Epoch 0/9 ━━━╸━━━━━━━━━━━━━━ 12/100 0:00:04 • 0:00:29 2.98it/s v_num: 0.000 loss: 6.98",
    entry=_RICH_BAR,
)
FORMAT = replace(
    _TQDM,
    table=partial(as_table, _TQDM, _TQDM_BAR),
    variants=(replace(_RICH, table=partial(as_table, _RICH, _RICH_BAR)),),
)
