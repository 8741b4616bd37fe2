"""fairseq: tokens/s of all devices, `wps`, since the line before.

    2020-07-17 07:11:02 | INFO | train_inner | epoch 001:   2800 / 160368 loss=9.255, ppl=611.12,
      wps=5733.1, ups=3.55, wpb=1613, bsz=80, num_updates=2800, lr=2.8e-05, gnorm=3.23, ...
    [2021-03-01 10:00:00,123][train_inner][INFO] - {"epoch": 1, "update": 0.062, "loss": "6.518",
      "wps": "5733.1", "ups": "3.55", "wpb": "1613", "bsz": "80", "num_updates": "200", ...}

Each is one line; the second is that of Hydra with `log_format: json`, and all four combinations
exist. metaseq has no "update", norms before the loss, and a `wps` of 0 at the first step.

Steps are `num_updates`, counted from 1; the first process prints every `log_interval`, 100 by
default. Batches differ in their tokens, which are those of the targets.

On TPUs, only the step of a line is counted, so `wps` and `ups` are too low: lines whose time stamps
show that are refused. Lines of before March 2020, without `train_inner`, have the mean of the epoch
so far and are not read.

Source: facebookresearch/fairseq 244835d (2020) and 3d262bb (2025), fairseq_cli/train.py,
fairseq/tasks/fairseq_task.py (reduce_metrics), fairseq/trainer.py (train_step) and
fairseq/logging/{meters,progress_bar}.py.
"""

from __future__ import annotations

from . import text
from .records import Expression, Format, stated

_IS = rb'(?>=|": ")'
_NEXT = rb'"?+, "?+'
_FIELD = rb'\w{1,32}+%s[^\s,"]{1,64}+%s' % (_IS, _NEXT)

FORMAT = Format(
    name="fairseq",
    sample="... | INFO | train_inner | epoch 001:   2800 / 160368 loss=9.255, ..., wps=5733.1, ...",
    marker=b"train_inner",
    entry=Expression(
        rb"(?:(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d{3})?)(?> \| INFO \| |\]\[))?"
        rb"train_inner(?> \| |\]\[INFO\] - )"
        rb"(?:epoch \d{1,9}+: {1,16}+\d{1,12}+ / \d{1,12}+ "
        rb'|\{"epoch": \d{1,9}+, "(?>(?:update": %(w)s ")?))'
        rb"(?>(?:(?!loss|wps)%(field)s){0,12})"
        rb"(?:loss%(is)s(?P<loss>[^\s,\"]{1,64}+)%(next)s)?"
        rb"(?>(?:(?!wps)%(field)s){0,24})wps%(is)s(?!0\")(?P<rate>[^\s,\"]{1,64}+)%(next)s"
        rb"ups%(is)s(?P<steps_per_second>[^\s,\"]{1,64}+)%(next)s"
        rb"(?>(?:(?!num_updates)%(field)s){0,24})num_updates%(is)s(?P<step>\d{1,12}+)%(next)s"
        % {b"w": text.WORD, b"is": _IS, b"next": _NEXT, b"field": _FIELD}
    ),
    rate=rb"\d+(?:\.\d+)?(?:e\+\d\d)?",
    statements=(
        stated("training on ", r"training on (?P<world_size>\d{1,9}+) (?:GPUs|devices)"),
        stated("fp16", r"\b(?P<precision>fp16)(?:=|': )True\b"),
        stated("bf16", r"\b(?P<precision>bf16)(?:=|': )True\b"),
    ),
    framework="pytorch",
    caveat="the rates count the tokens of the targets, and include the validations and checkpoints"
    " between two lines",
    unit="tokens",
)
