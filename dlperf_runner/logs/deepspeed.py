"""DeepSpeed's throughput timer: samples/s of all devices in one step (CurrSamplesPerSec), every
`steps_per_print` steps. The running mean before it holds all steps so far and does not count.

    [2023-12-29 13:02:50,566] [INFO] [timer.py:260:stop] epoch=0/micro_step=10/global_step=10,
      RunningAvgSamplesPerSec=1402.05, CurrSamplesPerSec=1402.05, MemAllocated=1.87GB, ...
    [2022-08-29 06:58:56,176] [INFO] [timer.py:198:stop] 0/20, RunningAvgSamplesPerSec=...
    [2022-03-11 02:06:58,985] [INFO] [timer.py:189:stop] 0/40, SamplesPerSec=83.49, ...
    steps: 10 loss: 2.3010 iter time (s): 0.234 samples/sec: 1094.512     (of a pipeline)

Each is one line. Steps count from 1. The second wording is of late 2022: its steps and rates are
those of accumulated batches, so a log with accumulation is refused. Until mid-2022, there was only
the mean of all steps behind the second one; the rates since the line before follow from it.

The timer starts at each forward pass. A program that calls `step` once for all of its accumulated
batches, as Megatron-DeepSpeed, has `micro_step` and `global_step` equal, and only the last batch
timed: such a log is refused if it states an accumulation.

A pipeline prints such rates, in all versions. The lines stand in the logs of other programs, such
as Megatron-DeepSpeed and those with Hugging Face's Trainer; what the latter states of the run
counts, too. Only rank 0 prints.

      train_batch_size ............. 128     (of a step of all devices)
      train_micro_batch_size_per_gpu  16

Source: deepspeedai/DeepSpeed edaa722, deepspeed/utils/timer.py (ThroughputTimer),
deepspeed/runtime/config.py and deepspeed/runtime/pipe/engine.py; timer.py at 5bd09a8 and 9caa74e.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import ClassVar

from . import text
from .hf_trainer import STATEMENTS
from .reader import Block
from .records import Expression, Format, LineError, Refusal, Statement, stated


def _setting(name: str, value: str) -> Statement:
    return stated(f"  {name} ", rf"  {name} \.{{0,32}}+ {value}(?!\S)")


_STATEMENTS = (
    *STATEMENTS,
    _setting("train_batch_size", r"(?P<global_batch_size>\d{1,18}+)"),
    _setting("train_micro_batch_size_per_gpu", r"(?P<micro_batch_size>\d{1,18}+)"),
    _setting("gradient_accumulation_steps", r"(?P<accumulation_steps>\d{1,18}+)"),
    _setting("steps_per_print", r"(?P<log_every>\d{1,18}+)"),
    stated("  fp16_enabled ..", r"  (?P<precision>fp16)_enabled \.{1,32}+ True"),
    stated("  bfloat16_enabled ..", r"  (?P<precision>bfloat16)_enabled \.{1,32}+ True"),
)
_END = rb"(?:,(?!\d)|%s)" % text.END  # no decimal comma
_RATE = rb"RunningAvgSamplesPerSec=\S{1,64}+ CurrSamplesPerSec=%s" % text.rate_until(_END)

# What programs print before the number of accumulated batches.
_ACCUMULATION = (
    "  gradient_accumulation_steps ",
    "  Gradient Accumulation steps = ",
    "setting number of micro-batches to constant ",
)
_SEVERAL = r"[ .]{0,32}+(?!1(?!\d))\d{1,18}+"
_PARTS = re.compile(
    rb"(?P<accumulated>(?:%s)%s)|micro_step=(?P<batch>\d{1,12}+)/global_step=(?P<step>\d{1,12}+), "
    % ("|".join(map(re.escape, _ACCUMULATION)).encode(), _SEVERAL.encode())
)


class _LastBatches:
    """The accumulation that a log states, and whether its first line with several batches counts
    steps instead of them."""

    markers: ClassVar[tuple[bytes, ...]] = tuple(words.encode() for words in _ACCUMULATION)

    def __init__(self) -> None:
        self._is_accumulated = False
        self._counts_steps: bool | None = None

    def __call__(self, block: Block) -> None:
        """Raise LineError if only the last of the accumulated batches of a step was timed."""
        for part in _PARTS.finditer(block.data):
            if part["accumulated"]:
                self._is_accumulated = True
            elif self._counts_steps is None and int(part["batch"]) > 1:
                self._counts_steps = part["batch"] == part["step"]
            if self._is_accumulated and self._counts_steps:
                raise LineError(
                    block.line(part.start()),
                    "DeepSpeed timed only the last of the accumulated batches of a step, and its"
                    " rates count the samples of all",
                    expected="no accumulated batches, or a micro_step that counts each of them",
                    found=part[0].decode().strip(),
                    hint="keep the lines in which the program itself prints the time of a step, or"
                    " measure again without accumulation",
                )


_OF_STEPS = Format(
    name="deepspeed",
    sample="epoch=0/micro_step=10/global_step=10, RunningAvgSamplesPerSec=1402.05, CurrSamples...",
    marker=b", CurrSamplesPerSec=",
    entry=Expression(rb"/global_step=(?P<step>\d{1,12}+), %s" % _RATE),
    rate=text.FLOAT,
    statements=_STATEMENTS,
    one_step=True,
    is_library=True,
    batch_of_step=True,
    framework="pytorch",
    watch=_LastBatches,
)
_OF_SOME = Refusal(
    "rates are of single batches, of which some update no weights",
    expected="no accumulated batches",
    hint="measure again without accumulation, or with DeepSpeed 0.8 or newer",
)
_OF_BATCHES = replace(
    _OF_STEPS,
    watch=None,
    entry=Expression(rb"\d/(?P<step>\d{1,12}+), %s" % _RATE),
    statements=(
        *_STATEMENTS,
        *(stated(w, re.escape(w) + _SEVERAL, refusal=_OF_SOME) for w in _ACCUMULATION),
    ),
)
_OF_PIPELINE = replace(
    _OF_STEPS,
    watch=None,
    sample="steps: 10 loss: 2.3010 iter time (s): 0.234 samples/sec: 1094.512",
    marker=b" samples/sec: ",
    entry=Expression(
        rb"steps: (?P<step>\d{1,12}+) loss: (?P<loss>%s) (?:[^:\r\n]{1,64}: \S{1,64}+ ){0,8}?"
        rb"iter time \(s\): \d{1,9}+\.\d{3} samples/sec: %s"
        % (text.WORD, text.rate_before(text.END))
    ),
    rate=rb"\d+\.\d{3}",
    one_step=False,
)
_RUNNING_MEAN = replace(
    _OF_STEPS,
    watch=None,
    sample="0/10, SamplesPerSec=1402.05, MemAllocated=1.87GB, MaxMemAllocated=6.12GB",
    marker=b", SamplesPerSec=",
    entry=Expression(rb"\d/(?P<step>\d{1,12}+), SamplesPerSec=%s" % text.rate_until(_END)),
    one_step=False,
    running_mean=2,
)
FORMAT = replace(_OF_STEPS, variants=(_OF_BATCHES, _OF_PIPELINE, _RUNNING_MEAN))
