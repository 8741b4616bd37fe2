"""DLLogger of NVIDIA's PyTorch ConvNets: the printed rate is that of all devices, the mean over the
steps since the line before.

    DLL 2022-06-14 15:40:21.026182 - Epoch: 0 Iteration: 10  train.loss : 7.03125
      train.compute_ips : 2500.12 img/s train.total_ips : 2480.33 img/s train.lr : 0.05120
    DLLL {"timestamp": "1655221221.026182", ..., "type": "LOG", "step": [0, 10], "data":
      {"train.loss": 7.03125, "train.compute_ips": 2500.12, "train.total_ips": 2480.33, ...}}

Each is one line, of standard output and of the JSON file (`--raport-file`). Steps count from 1.
`train.compute_ips` leaves out the time in which a step waited for data. Only the first epoch of a
log counts. Ignored are validation and the means over an epoch and over the run.

With `--prof 100`, NVIDIA's program leaves its loop in step 100, before it prints a line of it.
Only rank 0 prints. The unit may be `images/s`.

Source: NVIDIA/DeepLearningExamples 0107cf2, PyTorch/Classification/ConvNets/main.py and
image_classification/{logger,training}.py; NVIDIA/dllogger 0478734, dllogger/logger.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from . import text
from .records import Expression, Format, Statement, stated
from .statements import EXACT

# batch_size : 256, or "batch_size": 256; None if another line has it: model.num_classes : 1000
_OPTION = re.compile(r'\b(\w{1,64}+)(?: :|":) "?(?!(?:None|null)\b)([^\s,"}]{1,1000}+)', re.ASCII)
_PARAMETER = "PARAMETER"
# A line with a rate, in either file, up to the loss.
START = (
    rb'DLL(?>(?P<json>L)?) (?>(?:\{"timestamp": ")?)'
    rb"(?>(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}|\d{9,11}+\.\d{1,9}+)?)"
    rb'(?(json)(?>[^\r\n]{0,1000}?"step": \[)| - Epoch: )(?P<epoch>\d{1,6}+)'
    rb"(?(json), | Iteration: )(?P<step>\d{1,12}+)"
    rb'(?(json)\], "data": \{"| {1,8}+)train\.loss(?: :|":) (?P<loss>[^\s,]{1,64}+)'
)


def option(name: str, value: str, values: Mapping[str, str] | None = None) -> Statement:
    """An option of the program, which has that value."""
    return stated(_PARAMETER, rf'\b{name}(?: :|":) "?{value}', values=values or {})


FORMAT = Format(
    name="dllogger_pytorch",
    sample="DLL 2022-06-14 15:40:21.026182 - Epoch: 0 Iteration: 10  train.loss : 7.03 ..."
    " train.total_ips : 2480.33 img/s ...",
    marker=b"train.total_ips",
    entry=Expression(
        START + rb'(?:(?>[^\r\n]{0,1000}?train\.compute_ips(?: :|":) )(?P<compute>[^\s,}]{1,64}+))?'
        rb'(?>[^\r\n]{0,1000}?train\.total_ips(?: :|":) )(?P<rate>[^\s,}]{1,64}+)'
        rb'(?(json)(?:, "|\})|(?: im(?:g|ages)/s(?!/)| {1,8}+train\.))'
    ),
    rate=rb"\d+\.\d+",
    statements=(
        # In 2019 and 2020, before AMP.
        option("fp16", r"(?P<precision>[Tt]rue)\b", {"True": "fp16", "true": "fp16"}),
        *text.PARTS_OF_STEP,
        Statement(
            _PARAMETER,
            _OPTION,
            {
                "batch_size": "batch_size_per_device",
                "world_size": "world_size",
                "print_freq": "log_every",
                "amp": "precision",
            },
            {"True": "amp", "true": "amp", "False": EXACT, "false": EXACT},
        ),
        Statement(
            _PARAMETER,
            _OPTION,
            {
                "arch": "network",
                "num_classes": "classes",
                "precision": "precision",
                # This project's BERT only.
                "sequence_length": "sequence_length",
                "accumulation_steps": "accumulation_steps",
            },
        ),
        # --prof: the number of steps; -1 is a whole epoch.
        option("prof", r"(?P<total_steps>\d{1,18}+)"),
        option("image_size", r"(?P<image_size>\d{1,18}+)"),
        option("data_backend", r"(?P<data>synthetic)\b"),
        option("data", r"(?P<data>/[^\s,\"]{1,512}+)"),
        option("data_backend", r"(?P<dali>dali)-[cg]pu\b", {"dali": "True"}),
        option("data_backend", r"(?P<dali>pytorch)\b", {"pytorch": "False"}),
        # What changes the work of a step, unless it is as usual.
        option("data_backend", r"(?P<data_backend>dali-cpu)\b"),
        option("memory_format", r"(?P<memory_format>nchw|nhwc)\b"),
        option("optimizer_batch_size", r"(?P<optimizer_batch_size>[1-9]\d{0,18})"),
        option("mixup", r"(?P<mixup>0\.\d{0,18}[1-9]\d{0,18})"),
        option("jit", r"(?P<jit>script)\b"),
        option("augmentation", r"(?P<augmentation>autoaugment)\b"),
    ),
    skips_last=True,
)
