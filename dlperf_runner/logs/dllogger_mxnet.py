"""DLLogger of NVIDIA's MXNet ResNet-50: the printed rate is that of all devices, the mean over the
steps since the line before.

    DLL 2021-03-24 07:43:08.984621 - Epoch: 0 Iteration: 39  train.loss : 6.87
      train.ips : 10295.685510002188 images/s train.lr : 0.05
    DLLL {"timestamp": "1616571788.984621", ..., "type": "LOG", "step": [0, 39], "data":
      {"train.loss": 6.87, "train.ips": 10295.685510002188, "train.lr": 0.05}}

Each is one line. The first is standard output, the second the JSON file. Steps count from 0; the
program prints every 20. Only the first epoch of a log counts, and not its mean. Only rank
0 prints. `batch_size` is that of a process or of all, by version, and is not read.

Source: NVIDIA/DeepLearningExamples 135fbd9, MxNet/Classification/RN50v1.5/{fit,log_utils}.py.
"""

from __future__ import annotations

from .dllogger_pytorch import START, option
from .records import Expression, Format
from .statements import EXACT

FORMAT = Format(
    name="dllogger_mxnet",
    sample="DLL 2021-03-24 07:43:08.984621 - Epoch: 0 Iteration: 39  train.loss : 6.87 ..."
    " train.ips : 10295.68 images/s ...",
    marker=b"train.ips",
    entry=Expression(
        START + rb"(?![^\r\n]{0,1000}?train\.batch_time)"  # of dllogger_paddle
        rb'(?>[^\r\n]{0,1000}?train\.ips(?: :|":) )(?P<rate>[^\s,}]{1,64}+)'
        rb'(?(json)(?:, "|\})|(?: images/s(?!/)| {1,8}+train\.))'
    ),
    rate=rb"\d+\.\d+",
    statements=(
        option("dtype", r"(?P<precision>float16|float32)\b", {"float32": EXACT}),
        option("disp_batches", r"(?P<log_every>\d{1,9}+)"),
    ),
    zero_based=True,
    framework="mxnet",
)
