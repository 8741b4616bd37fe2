"""torchtitan: the printed rate (tps) is that of one device in tokens/s, since the line before.

    [titan] 2025-12-01 12:00:07,123 - root - INFO - step: 10  loss:  8.1234  grad_norm:  1.2345
      memory:  0.50GiB(1.20%)  tps: 6,835  tflops: 12.30  mfu: 1.20%     (all on one line)

Steps count from 1. Step 1 is printed, then every `log_freq` steps, 10 by default. Earlier versions
print neither grad_norm nor tflops, and before December 2024 `wps` in the place of tps; lines of
`validate step:` are no training.

The warm-up that the program names is that of its learning rate. Only ranks that torchrun's filter
lets through print, usually rank 0. A stage of a pipeline that is not the last one prints a loss of
-1.

The batch of a data-parallel rank is the local batch size, which the devices of that rank share. A
step has the global batch size: with accumulation, several local batches.

    Trainer is initialized with local batch size 2, global batch size 64, gradient accumulation
      steps 4, sequence length 8192, total steps 100 (warmup 10)
    Trainer is initialized with 8192 tokens per DP rank, 131072 tokens per train step, gradient
      accumulation steps 1, maximum context length 8192, total steps 100 (warmup 10)
    Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=4, cp=1, tp=8, ep=1
    Building 2-D device mesh with ['dp_shard', 'tp'], [4, 8]
    Float8 training active with recipe rowwise

Each is one line; the earlier ones are of 2025, the second of August 2026.

Source: pytorch/torchtitan, torchtitan/components/metrics.py (00fbaaf and b5bcd76), train.py,
trainer.py, distributed/parallel_dims.py and components/quantization/*.py (fb17e25, b5bcd76).
"""

from __future__ import annotations

from itertools import combinations

from . import text
from .records import Expression, Format, Statement, stated

_AXES = {
    "pp": "mesh_pp",
    "dp_replicate": "mesh_ddp",
    "dp_shard": "mesh_fsdp",
    "dp": "mesh_fsdp",
    "cp": "mesh_cp",
    "tp": "mesh_tp",
}
_ACCUMULATION = r"gradient accumulation steps (?P<accumulation_steps>\d{1,18}+)"


def _earlier_mesh(*axes: str) -> Statement:
    names = ", ".join(f"'{axis}'" for axis in axes)
    sizes = ", ".join(rf"(?P<{_AXES[axis]}>\d{{1,18}}+)" for axis in axes)
    return stated(
        f"Building {len(axes)}-D device mesh with ",
        rf"device mesh with \[{names}\], \[{sizes}\](?P<whole_mesh>)",
    )


_EARLIER_MESHES = [
    _earlier_mesh(*axes)
    for number in range(1, len(_AXES))
    for axes in combinations(_AXES, number)
    if not {"dp", "dp_shard"} <= {*axes}
]


FORMAT = Format(
    name="torchtitan",
    sample="step: 10  loss:  8.1234  grad_norm:  1.2345  memory: 0.50GiB(1.20%)  tps: 6,835  ...",
    marker=b"step: ",
    entry=Expression(
        rb"(?:\[titan\] (?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) - %(w)s - INFO - )?"
        rb"(?<!validate )step: {1,16}+(?P<step>\d{1,12}+)  "
        rb"loss: {1,16}+(?:-1\.0{1,8}+|(?P<loss>%(w)s))  (?:grad_norm: {1,16}+%(w)s  )?"
        rb"memory: {1,16}+(?P<memory_gib>\d{1,9}+\.\d\d)GiB\([^)\s]{0,64}+\)  "
        rb"[tw]ps: (?P<rate>%(w)s)  (?=(?:tflops|mfu): )"
        rb"(?:tflops: {1,16}+(?P<tflops>[\d,]{1,16}+\.\d\d)  )?"
        rb"(?:mfu: {1,16}+(?P<mfu>\d{1,9}+\.\d\d)%%)?" % {b"w": text.WORD}
    ),
    rate=rb"\d{1,3}(?>(?:,\d{3})*)",
    statements=(
        *text.PARTS_OF_STEP,
        stated(
            "with local batch size ",
            r"with local batch size (?P<micro_batch_size>\d{1,18}+),"
            r" global batch size (?P<global_batch_size>\d{1,18}+)"
            rf"(?:(?:,| \() ?{_ACCUMULATION}\)?)?,"
            r" sequence length (?P<sequence_length>\d{1,18}+),"
            r" total steps (?P<total_steps>\d{1,18}+)",
        ),
        stated(
            " tokens per train step, ",
            rf"(?P<tokens_per_step>\d{{1,18}}+) tokens per train step, {_ACCUMULATION},"
            r" maximum context length (?P<sequence_length>\d{1,18}+),"
            r" total steps (?P<total_steps>\d{1,18}+)",
        ),
        stated(
            " training active",
            r"(?P<recipe>Float8)(?: tensorwise scaled)? training active(?! with)",
            values={"Float8": "float8"},
        ),
        stated(
            " training active",
            r"\bFloat8 training active with recipe (?P<recipe>\w{1,64}+)",
            values={
                "tensorwise": "float8",
                "rowwise": "float8-rowwise",
                "rowwise_with_gw_hp": "float8-rowwise-gw-hp",
            },
        ),
        stated(
            "Converted Linear layers to ",
            r"layers to (?P<recipe>MXFP8|NVFP4)Linear\b",
            values={"MXFP8": "mxfp8", "NVFP4": "nvfp4"},
        ),
        # As this project starts it, and its own program.
        stated(
            "Starting job: ",
            r"Starting job: (?P<network>[^\s,]{1,64}+), precision (?P<precision>\w{1,32}+),"
            r"(?: recipe (?P<recipe>\w{1,32}+),)?",
        ),
        stated(
            "device mesh with parallelism: ",
            r"\bpp=(?P<mesh_pp>\d{1,18}+), dp_replicate=(?P<mesh_ddp>\d{1,18}+),"
            r" dp_shard=(?P<mesh_fsdp>\d{1,18}+), cp=(?P<mesh_cp>\d{1,18}+),"
            r" tp=(?P<mesh_tp>\d{1,18}+)"
            r"(?:, ep=(?P<mesh_ep>\d{1,18}+))?(?P<whole_mesh>)\b",
        ),
        *_EARLIER_MESHES,  # until 2025
    ),
    first_too=True,
    rates_are_per="device",
    batch_of_step=True,
)
