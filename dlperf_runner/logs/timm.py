"""timm's train.py: the printed rate is that of all devices, of one step; behind it, in parentheses,
stands the mean of all steps of the epoch so far.

    Train: 0 [  50/401 ( 12%)]  Loss: 6.915 (6.93)  Time: 0.619s, 1653.87/s  (0.624s, 1640.00/s)
      LR: 1.000e-05  Data: 0.010 (0.013)       (on one line)

Steps count from 0 in each epoch. The program prints every `log-interval` steps, 50 by default, and
the last of each epoch; only rank 0 prints. Versions before 2023 print two digits more of the loss.

Source: huggingface/pytorch-image-models 004fb5f, train.py.
"""

from __future__ import annotations

from . import text
from .records import Expression, Format, stated

FORMAT = Format(
    name="timm",
    sample="Train: 0 [  50/401 ( 12%)]  Loss: 6.915 (6.93)  Time: 0.619s, 1653.87/s  (0.624s, ...",
    marker=b"/s  (",
    entry=Expression(
        rb"Train: (?P<epoch>\d{1,6}+) \[ {0,8}+(?P<step>\d{1,9}+)/(?P<of_epoch>\d{1,9}+) "
        rb"\( {0,2}+\d{1,3}+%%\)\]  Loss: {1,8}+(?P<loss>%(w)s) [^\r\n]{0,80}?"
        rb"Time: {1,8}+[\d.]{1,16}+s, {1,8}+(?P<rate>[^\s/]{1,64}+)/s  "
        rb"\([\d.]{1,16}+s, {1,8}+(?P<mean>\d{1,9}+\.\d\d)/s\)" % {b"w": text.WORD}
    ),
    rate=rb"\d+\.\d\d",
    statements=(
        stated("Model ", r"\bModel (?P<network>\S{1,100}+) created, param count:"),
        stated("Training in distributed mode", r"\btotal (?P<world_size>\d{1,9}+)"),
        # In 2019, a process could drive several.
        stated("Training with a single process", r"process on (?P<world_size>\d{1,9}+) "),
        stated(
            "AMP",
            r"Using (?P<precision>native Torch AMP|NVIDIA APEX AMP)\. Training",
            values={"native Torch AMP": "amp", "NVIDIA APEX AMP": "amp"},
        ),
        stated(
            ". AMP o",
            r"NVIDIA APEX [a-z ]{1,16}\. AMP (?P<precision>on|off)\.",  # in 2019
            values={"on": "amp", "off": "float32"},
        ),
        stated("AMP not enabled", r"AMP not enabled\. Training in (?P<precision>float32)"),
    ),
    zero_based=True,
    one_step=True,
    framework="pytorch",
)
