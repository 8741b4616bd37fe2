"""PLSC on PaddlePaddle: the printed rate (qps) is that of all devices, over `log period` steps.

    INFO 2026-11-20 13:40:15,997 entry.py:1029] Pass:0 batch:0 lr:0.00039063 loss:40.266624 qps:0.99

Batches count from 0. The time stamp is the host's local time, to the millisecond. Every trainer
prints its own lines, by its own clock, and Paddle's launcher writes the lines of all trainers of a
node into one log. Lines like `trainer_id: 3, num_trainers: 8` give their number. Passes after the
first one of a log are ignored.
"""

from __future__ import annotations

from . import text
from .records import Expression, Format, Statement, stated
from .statements import EXACT


def _set(what: str, value: str) -> Statement:
    return stated(f"Set {what} to", rf"Set {what} to {value}")


FORMAT = Format(
    name="plsc",
    sample="INFO 2026-11-20 13:40:15,997 entry.py:1029] Pass:0 batch:0 ... loss:40.27 qps:0.99",
    marker=b" qps:",
    entry=Expression(
        rb"INFO (?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) %s "
        rb"Pass:(?P<epoch>\d{1,6}+) batch:(?P<step>\d{1,12}+) (?:lr:%s )?loss:(?P<loss>%s) qps:%s"
        % (*(text.WORD,) * 3, text.rate_before(text.END))
    ),
    rate=rb"\d+\.\d\d",
    statements=(
        # "Set train batch size to 4."; the values above it, under "Default configuration", are not
        # used.
        _set("train batch size", r"(?P<batch_size_per_device>\d{1,18}+)"),
        _set("log period", r"(?P<log_every>\d{1,18}+)"),
        _set("num_classes", r"(?P<classes>\d{1,18}+)"),
        # trainer_id: 0, num_trainers: 1
        stated(
            "num_trainers:",
            r"\btrainer_id: (?P<writer>\d{1,9}), num_trainers: (?P<world_size>\d{1,18}+)",
        ),
        # Only this project's scripts print the next three.
        _set("noise", r"(?P<noise>\w[\w ]*)"),
        _set("dtype", r"(?P<precision>\w{1,64}+)"),
        _set("number of batches", r"(?P<total_steps>\d{1,18}+)"),
        stated(
            "Use mixed precision training:",
            r"Use mixed precision training: (?P<precision>True|False)",
            values={"True": "fp16", "False": EXACT},
        ),
    ),
    zero_based=True,
)
