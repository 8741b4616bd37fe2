"""DLLogger of NVIDIA's DeepLearningExamples: the printed rate is that of all devices.

    DLL 2026-11-20 13:58:34.784710 - (0, 2) total_ips : 3.375044106150882
    DLL 2026-11-20 13:58:37.925081 - () train_throughput : 4.104384208700401 images/s
    DLL 2026-11-20 13:58:34.784710 - (0, 20) imgs_per_sec : 383.9  cross_entropy : 6.98  ...
    DLLL {"timestamp": "1613821720.100000", ..., "step": [0, 200], "data": {"total_ips": 5595.6}}

`total_ips` is the rate of the last step in the mode training_benchmark, which prints no loss. The
mode train prints `imgs_per_sec` instead, with the loss. Both are printed every `display_every`
steps, counted from 0, but not during warm-up.

`train_throughput` is the mean over all measured steps; some versions print no unit. All are printed
as Python prints a float. Only rank 0 prints. mpirun's tag can be before, inside or after the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from . import text
from .records import Expression, Format, Statement, stated
from .statements import EXACT

_PARAMETER = "PARAMETER"
_LOSS = rb"(?: {1,8}+cross_entropy : (?P<loss>%s)[^\r\n]{0,1000}+)?" % text.WORD


def _settings(between: str) -> Iterator[Statement]:
    """The options of the program; `between` stands between an option and its value."""

    def options(pattern: str, values: Mapping[str, str] | None = None) -> Statement:
        return stated(_PARAMETER, pattern.replace(" : ", between), values=values or {})

    option = re.compile(rf"\b(\w{{1,64}}+){between}([^\s,\"}}]{{1,1000}}+)", re.ASCII)
    yield Statement(
        _PARAMETER,
        option,
        {"batch_size": "batch_size_per_device", "amp": "precision", "display_every": "log_every"},
        {"True": "amp", "true": "amp", "False": EXACT, "false": EXACT},
    )
    # The number of steps, unless the unit is an epoch.
    yield options(r"\bnum_iter : (?P<total_steps>[^\s,]{1,32}+)(?=.{0,2000}?\biter_unit : batch\b)")
    yield options(r"\bwarmup_steps : (?P<warmup_steps>\d{1,9})\b")
    yield Statement(
        _PARAMETER,
        option,
        {"arch": "network", "xla": "xla", "dali": "dali", "cpu": "cpu", "data_dir": "data"},
        {"None": "", "null": "", "true": "True", "false": "False"},
    )
    # What changes the work of a step, unless it is as usual.
    yield options(r"\bdata_format : (?P<memory_format>NCHW)\b")
    yield options(r"\bquantize : (?P<quantize>[Tt]rue)\b", {"true": "True"})
    yield options(r"\bmixup : (?P<mixup>0\.\d{0,18}[1-9]\d{0,18})")
    # The size of images that are not read from files.
    yield options(
        r"\bdata_dir : (?:None|null)\b.{0,2000}?\bsynthetic_data_size : (?P<image_size>\d{1,18}+)"
    )


# The file that --raport-file or --log_filename names.
_JSON = Format(
    name="dllogger",
    sample='DLLL {"timestamp": "1613821720.1", ..., "step": [0, 200], "data": {"total_ips": 5.6}}',
    marker=b"DLLL ",
    entry=Expression(
        rb'DLLL \{"timestamp": "(?P<time>\d{9,11}+\.\d{1,9}+)"(?>[^\r\n]{0,1000}?"step": \[)'
        rb'(?:\d{1,9}+, ?)?(?P<step>\d{1,12}+)\], "data": \{"(?:total_ips|imgs_per_sec)": '
        rb'(?P<rate>[^\s,}]{1,64}+)(?=[,}])(?:, "cross_entropy": (?P<loss>[^\s,}]{1,64}+))?'
    ),
    rate=rb"\d+\.\d+|\d(?:\.\d+)?e-\d\d",
    statements=(
        *_settings('": "?'),
        stated(
            '"train_throughput": ',
            r'"train_throughput": (?P<final_samples_per_second>[^\s,}]{1,64}+)',
        ),
    ),
    zero_based=True,
    silent_warmup=True,
    one_step=True,
)
FORMAT = Format(
    name="dllogger",
    sample="DLL 2026-11-20 13:58:34.784710 - (0, 2) total_ips : 3.375044106150882",
    marker=b"DLL ",
    entry=Expression(
        rb"DLL (?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}) - "
        rb"\((?:\d{1,9}+, ?)?(?P<step>\d{1,12}+)\) (?:total_ips|imgs_per_sec) : %s"
        % text.rate_before(rb"(?: images/s)?" + _LOSS + text.END)
    ),
    rate=rb"\d+\.\d+|\d(?:\.\d+)?e-\d\d",
    statements=(
        *_settings(" : "),
        stated("Num GPUs ", r"\bNum GPUs (?P<world_size>\d{1,18}+)"),
        stated(
            "train_throughput : ",
            r"(?s)train_throughput : (?P<final_samples_per_second>.{0,64}?)(?: images/s)? ?\Z",
        ),
    ),
    zero_based=True,
    silent_warmup=True,
    one_step=True,
    variants=(_JSON,),
)
