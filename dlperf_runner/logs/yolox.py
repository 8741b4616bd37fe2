"""YOLOX: the printed time is that of a step, in s, the mean of the steps since the line before.

    2023-05-25 09:08:45 | INFO     | yolox.core.trainer:270 - epoch: 1/300, iter: 190/1051,
      gpu mem: 20839Mb, mem: 46.8Gb, iter_time: 0.468s, data_time: 0.003s, total_loss: 4.2, ...
      (on one line; before 2023, only one of the memories)
    2023-05-25 09:08:01 | INFO     | yolox.core.trainer:130 - args: Namespace(batch_size=64,
      fp16=True, name='yolox-s', ...)     (on one line)

Steps count from 1 in each epoch; the program prints every 10, and nothing for the rest of an epoch.
`batch_size` is that of all devices, of which each node has `devices`, unless that is None. Only
rank 0 prints. Times of images of several sizes differ.

Source: Megvii-BaseDetection/YOLOX 02cc562, yolox/core/trainer.py; its issues 308 (2021) and 1803.
"""

from __future__ import annotations

from .records import Expression, Format, Statement, stated
from .statements import EXACT, NAMESPACE

FORMAT = Format(
    name="yolox",
    sample="yolox.core.trainer:270 - epoch: 1/300, iter: 190/1051, ... iter_time: 0.468s, ...",
    marker=b", iter_time: ",
    entry=Expression(
        rb"epoch: (?P<epoch>\d{1,6}+)/\d{1,6}+, iter: (?P<step>\d{1,9}+)/(?P<of_epoch>\d{1,9}+), "
        rb"(?>[^\r\n]{0,100}?\biter_time: )(?P<rate>[^\s,]{1,32}?)s, "
        rb"data_time: [\d.]{1,16}+s, (?:total_loss: (?P<loss>[^\s,]{1,32}+),)?"
    ),
    rate=rb"\d+\.\d{3}",
    statements=(
        Statement(
            "Namespace(",
            NAMESPACE,
            {"batch_size": "global_batch_size", "fp16": "precision", "name": "network"},
            {"True": "amp", "False": EXACT, "None": ""},
        ),
        stated(
            "Namespace(",
            r"\bNamespace\((?=.{0,4000}?\bnum_machines=(?P<nodes>[1-9]\d{0,8}+))"
            r"(?>.{0,4000}?\bdevices=)(?P<devices_per_node>[1-9]\d{0,8}+)",
        ),
    ),
    seconds=1.0,
    rates_are_per="step",
    framework="pytorch",
)
