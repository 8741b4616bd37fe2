"""DLLogger of NVIDIA's PaddlePaddle ResNet-50: the printed rate is that of all devices, of a step.

    DLL 2022-10-10 07:43:02.644101 - Epoch: 0 Iteration: 10  train.loss : 6.93 ...
      train.batch_time : 0.0921 s train.ips : 22345.1 images/s train.lr : 0.1
    DLLL {"timestamp": "1665387782.644101", ..., "step": [0, 10], "data": {"train.loss": 6.93, ...,
      "train.batch_time": 0.0921, "train.ips": 22345.1, "train.lr": 0.1}}

Each is one line. Steps count from 0; the program prints every 10. Only the first epoch of a log
counts, and not its mean. Only rank 0 prints. `batch_size` is that of a device.

Source: NVIDIA/DeepLearningExamples 0107cf2, PaddlePaddle/Classification/RN50v1.5/program.py.
"""

from __future__ import annotations

from dataclasses import replace

from . import dllogger_mxnet
from .dllogger_pytorch import START, option
from .records import Expression
from .statements import EXACT

FORMAT = replace(
    dllogger_mxnet.FORMAT,
    name="dllogger_paddle",
    sample="DLL 2022-10-10 07:43:02.644101 - Epoch: 0 Iteration: 10  train.loss : 6.93 ..."
    " train.batch_time : 0.0921 s train.ips : 22345.1 images/s ...",
    marker=b"train.batch_time",
    entry=Expression(
        START
        + rb'(?>[^\r\n]{0,1000}?train\.batch_time(?: :|":) )[^\r\n]{0,100}?train\.ips(?: :|":) '
        rb'(?P<rate>[^\s,}]{1,64}+)(?(json)(?:, "|\})| images/s(?!/))'
    ),
    statements=(
        option("batch_size", r"(?P<batch_size_per_device>\d{1,9}+)"),
        option(
            "amp",
            r"(?P<precision>[Tt]rue|[Ff]alse)\b",
            {"True": "amp", "true": "amp", "False": EXACT, "false": EXACT},
        ),
    ),
    one_step=True,
    framework="paddle",
)
