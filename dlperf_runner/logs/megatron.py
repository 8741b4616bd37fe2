"""Megatron-LM: the printed duration is the mean of the steps since the line before.

     [2026-04-27 00:00:02.123456] iteration       20/     100 | consumed samples:          320 |
      elapsed time per iteration (ms): 123.4 | throughput per GPU (TFLOP/s/GPU): 400.1 |
      learning rate: 1.000000E-04 | global batch size:    16 | lm loss: 2.000000E+00 | ...
      seq_length ...................................... 4096

The first three lines are one line. Steps count from 1. Step 1 is printed by newer versions, then
every `log_interval` steps. The rate is in steps per second; tokens/s follow from the global batch
size and the sequence length. A log in which the batch size ramps up is refused.

      ... | loss scale: 1.0 | number of skipped iterations:   0 | number of nan iterations:   0 |

A line with no `lm loss`, like this end of one, has a loss that is no number, unless the loss scale
skipped its iterations. Of those skipped, the second counter has the ones whose loss is no number.
Both count since the line before.

In 2020, the lines had no batch size, and the arguments one of a data-parallel rank. BigScience's
fork prints seconds, `(s)`, Argonne's `elapsed_time_per_iteration_ms=123.4`. AMD's Primus prints a
mean behind a value, 123.4/125.0; GPT-NeoX calls the loss `lm_loss`, and Primus that of torchtitan
`loss`.

Megatron Bridge prints a `Step Time` before each line, too, which has fewer digits and does
not count. Megatron-DeepSpeed adds the length of the sequences, `actual seqlen: 4096`. A run in
which it grows, with a curriculum, is refused.

GPT-NeoX prints the samples/s of all devices before a step, ` samples/sec: 7.799 | iteration ...`,
which give the global batch size. Behind an argument, it says whether that is the default one:

      train_batch_size ................ 512.........................updated

The arguments, and the line `using world size: 8, data-parallel size: 1, ...` before them, give the
degrees of parallelism. FP8 is a recipe of a model in bf16 or fp16; `fp8_recipe` has a value without
FP8, too.

Source: NVIDIA/Megatron-LM 001b00c and d98e8a6, megatron/training/training.py (training_log) and
megatron/training/arguments.py (validate_args, _print_args); megatron/core/enums.py;
NVIDIA-NeMo/Megatron-Bridge 067f987, training/utils/train_utils.py; argonne-lcf/Megatron-DeepSpeed
and deepspeedai/Megatron-DeepSpeed, megatron/training.py; EleutherAI/gpt-neox,
megatron/neox_arguments/arguments.py (print).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from . import text
from .records import Expression, Format, Statement, stated
from .statements import EXACT

# The fields before a field, each with its separator.
_FIELDS = rb"(?:[^|\r\n]{0,100}+\|){0,25}?"


def _argument(name: str, value: str, values: Mapping[str, str] | None = None) -> Statement:
    # DeepSpeed prints its own arguments so, too, with the devices of data parallelism alone.
    pattern = rf"(?<!:print\] )  {name} \.+ {value}(?!\S)"
    return stated(f"  {name} ..", pattern, values=values or {})


def _of_neox(name: str, value: str) -> Statement:
    """An argument of GPT-NeoX, which says behind its value whether it is the default one."""
    pattern = rf"  {name} \.+ {value}\.{{3,80}}+(?:default|updated)(?!\S)"
    return stated(f"  {name} ..", pattern, values={"fp32": EXACT})


# Degrees of parallelism, by the name of the argument.
_MESH = {
    "tensor_model_parallel_size": "mesh_tp",
    "model_parallel_size": "mesh_tp",  # in 2020
    "pipeline_model_parallel_size": "mesh_pp",
    "context_parallel_size": "mesh_cp",
    "expert_model_parallel_size": "mesh_ep",
    "virtual_pipeline_model_parallel_size": "mesh_vp",
}

_NEOX = {
    "seq_length": "sequence_length",
    "train_iters": "total_steps",
    "log_interval": "log_every",
    "train_batch_size": "global_batch_size",
    "train_micro_batch_size_per_gpu": "micro_batch_size",
    "model_parallel_size": "mesh_tp",
    "pipe_parallel_size": "mesh_pp",
}


_STATEMENTS = (
    _argument("world_size", r"(?P<world_size>\d{1,18}+)"),
    _argument("seq_length", r"(?P<sequence_length>\d{1,18}+)"),
    _argument("train_iters", r"(?P<total_steps>\d{1,18}+)"),
    _argument("log_interval", r"(?P<log_every>\d{1,18}+)"),
    _argument("global_batch_size", r"(?P<global_batch_size>\d{1,18}+)"),
    _argument("micro_batch_size", r"(?P<micro_batch_size>\d{1,18}+)"),
    _argument("batch_size", r"(?P<micro_batch_size>\d{1,18}+)"),  # in 2020
    *(_argument(argument, rf"(?P<{name}>\d{{1,18}}+)") for argument, name in _MESH.items()),
    _argument("fp8", r"(?P<fp8>None|False|\w{1,64}+)"),
    _argument("fp8_recipe", r"(?P<fp8_recipe>\w{1,64}+)"),
    _argument("fp4", r"(?P<fp4>None|False|\w{1,64}+)"),
    _argument("recompute_granularity", r"(?P<recompute>\w{1,64}+)", {"None": "none"}),
    stated(
        "using world size: ",
        r"using world size: (?P<world_size>\d{1,18}+), data-parallel[- ]size: \d{1,18}+,"
        r"(?: sequence-parallel size: (?P<mesh_sequence>\d{1,18}+),)?"
        r"(?: context-parallel size: (?P<mesh_cp>\d{1,18}+),)?"
        r"(?:[^,]{0,64}sizes: [^,]{0,64}+,)?"
        r" tensor-model-parallel size: (?P<mesh_tp>\d{1,18}+),"
        r" pipeline-model-parallel size: (?P<mesh_pp>\d{1,18}+)",
    ),
    stated("  bf16 ..", r"  (?P<precision>bf16) \.{1,64}+ True(?!\S)"),
    stated("  fp16 ..", r"  (?P<precision>fp16) \.{1,64}+ True(?!\S)"),
    # AMD's Primus
    stated(
        " initialized with seq_len: ",
        r"\bseq_len: (?P<sequence_length>\d{1,18}+) world_size: (?P<world_size>\d{1,18}+)",
    ),
    stated("(tokens/s/GPU): ", r"\| seq_length: (?P<sequence_length>\d{1,18}+) \|"),
    *(_of_neox(argument, rf"(?P<{name}>\d{{1,18}}+)") for argument, name in _NEOX.items()),
    _of_neox("precision", "(?P<precision>fp16|bfloat16|fp32)"),
    stated(
        "samples/sec: ",
        r"samples/sec: (?P<samples_per_s>\d{1,9}+\.\d{3}) \| iteration {1,16}+\d{1,12}+/"
        r"[^|]{1,20}\| elapsed time per iteration \(ms\): (?P<step_ms>\d{1,9}+\.\d) \|",
    ),
    stated(
        "using torch.",
        # bfloat16 may be that of a recipe for fp8, too.
        r"\busing torch\.(?P<precision>float16|float32) for parameters",
    ),
    # The length of the sequences of a step: with a curriculum, it grows.
    stated(" actual seqlen: ", r"\| actual seqlen: {1,16}+(?P<sequence_length>\d{1,18}+) \|"),
    stated(" actual seq length: ", r"\| actual seq length: (?P<sequence_length>\d{1,18}+) \|"),
    stated(" actual_seqlen=", r"\| actual_seqlen= {0,16}+(?P<sequence_length>\d{1,18}+) \|"),
    # Again, so that a restart without it is noticed.
    stated("  bf16 ..", r"  bf16 \.{1,64}+ (?P<bf16>True|False)(?!\S)"),
    stated("  fp16 ..", r"  fp16 \.{1,64}+ (?P<fp16>True|False)(?!\S)"),
)


def _lines(duration: bytes) -> Expression:
    """The line of a step, with the name of the field of its duration."""
    return Expression(
        rb"iteration[ =] {0,16}+(?P<step>\d{1,12}+)/ {0,16}+(?P<total>\d{1,12}+) \|"
        rb"(?>%(f)s %(d)s) {0,8}+"
        rb"(?P<rate>[^\s|/]{1,64}+)(?:/\d{1,12}+\.\d{1,3}+)? \|"
        rb"(?:(?>%(f)s throughput per GPU \(TFLOP/s/GPU\): )"
        rb"(?P<tflops>\d{1,9}+\.\d)(?:/[\d.]{1,16}+)? \|)?"
        rb"(?:(?>%(f)s global[ _]batch[ _]size%(i)s)(?P<batch>\d{1,12}+) \|)?"
        rb"(?=(?:(?>%(f)s %(n)sskipped[ _]iterations%(i)s)(?P<skipped>\d{1,12}+) \|)?)"
        rb"(?:(?:(?>%(f)s %(n)s(?=nan[ _]iterations%(i)s[1-9]))"
        rb"|(?>%(f)s (?:lm[ _])?loss(?::?+ |=)(?=%(w)s \|))"
        rb"|(?>%(f)s %(n)sskipped[ _]iterations%(i)s0 \| %(n)s(?=nan[ _]iterations[:=])))"
        rb"(?P<loss>%(w)s))?"
        % {
            b"f": _FIELDS,
            b"d": duration,
            b"i": rb"[:=] {0,16}+",
            b"n": rb"number[ _]of[ _]",
            b"w": text.WORD,
        }
    )


_IN_MILLISECONDS = Format(
    name="megatron",
    sample="iteration 20/ 100 | ... elapsed time per iteration (ms): 123.4 | ... lm loss: 2.0 |",
    marker=b" elapsed time per iteration (ms): ",
    entry=_lines(rb"elapsed time per iteration \(ms\): "),
    rate=text.NUMBER,
    statements=_STATEMENTS,
    first_too=True,
    seconds=0.001,
    rates_are_per="step",
    batch_of_step=True,
)
_IN_SECONDS = replace(
    _IN_MILLISECONDS,
    sample="iteration 20/ 100 | ... elapsed time per iteration (s): 12.34 | ... lm loss: 2.0 |",
    marker=b" elapsed time per iteration (s): ",
    entry=_lines(rb"elapsed time per iteration \(s\): "),
    seconds=1.0,
)
_OF_ARGONNE = replace(
    _IN_MILLISECONDS,
    sample="iteration= 20/ 100 | ... elapsed_time_per_iteration_ms=123.4 | ... lm loss=2.0 |",
    marker=b" elapsed_time_per_iteration_ms=",
    entry=_lines(b"elapsed_time_per_iteration_ms="),
)
FORMAT = replace(_IN_MILLISECONDS, variants=(_IN_SECONDS, _OF_ARGONNE))
