"""ColossalAI's examples of language models: one rate, of all devices, at the end of a benchmark.

    num_samples: 160, dp_world_size: 8, flop_megatron: 4.1e+17, flop: 3.9e+17, avg_duration: ...
    Throughput: 24.51 samples/sec, TFLOPS per GPU by Megatron: 187.12, TFLOPS per GPU: 178.40

The first steps, `ignore_steps` of them, do not count, nor does the time between steps. The first
process prints.

Source: hpcaitech/ColossalAI 4f9953b and dc003c3, examples/language/performance_evaluator.py.
"""

from __future__ import annotations

from .records import Expression, Format

FORMAT = Format(
    name="colossalai",
    sample="Throughput: 24.51 samples/sec, TFLOPS per GPU by Megatron: 187.12, TFLOPS per GPU: ...",
    marker=b" samples/sec, TFLOPS per GPU",
    entry=Expression(
        rb"Throughput: (?P<step>)(?P<rate>\S{1,64}+) samples/sec, TFLOPS per GPU(?= by |: )"
    ),
    rate=rb"\d+\.\d\d",
    statements=(),
    framework="pytorch",
    whole_run=True,
)
