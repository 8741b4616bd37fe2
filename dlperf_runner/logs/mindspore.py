"""MindSpore's TimeMonitor: the mean time of a step in an epoch, in ms, at the end of the epoch.

    epoch: 3 step: 625, loss is 4.5018
    Train epoch time: 61612.345 ms, per step time: 98.580 ms

The epoch is that of the line of LossMonitor before it. Steps of this format are epochs, which count
from 1: the rate of one does not depend on its length. Before version 1.8, there is no `Train`, and
before 1.0 no unit.

The time to wait for data, which newer versions add in parentheses, is a part of it. Each device
prints, mostly into a log of its own. Other programs print these lines, too.

Source: mindspore-ai/mindspore, python/mindspore/train/callback/_time_monitor.py and
_loss_monitor.py, versions 0.5 to 2.10.
"""

from __future__ import annotations

from . import text
from .records import Expression, Format

FORMAT = Format(
    name="mindspore",
    sample="Train epoch time: 61612.345 ms, per step time: 98.580 ms",
    marker=b", per step time: ",
    opening=b" step: ",
    entry=Expression(
        rb"\bepoch: (?P<step>\d{1,9}+) step: \d{1,12}+, loss is (?P<loss>[^\s,]{1,64}+)"
        rb"|(?<!Eval )\bepoch time: \d{1,15}+\.\d{3}(?: ms)?, per step time: "
        rb"(?P<rate>[\d.]{1,64}+)(?: ms|%s)" % text.END
    ),
    rate=rb"\d+\.\d{3}",
    statements=(),
    one_step=True,
    seconds=0.001,
    rates_are_per="step",
    is_library=True,
    framework="mindspore",
)
