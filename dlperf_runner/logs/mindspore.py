"""MindSpore's TimeMonitor: the time of a step, in ms, the mean of each epoch.

    epoch: 2 step: 1251, loss is 4.8995576
    epoch time: 113892.348 ms, per step time: 91.041 ms
    Train epoch time: 113892.348 ms, per step time: 91.041 ms       since version 1.9

The first line is that of LossMonitor, which may be printed at each step, and states the epoch. Here
a step is an epoch, so that the first epochs are the warm-up. Each process prints a log of its own.

Source: mindspore-ai/mindspore r1.3 and r2.2, train/callback/_time_monitor.py and _loss_monitor.py.
"""

from __future__ import annotations

import re

from . import text
from .records import Format

FORMAT = Format(
    name="mindspore",
    sample="Train epoch time: 113892.348 ms, per step time: 91.041 ms",
    marker=b"per step time: ",
    opening=b", loss is ",
    entry=re.compile(
        rb"epoch: (?P<step>\d{1,6}+) step: \d{1,9}+, loss is (?P<loss>%s)"
        rb"|\b[Ee]poch time: {1,8}+[\d.]{1,24}+(?: ms)?, per step time: {1,8}+%s"
        % (text.WORD, text.rate_before(rb"(?: ms)?" + text.END))
    ),
    rate=rb"\d+\.\d{3}",
    statements=(),
    seconds=0.001,
    rates_are_per="step",
    framework="mindspore",
)
