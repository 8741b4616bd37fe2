"""torchtitan: the printed rate (tps) is that of one device in tokens/s, since the line before.

    [titan] 2025-12-01 12:00:07,123 - root - INFO - step: 10  loss:  8.1234  grad_norm:  1.2345
      memory:  0.50GiB(1.20%)  tps: 6,835  tflops: 12.30  mfu: 1.20%     (all on one line)

Steps count from 1. Step 1 is printed, then every `log_freq` steps, 10 by default. Without an option
that turns them off, colour codes stand between the values. Earlier versions print neither grad_norm
nor tflops; lines of `validate step:` are no training. The warm-up that the program names is that of
its learning rate. Only ranks that torchrun's filter lets through print, usually rank 0.

Source: pytorch/torchtitan, torchtitan/components/metrics.py (00fbaaf and b5bcd76) and train.py.
"""

from __future__ import annotations

import re

from . import text
from .records import Format, Statement

_COLOUR = rb"(?:\x1b\[[\d;]{0,16}+m)?+"


def _mesh(data_parallel: str) -> Statement:
    return Statement(
        "device mesh with parallelism: ",
        re.compile(rf"\bpp=1, {data_parallel}, cp=1, tp=1\b", re.ASCII),
    )


FORMAT = Format(
    name="torchtitan",
    sample="step: 10  loss:  8.1234  grad_norm:  1.2345  memory: 0.50GiB(1.20%)  tps: 6,835  ...",
    marker=b"step: ",
    entry=re.compile(
        rb"(?:\[titan\] (?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) - %(w)s - INFO - )?"
        rb"%(c)s(?<!validate )step: {1,16}+(?P<step>\d{1,12}+)  %(c)s"
        rb"loss: {1,16}+(?P<loss>%(w)s)  %(c)s(?:grad_norm: {1,16}+%(w)s  %(c)s)?"
        rb"memory: {1,16}+(?P<memory_gib>\d{1,9}+\.\d\d)GiB\([^)\s]{0,64}+\)  %(c)s"
        rb"tps: (?P<rate>%(w)s)  %(c)s(?:tflops|mfu): " % {b"c": _COLOUR, b"w": text.WORD}
    ),
    rate=rb"\d{1,3}(?:,\d{3})*+",
    statements=(
        Statement(text.ALONE, text.SECONDS_OF_RANKS),
        Statement(text.NCCL, text.NCCL_OF_RANKS),
        Statement(text.ALL_REDUCE, text.TIME_OF_ALL_REDUCE),
        Statement(
            "with local batch size ",
            re.compile(
                r"with local batch size (?P<batch_size_per_device>\d+),"
                r".{0,200}? sequence length (?P<sequence_length>\d{1,18}+),"
                r" total steps (?P<total_steps>\d{1,18}+)",
                re.ASCII,
            ),
        ),
        # As this project starts it, and its own program.
        Statement(
            "Starting job: ",
            re.compile(
                r"Starting job: (?P<network>[^\s,]{1,64}+), precision (?P<precision>\w{1,32}+),"
                r"(?: recipe (?P<recipe>\w{1,32}+),)?",
                re.ASCII,
            ),
        ),
        # The number of devices, if each of them trains on samples of its own.
        _mesh(r"dp_replicate=1, dp_shard=(?P<world_size>\d+)"),
        _mesh(r"dp_replicate=(?P<world_size>\d+), dp_shard=1"),
        # As it was said until 2025.
        Statement(
            "Building 1-D device mesh with ",
            re.compile(r"device mesh with \['dp_\w+'\], \[(?P<world_size>\d+)\]", re.ASCII),
        ),
    ),
    first_too=True,
    rates_are_per="device",
)
