"""litgpt: the time of one iteration, in ms: of one of the accumulated batches on each device.

    Epoch 1 | iter 4 step 1 | loss train: 10.960, val: n/a | iter time: 1483.35 ms (step) remaining
      time: 1:02:11     (on one line; fine-tuning programs print no remaining time)

Iterations count from 1, and several are a step if batches are accumulated; `(step)` marks the last
one of a step, which also updates the weights. Fine-tuning prints every iteration; pretraining, each
`log_interval` steps, only the last one of a step. The program shows its settings first:

    {'devices': 8,
     'precision': 'bf16-mixed',
     'train': {'global_batch_size': 128, 'max_seq_length': 2048, 'micro_batch_size': 4, ...

The batch size of the run is thus the micro batch, which fine-tuning shows as `micro_batch_size=4,`.
The lines that update the weights say how many iterations are a step, unless their number changed
when the run was resumed. Fine-tuning samples are as long as their texts, unless the user states a
sequence length, which is then the longest.

Until March 2024, there were three other wordings. The first one counts iterations from 0:

    iter 3 step 2: loss 10.8000, iter time: 214.00ms (optimizer.step)
    iter 40 | step 5: loss 1.5780, iter time: 260.51 ms (optimizer.step)
    Ep 1 | iter 4 | step 1: loss train (curr): 1.634, val (prev val iter): None | iter time: 136 ms

With accumulated batches, they are read if each iteration has a line: among some of them, those
that update the weights are more or less frequent than in the run.

Source: Lightning-AI/litgpt 2685705, litgpt/pretrain.py, litgpt/finetune/*.py and litgpt/utils.py
(capture_hparams); its issues 689 and 834 (2023) and 1042 (January 2024), pull request 1055.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import ClassVar

from .reader import Block
from .records import Expression, Format, LineError, Statement, stated


def _setting(name: str, value: str, **values: str) -> Statement:
    return stated(f"'{name}': ", rf"'{name}': {value}", values=values)


_PRECISIONS = {
    "bf16-mixed": "bf16",
    "bf16-true": "bf16",
    "16-mixed": "amp",
    "16-true": "fp16",
    "32-true": "float32",
}

# (step), (optimizer.step) and (opt.step)
_UPDATE = stated(
    "step)",
    r"\biter (?P<iterations>\d{1,12}+)(?: \|)? st[eE]p (?P<updates>[1-9]\d{0,11}+)\b.{0,200}?"
    r" iter time: [\d.]{1,20}+ ?ms,? \((?:optimizer\.|opt\.)?step\)",
)
_SINCE_2024 = Format(
    name="litgpt",
    sample="Epoch 1 | iter 4 step 1 | loss train: 10.960, val: n/a | iter time: 1483.35 ms (step)",
    marker=b" | iter time: ",
    entry=Expression(
        rb"\| iter (?P<step>\d{1,12}+) step \d{1,12}+ \| loss train: (?P<loss>[^\s,]{1,64}+),"
        rb" val: \S{1,64}+ \| iter time: (?P<rate>\S{1,64}+) ms"
    ),
    rate=rb"\d+\.\d\d",
    statements=(
        _setting("devices", r"(?P<devices_of_node>[1-9]\d{0,8}+)"),
        _setting("micro_batch_size", r"(?P<batch_size_per_device>\d{1,9}+)"),
        stated(" micro_batch_size=", r" micro_batch_size=(?P<batch_size_per_device>\d{1,9}+),"),
        _setting("max_seq_length", r"(?P<sequence_length>\d{1,9}+)"),
        _setting("precision", r"'(?P<precision>[a-z\d-]{1,16}+)'", **_PRECISIONS),
        _UPDATE,
    ),
    one_step=True,
    seconds=0.001,
    rates_are_per="step",
    counts_batches=True,
    accumulates=True,
    framework="pytorch",
    caveat="pretraining prints the time of the last of the accumulated batches, which also updates"
    " the weights, so its rates are a little low where a step has several",
    unit="tokens",
)
_ITERATION = re.compile(rb"\biter (\d{1,12}+)(?: \|)? st[eE]p (\d{1,12}+): ")


class _Interval:
    """The first two iterations with a line."""

    markers: ClassVar[tuple[bytes, ...]] = (b"iter time: ",)

    def __init__(self) -> None:
        self._numbers: list[int] = []

    def __call__(self, block: Block) -> None:
        """Raise LineError if only some of the iterations have a line, and a step has several."""
        for line in _ITERATION.finditer(block.data):
            if len(self._numbers) == 2:
                return
            number, step = map(int, line.groups())
            if self._numbers and number > self._numbers[0] + 1 and number >= 2 * step:
                raise LineError(
                    block.line(line.start()),
                    "a line has the time of one of several iterations, and only some of them update"
                    " the weights",
                    expected=f"a line for iteration {self._numbers[0] + 1}",
                    found=f"iteration {number} of step {step}",
                    hint="measure again with a log interval of 1 (log_interval), or without"
                    " accumulated batches",
                )
            self._numbers.append(number)


_OF_2023 = replace(
    _SINCE_2024,
    sample="iter 3 step 2: loss 10.8000, iter time: 214.00ms (optimizer.step)",
    marker=b", iter time: ",
    entry=Expression(
        rb"\biter (?P<step>\d{1,12}+) step \d{1,12}+: (?:loss (?P<loss>[^\s,]{1,64}+), )?"
        rb"iter time: (?P<rate>[\d.]{1,64}+)ms"
    ),
    zero_based=True,
    watch=_Interval,
    caveat=None,
)
_OF_JANUARY_2024 = replace(
    _OF_2023,
    sample="iter 40 | step 5: loss 1.5780, iter time: 260.51 ms (optimizer.step)",
    entry=Expression(
        rb"\biter (?P<step>\d{1,12}+)(?: \|)? step \d{1,12}+: loss (?P<loss>[^\s,]{1,64}+),"
        rb" iter time: (?P<rate>\S{1,64}+) ms"
    ),
    zero_based=False,
)
_OF_MARCH_2024 = replace(
    _OF_JANUARY_2024,
    marker=_SINCE_2024.marker,
    sample="Ep 1 | iter 4 | step 1: loss train (curr): 1.634, val ...: None | iter time: 135.93 ms",
    entry=Expression(
        rb"\biter (?P<step>\d{1,12}+) \| st[eE]p \d{1,12}+: loss train \(curr\): "
        rb"(?P<loss>[^\s,]{1,64}+), val \(prev val iter\): \S{1,64}+ \| "
        rb"iter time: (?P<rate>\S{1,64}+) ms"
    ),
)
FORMAT = replace(_SINCE_2024, variants=(_OF_2023, _OF_JANUARY_2024, _OF_MARCH_2024))
