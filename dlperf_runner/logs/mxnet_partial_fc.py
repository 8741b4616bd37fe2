"""InsightFace's Partial FC on MXNet: `Total` is the rate of all devices in samples/s, the mean over
the steps since the line before. The program calls it it/sec.

    rank-id:0:2021-01-08 19:20:21,208-Iter:40 Rank:177.61 it/sec Total:1420.85 it/sec [0][loss]:0.01

Steps count from 1, in all epochs together. Only rank 0 prints. The loss, of two decimals and of one
rank's part of the classes, is not read: it may be the same at every step.

Source: deepinsight/insightface 863a7ea, recognition/partial_fc/mxnet/callbacks.py.
"""

from __future__ import annotations

from . import text
from .records import Expression, Format

FORMAT = Format(
    name="mxnet_partial_fc",
    sample="rank-id:0:2021-01-08 19:20:21,208-Iter:40 Rank:177.61 it/sec Total:1420.85 it/sec ...",
    marker=b" it/sec Total:",
    entry=Expression(
        rb"(?>(?:(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})-)?)Iter:(?P<step>\d{1,12}+) "
        rb"Rank:%(w)s it/sec Total:(?P<rate>%(w)s) it/sec " % {b"w": text.WORD}
    ),
    rate=rb"\d+\.\d\d",
    statements=(),
    framework="mxnet",
)
