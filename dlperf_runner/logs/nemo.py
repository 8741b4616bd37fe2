"""NeMo 2: the time of a step, in s, or tokens/s of one device, as means since the line before.

    Training epoch 0, iteration 20/59 | lr: 3e-05 | global_batch_size: 128 | global_step: 20 |
      reduced_train_loss: 1.233 | train_step_timing in s: 12.41 |
      tokens_per_sec_per_gpu: 1.073e+04 | consumed_samples: 2688     (on one line)

Iterations count from 0; `59` is the last one. Numbers have four digits, whole ones no point. Newer
versions print tokens/s if they are asked to. Otherwise, the sequence length has to be stated. Lines
of `Validation` are no training. Only rank 0 prints, every `log_interval` steps. BioNeMo prints the
same.

    Epoch 0: :  47%|████▋     | 7/15 [06:19<07:13, v_num=, reduced_train_loss=11.50,
      global_step=5.000, consumed_samples=12288.0, train_step_timing in s=49.50]     (on one line)

Versions of 2023 and 2024 have this bar, in NVIDIA's DGXC recipes too. Its times have three digits,
and its first line of a step counts: after a validation, the bar is drawn again. The global batch
size follows from the samples of two lines.

Source: NVIDIA/NeMo 8cfedd7, nemo/lightning/pytorch/callbacks/progress_printer.py and
nemo/utils/exp_manager.py (TimingCallback); its pull request 7374 (September 2023, the bar).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from . import text
from .records import Columns, Expression, Format, Header, LineError, StepTable
from .steps import counted_blocks

_FIELDS = rb"(?:[^|\r\n]{0,120}+\|){0,25}?"
_RATE = text.rate_until(rb"(?: \||%s)" % text.END)


def _line(field: bytes) -> Expression:
    """The line of an iteration, with the field of its rate."""
    return Expression(
        rb"Training epoch \d{1,9}+, iteration (?P<step>\d{1,12}+)/(?P<last>\d{1,12}+) \|"
        rb"(?:(?>%(f)s global_batch_size: )(?P<batch>\d{1,12}+) \|)?"
        rb"(?:(?>%(f)s reduced_train_loss: )(?P<loss>%(w)s) \|)?"
        rb"(?>%(f)s %(field)s: )%(rate)s"
        % {b"f": _FIELDS, b"w": text.WORD, b"field": field, b"rate": _RATE}
    )


_OF_TOKENS = Format(
    name="nemo",
    sample="Training epoch 0, iteration 20/59 | ... | tokens_per_sec_per_gpu: 1.073e+04 | ...",
    marker=b" | tokens_per_sec_per_gpu: ",
    entry=_line(b"tokens_per_sec_per_gpu"),
    rate=rb"\d+(?:\.\d+)?(?:e\+\d\d)?",
    statements=(),
    zero_based=True,
    rates_are_per="device",
    batch_of_step=True,
    framework="pytorch",
    unit="tokens",
)
_OF_SECONDS = replace(
    _OF_TOKENS,
    sample="Training epoch 0, iteration 20/59 | ... | train_step_timing in s: 12.41 | ...",
    marker=b" | train_step_timing in s: ",
    entry=_line(b"train_step_timing in s"),
    seconds=1.0,
    rates_are_per="step",
)
_BAR = re.compile(
    rb"Epoch (?P<epoch>\d{1,6}+): : {1,8}+\d{1,3}+%%\|[^|\r\n]{0,1000}+\| "
    rb"(?P<step>\d{1,9}+)/(?P<of_epoch>[1-9]\d{0,8}+) \[[\d:]{4,12}+<[^,\]\r\n]{0,20}+, "
    rb"(?:v_num=[^\s,]{0,40}+, )?(?:reduced_train_loss=(?P<loss>[^\s,]{1,40}+), )?"
    rb"(?:global_step=(?P<at>\d{1,9}+)\.0{0,4}+, "
    rb"consumed_samples=(?P<samples>\d{1,15}+)\.0{0,4}+, )?"
    rb"(?>(?:(?!train_step)[^\s,=]{1,40}+=[^\s,\]]{1,40}+, ){0,8})train_step_timing in s=%s"
    % text.rate_until(rb"[,\]]")
)
_OF_BAR = replace(
    _OF_SECONDS,
    sample="Epoch 0: :  47%|████▋     | 7/15 [06:19<07:13, ... train_step_timing in s=49.50]",
    marker=b", train_step_timing in s=",
    entry=_BAR,
    rate=rb"\d+(?:\.\d*)?(?:e[+-]\d\d?)?",
)


def _of_bars(pieces: Iterable[bytes]) -> StepTable:
    """The first line of each step. Raises LineError if its time is invalid."""
    columns, lines, batch = Columns(), list[int](), list[Header]()
    first = length = at = samples = None
    for _, block in counted_blocks(_OF_BAR, pieces):
        for match in _BAR.finditer(block.data):
            first = int(match["epoch"]) if first is None else first
            length = int(match["of_epoch"]) if length is None else length
            step = (int(match["epoch"]) - first) * length + int(match["step"])
            if columns.steps[-1:] == [step]:
                continue
            line = block.line(match.start("rate"))
            try:
                columns.samples_per_second.append(text.rate_in(match, _OF_BAR))
            except LineError as error:
                raise error.at(line) from None
            lines.append(line)
            columns.steps.append(step)
            columns.losses += text.optional_numbers([match["loss"] or b""])
            columns.unix_times.append(None)
            if match["samples"] and not batch:
                if at is None or samples is None:
                    at, samples = int(match["at"]), int(match["samples"])
                elif (steps := int(match["at"]) - at) > 0:
                    of_step, rest = divmod(int(match["samples"]) - samples, steps)
                    batch += (
                        [] if rest or of_step < 1 else [Header(line, global_batch_size=of_step)]
                    )
    last = columns.steps[-1] if columns.steps else 0
    notes = [f"the log ends in its first epoch, at step {last} of {length}"]
    return StepTable(batch, columns, length, lines, notes if length and last < length else ())


FORMAT = replace(_OF_TOKENS, variants=(_OF_SECONDS, replace(_OF_BAR, table=_of_bars)))
