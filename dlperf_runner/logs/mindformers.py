"""MindFormers: samples/s of one device, behind the line of the steps that they are of.

    ... - INFO - { Epoch:[  1/  2], step:[    2/   19], loss: 10.633, per_step_time: 1752ms,
      lr: 1e-05, overflow cond: False, loss_scale: 1.0, global_norm: [1.5], ...: 170.738T
    ... - INFO -    5.3% |██                      | 0.57077 samples/s/p  0:01:03 }

Each is one line. Steps count from 1 in each epoch. A rate is the mean of the steps since the line
before. Each rank writes a log of its own. Without `dataset_sink_mode`, a mean stands behind the
loss: `loss:[10.633/10.641]`.

Source: mindspore-lab/mindformers fd4deeb, mindformers/core/callback/callback.py (MFLossMonitor).
"""

from __future__ import annotations

import re

from .records import Format

FORMAT = Format(
    name="mindformers",
    sample="    5.3% |██                      | 0.57077 samples/s/p  0:01:03 }",
    marker=b" samples/s/p ",
    opening=b" per_step_time: ",
    entry=re.compile(
        rb"Epoch:\[ {0,8}+(?P<epoch>\d{1,9}+)/ {0,8}+\d{1,9}+\], "
        rb"step:\[ {0,8}+(?P<step>\d{1,9}+)/ {0,8}+(?P<of_epoch>\d{1,9}+)\], "
        rb"loss: ?\[? {0,8}+(?P<loss>[^\s,/]{1,64}+)[^\r\n,]{0,64}+, per_step_time: \d{1,12}+ms"
        rb"|\| {1,8}+(?P<rate>\S{1,64}+) samples/s/p "
    ),
    rate=rb"\d+\.\d{5}",
    statements=(),
    rates_are_per="device",
    batch_of_step=True,
    framework="mindspore",
)
