"""torchvision's references, and the programs with its MetricLogger (DETR, DeiT, MAE, DINO): the
printed time is that of a step, in seconds, the mean of the last 20 steps.

    Epoch: [0]  [  10/1251]  eta: 0:08:20  lr: 0.1  img/s: 1234.5  loss: 6.95 (6.97)  acc1: ...
      time: 0.4012  data: 0.0003  max mem: 10912       (on one line)
    Training  [   120/125000]  eta: 1 day, 3:19:24  lr: 0.0001 (0.0001)  ...  total_loss: 13.6012
      (13.7)  ...  time: 0.612345  data: 0.000121  max mem: 32345     (DINOv2 and DINOv3)

Steps count from 0 in each epoch, or in all. The program prints every `print-freq` steps, 10 by
default, and in most programs the last of each epoch; only rank 0 prints. `img/s` leaves out the
time in which a step waited for data, and is of one device. `batch_size` is that of one device.

DINO and DINOv2 print `batch_size_per_gpu: 64`, and DINO `world_size: 8`, on lines of their own.

Source: pytorch/vision 041fe3b (2019) and 15fc26c (2022), references/classification/{utils,train}.py
and references/detection/utils.py; facebookresearch/dinov2 05c66df, dinov2/logging/helpers.py.
"""

from __future__ import annotations

from dataclasses import replace

from . import text
from .records import Expression, Format, Statement, stated
from .statements import EXACT, NAMESPACE

_BATCH = stated("batch_size_per_gpu: ", r"\A {0,8}\w+: (?P<batch_size_per_device>\d{1,9}+)\s*\Z")
_EPOCHS = Format(
    name="torchvision",
    sample="Epoch: [0]  [  10/1251]  eta: 0:08:20  lr: 0.1  img/s: 1234.5  ...  time: 0.4012  ...",
    marker=b"Epoch: [",
    entry=Expression(
        rb"Epoch: \[(?P<epoch>\d{1,6}+)(?:/\d{1,6}+)?\]  "
        rb"\[ {0,8}+(?P<step>\d{1,9}+)/(?P<of_epoch>\d{1,9}+)\]  eta: "
        rb"(?:(?>[^\r\n]{0,400}?  loss: )(?P<loss>%(w)s))?"
        rb"(?>[^\r\n]{0,2000}?  time: )(?P<rate>%(w)s)  data: " % {b"w": text.WORD}
    ),
    rate=rb"\d+\.(?:\d{4}|\d{6})",
    statements=(
        stated("Not using distributed", r"(?P<world_size>Not) using", values={"Not": "1"}),
        Statement(
            "Namespace(",
            NAMESPACE,
            {
                "batch_size": "batch_size_per_device",
                "world_size": "world_size",
                "model": "network",
                "amp": "precision",
                "apex": "precision",  # in 2020
            },
            {"True": "amp", "False": EXACT},
        ),
        _BATCH,
        stated("world_size: ", r"\Aworld_size: (?P<world_size>\d{1,9}+)\s*\Z"),
        stated(
            "use_fp16: ",
            r"\Ause_fp16: (?P<precision>True|False)\s*\Z",
            values={"True": "amp", "False": EXACT},
        ),
    ),
    zero_based=True,
    window=20,
    seconds=1.0,
    rates_are_per="step",
    framework="pytorch",
)
_STEPS = replace(
    _EPOCHS,
    sample="Training  [   120/125000]  eta: 3:19:24  lr: 0.0001 (0.0001)  ...  time: 0.612345  ...",
    marker=b"Training  [",
    entry=Expression(
        rb"Training  \[ {0,8}+(?P<step>\d{1,9}+)/\d{1,9}+\]  eta: "
        rb"(?:(?>[^\r\n]{0,400}?  total_loss: )(?P<loss>%(w)s))?"
        rb"(?>[^\r\n]{0,2000}?  time: )(?P<rate>%(w)s)  data: " % {b"w": text.WORD}
    ),
    rate=rb"\d+\.\d{6}",
    statements=(_BATCH,),
)
FORMAT = replace(_EPOCHS, variants=(_STEPS,))
