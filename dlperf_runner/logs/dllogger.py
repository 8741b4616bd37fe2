"""DLLogger of NVIDIA's DeepLearningExamples: the printed rate is that of all devices.

    DLL 2026-11-20 13:58:34.784710 - (0, 2) total_ips : 3.375044106150882
    DLL 2026-11-20 13:58:37.925081 - () train_throughput : 4.104384208700401 images/s
    DLL 2026-11-20 13:58:34.784710 - (0, 20) imgs_per_sec : 383.9  cross_entropy : 6.98  ...

`total_ips` is the rate of the last step in the mode training_benchmark, which prints no loss. The
mode train prints `imgs_per_sec` instead, with the loss. Both are printed every `display_every`
steps, counted from 0, but not during warm-up. `train_throughput` is the mean over all measured
steps; some versions print no unit. All are printed as Python prints a float. Only rank 0 prints.
mpirun's tag can be before, inside or after the text.
"""

from __future__ import annotations

import re

from . import text
from .records import Format, Statement
from .statements import EXACT

_PARAMETER = " PARAMETER "
_OPTION = re.compile(r"\b(\w{1,64}+) : (\S{1,1000}+)", re.ASCII)
_LOSS = rb"(?: {1,8}+cross_entropy : (?P<loss>%s)[^\r\n]{0,1000}+)?" % text.WORD

FORMAT = Format(
    name="dllogger",
    sample="DLL 2026-11-20 13:58:34.784710 - (0, 2) total_ips : 3.375044106150882",
    marker=b"DLL ",
    entry=re.compile(
        rb"DLL (?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}) - "
        rb"\((?:\d{1,9}+, ?)?(?P<step>\d{1,12}+)\) (?:total_ips|imgs_per_sec) : %s"
        % text.rate_before(rb"(?: images/s)?" + _LOSS + text.END)
    ),
    rate=rb"\d+\.\d+|\d(?:\.\d+)?e-\d\d",
    statements=(
        Statement(
            _PARAMETER,
            _OPTION,
            {
                "batch_size": "batch_size_per_device",
                "amp": "precision",
                "display_every": "log_every",
            },
            {"True": "amp", "False": EXACT},
        ),
        # The number of steps, unless the unit is an epoch.
        Statement(
            _PARAMETER,
            re.compile(
                r"\bnum_iter : (?P<total_steps>\S{1,32}+)(?=.{0,2000}? iter_unit : batch\b)",
                re.ASCII,
            ),
        ),
        Statement(
            _PARAMETER,
            re.compile(
                r" iter_unit : batch .{0,2000}?\bwarmup_steps : (?P<warmup_steps>\d{1,9})\b",
                re.ASCII,
            ),
        ),
        Statement(
            _PARAMETER,
            _OPTION,
            {"arch": "network", "xla": "xla", "dali": "dali", "cpu": "cpu", "data_dir": "data"},
            {"None": ""},
        ),
        # What changes the work of a step, unless it is as usual.
        Statement(_PARAMETER, re.compile(r"\bdata_format : (?P<memory_format>NCHW)\b", re.ASCII)),
        Statement(_PARAMETER, re.compile(r"\bquantize : (?P<quantize>True)\b", re.ASCII)),
        Statement(
            _PARAMETER, re.compile(r"\bmixup : (?P<mixup>0\.\d{0,18}[1-9]\d{0,18})", re.ASCII)
        ),
        # The size of images that are not read from files.
        Statement(
            _PARAMETER,
            re.compile(
                r" data_dir : None .{0,2000}?\bsynthetic_data_size : (?P<image_size>\d{1,18}+)",
                re.ASCII,
            ),
        ),
        Statement("Num GPUs ", re.compile(r"\bNum GPUs (?P<world_size>\d{1,18}+)", re.ASCII)),
        Statement(
            "train_throughput : ",
            re.compile(
                r"train_throughput : (?P<final_samples_per_second>.{0,64}?)(?: images/s)? ?\Z",
                re.ASCII | re.DOTALL,
            ),
        ),
    ),
    zero_based=True,
    silent_warmup=True,
    one_step=True,
)
