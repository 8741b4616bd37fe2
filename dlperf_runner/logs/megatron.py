"""Megatron-LM: the printed duration is the mean of the steps since the line before.

     [2026-04-27 00:00:02.123456] iteration       20/     100 | consumed samples:          320 |
      elapsed time per iteration (ms): 123.4 | throughput per GPU (TFLOP/s/GPU): 400.1 |
      learning rate: 1.000000E-04 | global batch size:    16 | lm loss: 2.000000E+00 | ...
      seq_length ...................................... 4096

The first three lines are one line. Steps count from 1. Step 1 is printed by newer versions, then
every `log_interval` steps. The rate is in steps per second; tokens/s follow from the global batch
size and the sequence length. A log in which the batch size ramps up is refused.

      ... | loss scale: 1.0 | number of skipped iterations:   0 | number of nan iterations:   0 |

A line with no `lm loss`, like this end of one, has a loss that is no number, unless the loss scale
skipped its iterations. Of those skipped, the second counter has the ones whose loss is no number.
Both count since the line before.

Source: NVIDIA/Megatron-LM 001b00c, megatron/training/training.py (training_log) and
megatron/training/arguments.py (_print_args).
"""

from __future__ import annotations

import re

from . import text
from .records import Format, Statement

# The fields before a field, each with its separator.
_FIELDS = rb"(?:[^|\r\n]{0,200}+\|){0,40}?"


def _argument(name: str, value: str) -> Statement:
    return Statement(f"  {name} ..", re.compile(rf"  {name} \.+ {value}(?!\S)", re.ASCII))


FORMAT = Format(
    name="megatron",
    sample="iteration 20/ 100 | ... elapsed time per iteration (ms): 123.4 | ... lm loss: 2.0 |",
    marker=b" elapsed time per iteration (ms): ",
    entry=re.compile(
        rb"iteration {1,16}+(?P<step>\d{1,12}+)/ {0,16}+(?P<total>\d{1,12}+) \|"
        rb"(?>%(f)s elapsed time per iteration \(ms\): )(?P<rate>[^\s|]{1,64}+) \|"
        rb"(?>%(f)s global batch size: {1,16}+)(?P<batch>\d{1,12}+) \|"
        rb"(?=(?:(?>%(f)s number of skipped iterations: {1,16}+)(?P<skipped>\d{1,12}+) \|)?)"
        rb"(?:(?:(?>%(f)s number of (?=nan iterations: {1,16}+[1-9]))"
        rb"|(?>%(f)s lm loss: (?=%(w)s \|))"
        rb"|(?>%(f)s number of skipped iterations: {1,16}+0 \| number of (?=nan iterations: )))"
        rb"(?P<loss>%(w)s))?" % {b"f": _FIELDS, b"w": text.WORD}
    ),
    rate=rb"\d+\.\d",
    statements=(
        _argument("world_size", r"(?P<world_size>\d+)"),
        _argument("seq_length", r"(?P<sequence_length>\d+)"),
        _argument("train_iters", r"(?P<total_steps>\d+)"),
        _argument("log_interval", r"(?P<log_every>\d+)"),
        _argument("global_batch_size", r"(?P<global_batch_size>\d+)"),
        Statement("  bf16 ..", re.compile(r"  (?P<precision>bf16) \.+ True(?!\S)", re.ASCII)),
        Statement("  fp16 ..", re.compile(r"  (?P<precision>fp16) \.+ True(?!\S)", re.ASCII)),
        # Again, so that a restart without it is noticed.
        Statement("  bf16 ..", re.compile(r"  bf16 \.+ (?P<bf16>True|False)(?!\S)", re.ASCII)),
        Statement("  fp16 ..", re.compile(r"  fp16 \.+ (?P<fp16>True|False)(?!\S)", re.ASCII)),
    ),
    first_too=True,
    seconds=0.001,
    rates_are_per="step",
)
