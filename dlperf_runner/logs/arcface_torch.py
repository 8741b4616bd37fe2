"""insightface's arcface_torch: the printed rate is that of all devices, over the steps since the
line before.

    Training: 2022-03-01 10:00:03,123-: batch_size               128
    Training: 2022-03-01 10:00:09,123-Speed 2271.33 samples/sec   Loss 31.1624
      LearningRate 0.100000   Epoch: 0   Global Step: 100   Fp16 Grad Scale: 65536
      Required: 5 hours     (all on one line)

Steps count from 1. The program prints every `frequent` steps, 10 by default, and nothing for the
first of these intervals. `Loss` is the mean since the line before. Earlier versions print
no time, and those before autumn 2021 no learning rate, every 50 steps.
Only rank 0 prints.

Source: deepinsight/insightface 7fadd42, recognition/arcface_torch/train_v2.py and
utils/{utils_callbacks,utils_logging}.py; docs/speed_benchmark.md has the earlier wording.
"""

from __future__ import annotations

import re

from . import text
from .records import Expression, Format, Statement, stated
from .statements import EXACT

_SETTING = "-: "
_OPTION = re.compile(r": (\w{1,64}+) {1,80}+(\S{1,1000}+)", re.ASCII)


def _option(name: str, value: str) -> Statement:
    return stated(_SETTING, rf": {name} +{value}(?!\S)")


FORMAT = Format(
    name="arcface_torch",
    sample="Training: 2022-03-01 10:00:09,123-Speed 2271.33 samples/sec   Loss 31.1624   ...",
    marker=b"samples/sec   Loss ",
    entry=Expression(
        rb"Training: (?:(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})-)?Speed "
        rb"(?P<rate>%(w)s) samples/sec   Loss (?P<loss>%(w)s)   (?:LearningRate %(w)s   )?"
        rb"Epoch: \d{1,9}+   Global Step: (?P<step>\d{1,12}+)(?=\s)" % {b"w": text.WORD}
    ),
    rate=rb"\d+\.\d\d",
    statements=(
        *text.PARTS_OF_STEP,
        Statement(
            _SETTING,
            _OPTION,
            {
                "batch_size": "batch_size_per_device",
                "total_batch_size": "global_batch_size",
                "total_step": "total_steps",
                "frequent": "log_every",
                "network": "network",
                "num_classes": "classes",
                "image_size": "image_size",
                "rec": "data",
                "fp16": "precision",
                "precision": "precision",  # only this project's own program prints it
            },
            {"True": "amp", "False": EXACT},
        ),
        # What changes the work of a step, unless it is as usual.
        _option("gradient_acc", r"(?P<gradient_acc>[2-9]|[1-9]\d{1,18}+)"),
        _option("embedding_size", r"(?P<embedding_size>(?!512\b)\d{1,18}+)"),
        _option("dali", r"(?P<dali>True)"),
        Statement(_SETTING, _OPTION, {"sample_rate": "sample_rate"}, {"1": "1.0"}),
    ),
    skips_first=True,
)
