"""tf_cnn_benchmarks: the printed rate is that of all devices and of all steps after the warm-up.

    Model:       resnet50
    Batch size:  512 global
                 64 per device
    Num batches: 100
    Devices:     ['/gpu:0', '/gpu:1', ...]
    100<TAB>images/sec: 2690.2 +/- 1.1 (jitter = 3.3)<TAB>8.189
    total images/sec: 2687.14

The rates in the lines of steps are means over all steps before, so that only the last line, the
number of images by the time, is that of the run; the warm-up has ended before. With Horovod, each
process prints that of all.

Before October 2018, Python 3 printed `64.0 per device`.

Source: tensorflow/benchmarks 8fb7907 and 30a62f4^, scripts/tf_cnn_benchmarks/benchmark_cnn.py.
"""

from __future__ import annotations

from . import text
from .records import Expression, Format, Refusal, stated

_NO_TRAINING = Refusal(
    "the rate is not that of a training",
    expected="Mode: training",
    hint="run the benchmark without --eval and --forward_only",
)

FORMAT = Format(
    name="tf_cnn_benchmarks",
    sample="total images/sec: 2687.14",
    marker=b"total images/sec: ",
    entry=Expression(rb"(?P<step>)total images/sec: %s" % text.rate_before(text.END)),
    rate=rb"\d+\.\d\d",
    statements=(
        stated("Model:  ", r"\bModel: {1,12}+(?P<network>\S{1,100}+)"),
        stated(" global", r"\bBatch size: {1,12}+(?P<global_batch_size>\d{1,9}+) global"),
        stated(
            " per device", r"\A {1,20}+(?P<batch_size_per_device>\d{1,9}+(?>(?:\.0)?)) per device"
        ),
        stated("Mode:  ", r"\bMode: {1,12}+(?!training)", refusal=_NO_TRAINING),
    ),
    whole_run=True,
    framework="tensorflow",
)
