"""Keras' `model.fit`: the time of a step, in whole ms or s, once in each epoch.

    Epoch 2/3
    312/312 [==============================] - 187s 599ms/step - loss: 5.2000 - accuracy: 0.0131
    312/312 ━━━━━━━━━━━━━━━━━━━━ 187s 599ms/step - accuracy: 0.0131 - loss: 5.2000
    312/312 - 187s - loss: 5.2000 - accuracy: 0.0131 - 187s/epoch - 599ms/step
    312/312 - 187s - 599ms/step - accuracy: 0.0131 - loss: 5.2000
    312/312 - 187s - loss: 5.2000 - accuracy: 0.0131

These are Keras 2 and 3 with a bar, and with verbose=2; the last one, of TensorFlow 2.2 to 2.4, has
the seconds of an epoch only, as has the bar of Keras before 2.0.9. The bar is written again and
again, with carriage returns. The time of a step is the mean of an epoch without its first step.

The seconds of the epoch, which has so many steps, give more digits if a step takes more than a
second. In Keras 2 both include the validation of the epoch; Keras 3 prints the bar of the last step
before it, too. A first epoch whose time has too few digits is left out.

Before TensorFlow 2.2, a bar counts samples if `fit` has arrays: `88us/step`, later `88us/sample`,
is then the time of a sample. Such logs are refused, as the devices of a process are not known.

They have a line "Train on 50000 samples", unlike excerpts. A log is taken for one of them if a step
is shorter than 1 ms, if an epoch has thousands of them that take less than 20 ms, or if the
accuracy is `acc`, as before Keras 2.3.

It is not if it has the bar of the first step, a line "Train for 782 steps", or the lines of a later
version.

Where each rank of Horovod prints, the first line of an epoch counts if their times agree.

The tutorial's `Number of devices: 8` says on how many devices the process trains.

Source: keras-team/keras 3422977 and v2.15, keras/src/utils/progbar.py and generic_utils.py;
keras-team/keras 2.2.4 and tensorflow/tensorflow v2.1.0, python/keras/engine/training_v2_utils.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from . import text
from .records import Columns, Format, LineError, Refusal, StepTable, stated
from .statements import headers
from .steps import counted_blocks

_SECONDS = {b"us": 1e-6, b"ms": 1e-3, b"s": 1.0}
_MOST_ROUNDED = 0.05  # of a time, as a share
_ALIKE = 1.1  # times of processes, the longest by the shortest
_EPOCH = rb"Epoch (?P<epoch>\d{1,6}+)/\d{1,6}+[ \r\n]"
_LOSS = re.compile(rb" - loss: ([^\s\x08]{1,40}+)")
_LONGEST = 2000  # bytes in the line of an epoch
_VALIDATED = "the times of the epochs include their validations"
_SAMPLES = Refusal(
    "this version of Keras counts samples, not steps",
    expected="steps, as since TensorFlow 2.2",
    hint="a process trains one sample in the printed time, which gives its samples/s; for a table,"
    " use TensorFlow 2.2 or newer",
)
_TIMED = _SAMPLES._replace(
    hint="a process trains one sample in that time: state whose it is, with the unit of the log\n"
    "  --regex 'Epoch (?P<step>\\d+)/|s (?P<step_time>\\d+)us/sample' --rates-are-per WHOSE\n"
    "  WHOSE: device under Horovod or with one GPU, world or node if one process drives all GPUs",
)
_TRAIN_ON = r"\bTrain on \d{1,12}+ samples(?>(?:, validate on \d{1,12}+ samples)?)\s*+$"
_LEAST_STEP = 1e-3  # s; a shorter time may be that of a sample
_MANY, _SHORT = 5000, 0.02  # steps of an epoch, and s; samples if there are more, and shorter ones
# What shows that a bar counts steps: its first state, or a line of TensorFlow 2.0 and 2.1.
_OF_STEPS = rb"(?P<of_steps>(?<!\d)1/\d{1,9}+ \[[=>.]{1,99}+\] - ETA: |Train for \d{1,9}+ steps)"
_SIGNS = (b"] - ETA: ", b"Train for ")


class _End(NamedTuple):
    """A line with the end of an epoch: the time of a step and half of its last digit, the seconds
    of the epoch, the loss, whether the validation is over, whether some versions print such a line
    of samples, and whether it has the words of these."""

    step: float
    half: float
    elapsed: int | None
    loss: float | None
    validated: bool
    may_be_of_samples: bool
    has_old_words: bool
    line: int


def as_table(form: Format, entry: re.Pattern[bytes], pieces: Iterable[bytes]) -> StepTable:
    """The rate of each epoch. Raises LineError if a time has too few digits."""
    scan = re.compile(rb"%s|%s|%s" % (_EPOCH, _OF_STEPS, entry.pattern))
    table, ends = StepTable([], Columns()), dict[tuple[int, int], list[_End]]()
    epoch, of_steps = 1, False
    markers = [b"Epoch ", *_SIGNS, *form.markers]
    for block, of_rank in counted_blocks(form, pieces, markers=markers):
        table.headers.extend(headers(form, block, of_rank))
        for match in scan.finditer(of_rank.data):
            if match["epoch"]:
                epoch = int(match["epoch"])
            elif match["of_steps"]:
                of_steps = True
            elif match["step"] == match["of_epoch"]:
                end = _end(match, of_rank.line(match.start("rate")))
                ends.setdefault((epoch, int(match["step"])), []).append(end)
    if not of_steps:
        _check_steps(ends)
    return _of_epochs(table, ends)


def _check_steps(ends: Mapping[tuple[int, int], Sequence[_End]]) -> None:
    """Raise LineError if steps are so short that they may be samples."""
    for (_, length), (end, *_) in ends.items():
        limit = _SHORT if length >= _MANY else _LEAST_STEP
        if end.may_be_of_samples and (end.step < limit or end.has_old_words):
            hint = "if they are samples, a process trains one in that time"
            if unit := next((n.decode() for n, s in _SECONDS.items() if s == 2 * end.half), ""):
                hint += (
                    ": its samples/s are those with --global-batch-size 1; if they are steps, state"
                    " the batch\n  --unit samples --regex"
                    f" 'Epoch (?P<step>\\d+)/|s (?P<step_time>\\d+){unit}/step'"
                )
            raise LineError(
                end.line,
                "these may be samples instead of steps, as before TensorFlow 2.2",
                expected=f"all states of the bar, from 1/{length}, or verbose=2 in TensorFlow 2.5",
                found=f"{length}/{length} in {1000 * end.step:.3g} ms each",
                hint=hint,
            )


def _end(match: re.Match[bytes], line: int) -> _End:
    # The seconds of an epoch stand for the time of a step where that is not printed.
    unit = _SECONDS.get(match["unit"]) or 1 / int(match["step"])
    whole = re.split(rb"[\r\n]", match.string[match.start() : match.end() + _LONGEST], maxsplit=1)[
        0
    ]
    (loss,) = text.optional_numbers(_LOSS.findall(whole)[:1] or [b""])
    elapsed = int(match["elapsed"]) if match["elapsed"] else None
    may_be_of_samples = b"/step" not in whole or b" [" in match[0]
    return _End(
        *(int(match["rate"]) * unit, unit / 2, elapsed, loss),
        *(b" - val_" in whole, may_be_of_samples, b" - acc: " in whole, line),
    )


def _seconds(length: int, first: _End, others: Sequence[_End]) -> tuple[float, float]:
    """The time of a step, and how far it may be off. Keras 3 prints the seconds of the epoch behind
    its first line."""
    elapsed = first.elapsed
    if not first.validated:
        elapsed = next((end.elapsed for end in others if not end.validated), elapsed)
    least, most = first.step - first.half, first.step + first.half
    if elapsed:
        low, high = (elapsed - 0.5) / length, (elapsed + 0.5) / length
        if max(least, low) < min(most, high):
            least, most = max(least, low), min(most, high)
    return (least + most) / 2, (most - least) / 2


def _are_ranks(epochs: Sequence[Sequence[_End]]) -> bool:
    """True if several processes end each epoch: equally many, about equally fast, and all before
    the next one."""
    in_turn = all(a[-1].line < b[0].line for a, b in pairwise(epochs) if a and b)
    times = [[end.step for end in epoch] for epoch in epochs]
    alike = all(
        max(each) - 2 * epoch[0].half <= _ALIKE * min(each)
        for each, epoch in zip(times, epochs, strict=True)
        if each
    )
    return len(epochs) > 1 and len({len(epoch) for epoch in epochs}) == 1 and in_turn and alike


def _of_epochs(table: StepTable, ends: Mapping[tuple[int, int], Sequence[_End]]) -> StepTable:
    """The table of these epochs. Lines with another number of steps are of an evaluation."""
    lines: list[int] = []
    notes: set[str] = set()
    length = next((length for _, length in ends), 0)
    trained = [(epoch, of_epoch) for (epoch, steps), of_epoch in ends.items() if steps == length]
    finishes = [[end for end in of_epoch if end.elapsed] for _, of_epoch in trained]
    are_ranks = _are_ranks(finishes)
    for index, (epoch, (first, *others)) in enumerate(trained):
        finished = finishes[index]
        if len(finished) > 1 and are_ranks:
            notes.add(f"{len(finished)} processes print each epoch; the first line counts")
        elif len(finished) > 1:
            raise LineError(
                finished[1].line,
                f"epoch {epoch} ends twice",
                expected=f"once, as in line {finished[0].line}",
                found=f"another line with {length}/{length}",
                hint="do several runs or an evaluation write to this log? keep the lines of one",
            )
        seconds, half = _seconds(length, first, others)
        if half > _MOST_ROUNDED * seconds:
            if index == 0 and len(trained) > 2:
                continue
            raise LineError(
                first.line,
                "the time of a step has too few digits",
                expected=f"a time that is known within {_MOST_ROUNDED:.0%}",
                found=f"{1000 * seconds:.3g} ms, within {1000 * half:.2g}",
                hint="train with more samples in a step, or with TimeHistory of tensorflow/models",
            )
        table.columns.steps.append(epoch * length)
        table.columns.samples_per_second.append(1 / seconds)
        table.columns.losses.append(first.loss)
        table.columns.unix_times.append(None)
        lines.append(first.line)
        notes |= {_VALIDATED} if first.validated else set()
    return table._replace(lines=lines, notes=tuple(notes))


_ENTRY = re.compile(
    rb"(?P<step>\d{1,9}+)/(?P<of_epoch>\d{1,9}+) (?:\[[=>.]{1,99}+\] -|[\x80-\xff]{1,300}+|-) "
    rb"(?:(?P<elapsed>\d{1,7}+)s|\d[\d:]{2,9}+)(?>(?: -)?)(?:(?>[^\r\n]{0,1500}?s/epoch -))? "
    rb"(?P<rate>\d{1,9}+)(?P<unit>us|ms|s)/step"
)
# The devices of one process; those of several workers have other names.
_DEVICES = (
    stated("Number of devices: ", r"\ANumber of devices: (?P<world_size>[1-9]\d{0,8}+)\s*\Z"),
)
_BARS = Format(
    name="keras",
    sample="312/312 [==============================] - 187s 599ms/step - loss: 5.2000",
    marker=b"s/step",
    entry=_ENTRY,
    rate=rb"\d+",
    statements=(stated("Train on ", _TRAIN_ON, refusal=_SAMPLES), *_DEVICES),
    rates_are_per="step",
    counts_batches=True,
    framework="tensorflow2|tensorflow|jax|pytorch",
)
_EPOCHS_ENTRY = re.compile(
    rb"(?P<step>\d{1,9}+)/(?P<of_epoch>\d{1,9}+) (?>(?:\[={1,200}+\] )?)- "
    rb"(?P<rate>(?P<elapsed>\d{1,7}+))(?P<unit>s - )(?=loss: )(?![^\r\n]{0,1500}?s/step)"
)
_EPOCHS = replace(
    _BARS,
    sample="312/312 - 187s - loss: 5.2000 - accuracy: 0.0131",
    marker=b"s - loss: ",
    entry=_EPOCHS_ENTRY,
)
_OF_SAMPLES_ENTRY = re.compile(_ENTRY.pattern.replace(b"/step", b"/sample"))
_OF_SAMPLES = replace(
    _BARS,
    sample="50000/50000 [==============================] - 4s 88us/sample - loss: 5.2000",
    marker=b"s/sample",
    entry=_OF_SAMPLES_ENTRY,
    statements=(stated("s/sample", r"\b\d{1,9}+[mu]?s/sample", refusal=_TIMED),),
)
FORMAT = replace(
    _BARS,
    table=partial(as_table, _BARS, _ENTRY),
    variants=(
        replace(_EPOCHS, table=partial(as_table, _EPOCHS, _EPOCHS_ENTRY)),
        replace(_OF_SAMPLES, table=partial(as_table, _OF_SAMPLES, _OF_SAMPLES_ENTRY)),
    ),
)
