"""mmengine and mmcv (mmpretrain, mmdetection, mmsegmentation ...): the printed time is that of a
step, in seconds; in mmengine the mean of the last 10 steps, in mmcv that of the steps since the
line before.

    2023/05/24 20:18:36 - mmengine - INFO - Epoch(train)  [1][ 100/1050]  lr: 9.0530e-04  eta: ...
      time: 0.3872  data_time: 0.0090  memory: 17929  loss: 7.5000       (on one line)
    ... - Iter(train) [  100/80000]  lr: ...  eta: ...  time: 0.3872  data_time: 0.0090 ...
    2021-05-24 20:18:36,123 - mmdet - INFO - Epoch [1][100/7330]<TAB>lr: 1.978e-02, eta: 9:21:10,
      time: 0.387, data_time: 0.009, memory: 3905, loss_cls: 1.2, loss: 2.5000
    ... - Iter [100/80000]<TAB>lr: 1.000e-02, eta: 9:21:10, time: 0.387, data_time: 0.009, ...
    {"lr": 0.01, "data_time": 0.009, "loss": 2.5, "time": 0.3872, "epoch": 1, "iter": 100, ...,
      "step": 100}
    {"mode": "train", "epoch": 1, "iter": 100, "lr": 0.01, ..., "time": 0.387, ...}

The last two are lines of the files `vis_data/*.json` of mmengine and `*.log.json` of mmcv, of which
only the first epoch counts. Steps count from 1, in epochs or in all.

The program prints every 50 steps, or as its configuration says; only rank 0 prints. Before 2019,
mmcv printed no memory, and in 2018 no `eta`. `base_lr`, and a learning rate for each group of
parameters, may be among the rates. Some tools leave one of two blanks.

In 2020, a line of an evaluation, `Iter(val) [4000]<TAB>mIoU: ...`, replaced that of its step.

The number of GPUs and the configuration stand before: `GPU number: 8`, and
`    samples_per_gpu=2,` of mmcv. Mixed precision has `type='AmpOptimWrapper'` in the place of
`OptimWrapper` or, in mmcv, `fp16 = dict(loss_scale=512.0)`. mmengine's batch is the one in
`train_dataloader = dict(`; the loaders of validation and test have others.

Source: open-mmlab/mmengine 2543429, mmengine/runner/log_processor.py; open-mmlab/mmcv 9db49e5
(2018), 0d5332a (2020) and 9185eee (2022), mmcv/runner/hooks/logger/text.py and log_buffer.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from . import text
from .reader import Block
from .records import Expression, Format, Header, stated
from .statements import EXACT

_COUNTED = rb" {0,8}+(?P<step>\d{1,9}+)/"
_LOSS = rb"(?:(?>[^\r\n]{0,2000}?\bloss: )(?P<loss>[^\s,]{1,64}+))?"
_WAITED = rb"data_time: (?P<waited>[^\s,]{1,64}+)"
_OLD_TIME = (
    rb"[ \t]{1,8}+(?>[^\r\n]{0,400}?(?<!\w)time: )(?P<rate>[^\s,]{1,64}+), " + _WAITED + _LOSS
)
_NEW_TIME = (
    rb" {1,2}+(?>[^\r\n]{0,400}?(?<!\w)time: )(?P<rate>%s) {1,2}+" % text.WORD + _WAITED + _LOSS
)

_LOADER = re.compile(
    rb"^(?:(?P<loader>\w{1,16}_dataloader) = dict\(| {4,5}(?=batch_size=))"
    rb"(?:batch_size=(?P<batch>[1-9]\d{0,8}+)[,)])?",
    re.MULTILINE,
)


class _Batch:
    """The batch of the loader of training, which may stand on a line of its own."""

    markers: ClassVar[tuple[bytes, ...]] = (b"_dataloader = dict(", b"    batch_size=")

    def __init__(self) -> None:
        self._is_of_training = False

    def __call__(self, block: Block) -> Sequence[Header]:
        stated: list[Header] = []
        for part in _LOADER.finditer(block.data):
            if part["loader"]:
                self._is_of_training = part["loader"] == b"train_dataloader"
            if part["batch"] and self._is_of_training:
                line, batch = block.line(part.start()), int(part["batch"])
                stated.append(Header(line, batch_size_per_device=batch))
        return stated


_STEPS = Format(
    name="mmengine",
    sample="... - mmengine - INFO - Iter(train) [  100/80000]  lr: ...  eta: ...  time: 0.3872 ...",
    marker=b"Iter(train)",
    entry=Expression(rb"Iter\(train\) {1,8}+\[%s\d{1,9}+\]%s" % (_COUNTED, _NEW_TIME)),
    rate=rb"\d+\.\d+",
    statements=(
        stated("    samples_per_gpu=", r"\A {4,5}\w+=(?P<batch_size_per_device>\d{1,9}+),?\s*\Z"),
        stated("    GPU number: ", r"\A {4,5}GPU number: (?P<world_size>\d{1,9}+)\s*\Z"),
        stated(
            "OptimWrapper'",
            r"\btype='(?P<precision>(?:Amp)?OptimWrapper)'",
            values={"AmpOptimWrapper": "amp", "OptimWrapper": EXACT},
        ),
        stated("fp16 = dict(", r"\A(?P<precision>fp16) = dict\(", values={"fp16": "amp"}),
    ),
    window=10,
    seconds=1.0,
    rates_are_per="step",
    counts_batches=True,
    framework="pytorch",
    watch=_Batch,
)
_OLD_EPOCHS = replace(
    _STEPS,
    sample="... - mmdet - INFO - Epoch [1][100/7330]\tlr: ..., eta: 9:21:10, time: 0.387, ...",
    marker=b"Epoch [",
    entry=Expression(
        rb"Epoch \[(?P<epoch>\d{1,6}+)\]\[%s(?P<of_epoch>\d{1,9}+)\]%s" % (_COUNTED, _OLD_TIME)
    ),
    window=None,
)
_OLD_STEPS = replace(
    _OLD_EPOCHS,
    sample="... - mmseg - INFO - Iter [100/80000]\tlr: ..., eta: 9:21:10, time: 0.387, ...",
    marker=b"Iter [",
    evaluation=b"Iter(val) [",
    entry=Expression(
        rb"Iter(?>(?P<evaluation>\(val\))?) \[ {0,8}+(?P<step>\d{1,9}+)(?:/\d{1,9}+\]%s|\])"
        % _OLD_TIME
    ),
)
_JSON = replace(
    _STEPS,
    sample='{"lr": 0.01, "data_time": 0.009, "loss": 2.5, "time": 0.3872, ..., "step": 100}',
    marker=b'"data_time": ',
    entry=Expression(
        rb'\{"(?:base_)?lr": (?>[^\r\n]{0,1000}?"loss": )(?P<loss>[^\s,}]{1,64}+)'
        rb'(?>[^\r\n]{0,2000}?"time": )(?P<rate>[^\s,}]{1,64}+)'
        rb'(?>[^\r\n]{0,2000}?"step": )(?P<step>\d{1,12}+)\}'
    ),
)
_OLD_JSON = replace(
    _STEPS,
    sample='{"mode": "train", "epoch": 1, "iter": 100, "lr": 0.01, ..., "time": 0.387, ...}',
    marker=b'"mode": "train"',
    entry=Expression(
        rb'\{"mode": "train", "epoch": (?P<epoch>\d{1,6}+), "iter": (?P<step>\d{1,12}+), '
        rb'(?:(?>[^\r\n]{0,2000}?"loss": )(?P<loss>[^\s,}]{1,64}+))?'
        rb'(?>[^\r\n]{0,1000}?"time": )(?P<rate>[^\s,}]{1,64}+)'
    ),
    window=None,
)
FORMAT = replace(
    _STEPS,
    sample="... - mmengine - INFO - Epoch(train)  [1][ 100/1050]  lr: ...  time: 0.3872  ...",
    marker=b"Epoch(train)",
    entry=Expression(
        rb"Epoch\(train\) {1,8}+\[(?P<epoch>\d{1,6}+)\]\[%s(?P<of_epoch>\d{1,9}+)\]%s"
        % (_COUNTED, _NEW_TIME)
    ),
    variants=(_STEPS, _OLD_EPOCHS, _OLD_STEPS, _JSON, _OLD_JSON),
)
