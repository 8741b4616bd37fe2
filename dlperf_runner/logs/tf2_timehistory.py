"""TimeHistory of tensorflow/models and of Keras' examples: the printed rate is that of all devices,
the mean over the steps between the two that the line names.

    I0826 20:54:50.059293 140055507732224 keras_utils.py:133] TimeHistory: 41.71 seconds,
      4910.34 examples/second between steps 100 and 200       (on one line)
    BenchmarkMetric: {'global step':200, 'time_taken': 41.710000,'examples_per_second': 4910.34...}

    global_step: 200 images_per_sec: 4910.3      (NVIDIA's container for TensorFlow 2)
    DLL 2022-10-10 07:40:46.785344 - PARAMETER TimeHistory : 20.85 seconds
      examples/second : 4910.3  steps : (100, 200)     (NVIDIA's EfficientNet, on one line)
    I0826 20:54:50.059293 1400 controller.py:458] train | step:    200 | steps/sec:    4.8 | ...

The second is that of 2019, with `num_batches` before, which counts in each epoch anew. Steps count
from 1. The published rule leaves out 100 of 600 steps, of which each 100 have a line. Of the third
and fourth, only rank 0 prints. The last is that of the Model Garden's own loops (Orbit).

The callback multiplies the steps by the batch size that it is given. Under Horovod that is usually
the batch of one process, so a log in which several ranks print rates needs the user's word.

Source: tensorflow/models 0851b47 (2019) and r2.3.0, official/utils/misc/keras_utils.py;
Oneflow-Inc/DLPerf c89430b, TensorFlow/resnet50v1.5/extract_tensorflow_logs.py; NVIDIA's container
for TensorFlow 2, nvidia-examples/cnn/nvutils/runner.py; NVIDIA/DeepLearningExamples 0107cf2,
TensorFlow2/Classification/ConvNets/utils/callbacks.py; tensorflow/models 2.5, orbit/controller.py.
"""

from __future__ import annotations

from dataclasses import replace

from . import text
from .records import Expression, Format, Refusal


def _rank_rates(regex: str) -> Refusal:
    return Refusal(
        "several ranks print rates, and nothing says whether they are those of all devices",
        expected="the rates of one process, as with MirroredStrategy, or a word on whose they are",
        hint="state it: --rates-are-per device under Horovod, where a process usually prints its"
        " own rate, or world with MultiWorkerMirroredStrategy\n"
        f"  --regex '{regex}' --unit samples --rates-are-per WHOSE",
    )


_OLD = Format(
    name="tf2_timehistory",
    sample="BenchmarkMetric: {'global step':200, 'time_taken': 41.7,'examples_per_second': 4910.3}",
    marker=b"BenchmarkMetric: {",
    entry=Expression(
        rb"BenchmarkMetric: \{'(?:num_batches|global step)':(?P<step>\d{1,12}+), "
        rb"'time_taken': [\d.]{1,24}+,'examples_per_second': (?P<rate>[^\s}]{1,64}+)\}"
    ),
    rate=rb"\d+\.\d{6}",
    statements=(),
    warmup=(100, 600),
    framework="tensorflow2|tensorflow",
    rank_rates=_rank_rates(r"[ps].:(?P<step>\d+), .*examples_per_second.: (?P<rate>[\d.]+)"),
)
_NGC = replace(
    _OLD,
    sample="global_step: 200 images_per_sec: 4910.3",
    marker=b" images_per_sec: ",
    entry=Expression(
        rb"global_step: (?P<step>\d{1,12}+) images_per_sec: " + text.rate_before(text.END)
    ),
    rate=rb"\d+\.\d",
    warmup=(20, 100),
    rank_rates=None,
)
_DLLOGGER = replace(
    _NGC,
    sample="TimeHistory : 20.85 seconds  examples/second : 4910.3  steps : (100, 200)",
    marker=b"TimeHistory",
    entry=Expression(
        rb'TimeHistory(?: :|":) "?[\d.]{1,24}+ seconds(?:"?, "| {1,2}+)examples/second(?: :|":) '
        rb'(?P<rate>[\d.]{1,64}+)(?:, "| {1,2}+)steps(?: :|":) '
        rb"[(\[]\d{1,12}+, (?P<step>\d{1,12}+)[)\]]"
    ),
    rate=rb"\d+\.\d+",
)
_ORBIT = replace(
    _NGC,
    sample="train | step:    200 | steps/sec:    4.8 | output: ...",
    marker=b" | steps/sec: ",
    entry=Expression(
        rb"train \| step: {1,12}+(?P<step>\d{1,12}+) \| steps/sec: {1,12}+(?P<rate>%s) \| output:"
        % text.WORD
    ),
    rates_are_per="step",
)
FORMAT = replace(
    _OLD,
    sample="TimeHistory: 41.71 seconds, 4910.34 examples/second between steps 100 and 200",
    marker=b" examples/second between steps ",
    entry=Expression(
        rb"TimeHistory: [\d.]{1,24}+ seconds, (?P<rate>%s) examples/second between steps "
        rb"\d{1,12}+ and (?P<step>\d{1,12}+)%s" % (text.WORD, text.END)
    ),
    rate=rb"\d+\.\d\d",
    rank_rates=_rank_rates(r"(?P<rate>[\d.]+) examples/second between steps \d+ and (?P<step>\d+)"),
    variants=(_OLD, _NGC, _DLLOGGER, _ORBIT),
)
