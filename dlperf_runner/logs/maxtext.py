"""MaxText: the printed rate is that of one device in tokens/s, of one step.

    Config param per_device_batch_size: 4.0
    Num_devices: 8, shape (1, 1, 8, 1, ...)
    completed step: 5, seconds: 5.668, TFLOP/s/device: 134.909, Tokens/s/device: 8671.794,
      total_weights: 196608, loss: 10.879                                 (on one line)

Steps count from 0. The seconds are those between the starts of two steps on the host, which runs
ahead of the devices: the first steps are not believable, and belong into the warm-up. While the
batch size ramps up, and at the boundaries of a profile, no rate is printed.

Versions of 2024 print no weights, those before July 2024 no tokens, either; in 2023 it was
`TFLOP/s: 134.909`. MaxDiffusion prints samples and frames of a device, too. The batch size per
device is a fraction if several devices share a sample, and of one of the accumulated batches.

Synthetic data was all zeros before 2025, of which the loss is 0.

Source: AI-Hypercomputer/maxtext e591f30, src/maxtext/common/metric_logger.py, configs/pyconfig.py,
configs/base.yml, configs/types.py, pull request 1217 (data of zeros)
and docs/guides/monitoring_and_debugging/understand_logs_and_metrics.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from . import text
from .records import Expression, Format, Statement, stated

# The axes of the mesh, by their names in parameters like ici_fsdp_parallelism.
_AXES = {
    "data": "ddp",
    "fsdp": "fsdp",
    "fsdp_transpose": "fsdp_transpose",
    "tensor": "tp",
    "tensor_transpose": "tensor_transpose",
    "tensor_sequence": "tensor_sequence",
    "sequence": "sequence",
    "context": "cp",
    "context_autoregressive": "cp_autoregressive",
    "pipeline": "pp",
    "expert": "ep",
    "autoregressive": "autoregressive",
}


_ZERO_LOSS = (
    "MaxText's synthetic data was all zeros before 2025, with which steps were up to 10 % faster"
    " than with other data"
)


def _config(key: str, value: str, values: Mapping[str, str] | None = None) -> Statement:
    return stated(f"Config param {key}:", rf"\b{key}: {value}(?!\S)", values=values or {})


_STATEMENTS = (
    *text.PARTS_OF_STEP,
    _config("per_device_batch_size", r"(?P<batch_size_per_device>\d{1,18}+(?:\.\d{1,18}+)?)"),
    _config("gradient_accumulation_steps", r"(?P<accumulation_steps>\d{1,18}+)"),
    _config("max_target_length", r"(?P<sequence_length>\d{1,18}+)"),
    _config("dataset_type", r"(?P<data>\w{1,32}+)"),
    _config("steps", r"(?P<total_steps>\d{1,18}+)"),
    _config("dtype", r"(?P<precision>\w{1,64}+)"),
    _config("quantization", r"?(?P<recipe>\w{0,64}+)", {"": "none", "None": "none"}),
    _config("remat_policy", r"(?P<recompute>\w{1,64}+)", {"minimal_with_context": "selective"}),
    *(
        _config(f"{place}_{axis}_parallelism", rf"(?P<mesh_{prefix}{name}>-?\d{{1,18}}+)")
        for place, prefix in (("ici", ""), ("dcn", "dcn_"))
        for axis, name in _AXES.items()
    ),
    stated("Num_devices: ", r"\bNum_devices: (?P<world_size>\d{1,18}+)"),
)
# Before July 2024. The rate is in steps per second.
_EARLIEST = Format(
    name="maxtext",
    sample="completed step: 5, seconds: 5.668, TFLOP/s: 134.909, loss: 10.879",
    marker=b"completed step: ",
    entry=Expression(
        rb"completed step: (?P<step>\d{1,12}+), seconds: (?P<rate>[^\s,]{1,64}+),"
        rb" TFLOP/s(?>(?:/device)?): (?P<tflops>\d{1,9}+\.\d{3}), loss: (?P<loss>[^\s,]{1,64}+)"
    ),
    rate=rb"\d+\.\d{3}",
    statements=_STATEMENTS,
    zero_based=True,
    one_step=True,
    seconds=1.0,
    zero_loss=_ZERO_LOSS,
    rates_are_per="step",
    batch_of_step=True,
)
FORMAT = Format(
    name="maxtext",
    sample="completed step: 5, seconds: 5.668, ... Tokens/s/device: 8671.794, total_weights: ...",
    marker=b"completed step: ",
    entry=Expression(
        rb"completed step: (?P<step>\d{1,12}+), seconds: \d{1,9}+\.\d{3}, "
        rb"(?:TFLOP/s/device: (?P<tflops>\d{1,9}+\.\d{3}), )?"
        rb"(?>[^\r\n]{0,200}?Tokens/s/device: )(?P<rate>[^\s,]{1,64}+),"
        rb"(?: [A-Za-z_/]{1,32}+: [\d.]{1,32}+,){0,4}? loss: (?P<loss>[^\s,]{1,64}+)"
    ),
    rate=rb"\d+\.\d{3}",
    statements=_STATEMENTS,
    zero_based=True,
    one_step=True,
    rates_are_per="device",
    batch_of_step=True,
    zero_loss=_ZERO_LOSS,
    variants=(_EARLIEST,),
)
