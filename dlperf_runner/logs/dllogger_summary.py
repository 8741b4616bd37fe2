"""DLLogger of NVIDIA's segmentation and detection: the printed rate is that of all devices, the
mean of the steps of a benchmark.

    DLL 2022-05-10 07:42:46.112233 - () throughput_train : 834.567 images/s latency_train_mean : ...
    DLL 2020-10-10 07:42:46.112233 -  avg_img/sec : 2012.1 images/s med_img/sec : 2020.4 ...
    DLL 2021-10-10 09:43:02.644101 -  e2e_train_time : 5025.1 s train_perf_fps : 89.2 images/s
    DLLL {"timestamp": ..., "step": [], "data": {"throughput_train": 834.567, ...}}

The first is that of U-Net and nnU-Net, the second that of SSD in PyTorch (`--mode
benchmark-training`); both leave out a warm-up. The third is that of Mask R-CNN in PyTorch, of a
whole run. In nnU-Net and U-Net only rank 0 prints.

Source: NVIDIA/DeepLearningExamples 0107cf2, PyTorch/Segmentation/{nnUNet/utils/logger.py,
MaskRCNN/pytorch/maskrcnn_benchmark/engine/trainer.py}, PyTorch/Detection/SSD/ssd/logger.py, and
{TensorFlow,TensorFlow2}/Segmentation.
"""

from __future__ import annotations

from dataclasses import replace

from .records import Expression, Format, stated
from .statements import EXACT


def _named(name: bytes) -> Expression:
    return Expression(
        rb'(?P<step>)DLL(?>(?P<json>L)?) (?(json)(?>\{[^\r\n]{0,1000}?"step": \[\], )|)'
        rb"[^\r\n]{0,400}?"
        rb'(?<=[ "{])%s(?: :|":) (?P<rate>[\d.]{1,64}+)(?(json)[,}]| (?:images|volumes)/s(?!/))'
        % name
    )


_BENCHMARK = Format(
    name="dllogger_summary",
    sample="DLL 2022-05-10 07:42:46.112233 - () throughput_train : 834.567 images/s ...",
    marker=b"throughput_train",
    entry=_named(b"throughput_train"),
    rate=rb"\d+\.\d+",
    statements=(
        stated(
            "PARAMETER",
            r'\b(?:use_)?amp(?: :|":) (?P<precision>[Tt]rue|[Ff]alse)\b',
            values={"True": "amp", "true": "amp", "False": EXACT, "false": EXACT},
        ),
    ),
    whole_run=True,
    framework="pytorch|tensorflow|tensorflow2",
)
FORMAT = replace(
    _BENCHMARK,
    variants=(
        replace(
            _BENCHMARK,
            sample="DLL 2020-10-10 07:42:46.112233 -  avg_img/sec : 2012.1 images/s ...",
            marker=b"avg_img/sec",
            entry=_named(b"avg_img/sec"),
        ),
        replace(
            _BENCHMARK,
            sample="DLL 2021-10-10 09:43:02.644101 -  ... train_perf_fps : 89.2 images/s",
            marker=b"train_perf_fps",
            entry=_named(b"train_perf_fps"),
            caveat="train_perf_fps is of the whole run of Mask R-CNN, with its warm-up",
        ),
    ),
)
