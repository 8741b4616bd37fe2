"""ColossalAI's examples of language models: one rate, of all devices, at the end of a benchmark.

    num_samples: 160, dp_world_size: 8, flop_megatron: 4.1e+17, flop: 3.9e+17, avg_duration: ...
    Throughput: 24.51 samples/sec, TFLOPS per GPU by Megatron: 187.12, TFLOPS per GPU: 178.40

The first steps, `ignore_steps` of them, do not count, nor does the time between steps. The first
process prints.

The examples of GPT and PaLM print the time of each step instead, without the making of its data:

    INFO     colossalai - colossalai - INFO: gpt2_medium, CAI_Gemini, batch size 8
    INFO     colossalai - colossalai - INFO: [1/10] Loss:11.071, Step time: 0.912s, TFLOPS: 26.345,
      FWD time: 0.201s, BWD time: 0.421s, OPTIM time: 0.290s     (on one line)

Each device has a batch of that size, and the TFLOPS are its own. With tensor parallelism, which
the example had in the spring of 2023, a group of devices shares a batch; no line says so.

Source: hpcaitech/ColossalAI 4f9953b and dc003c3, examples/language/performance_evaluator.py;
4f9953b, examples/language/gpt/gemini/train_gpt_demo.py and examples/language/palm/train.py.
"""

from __future__ import annotations

from .records import Expression, Format, stated

_STEPS = Format(
    name="colossalai",
    sample="[1/10] Loss:11.071, Step time: 0.912s, TFLOPS: 26.345, FWD time: 0.201s, BWD time: ...",
    marker=b", Step time: ",
    entry=Expression(
        rb"\[(?P<step>\d{1,9}+)/(?P<total>\d{1,9}+)\] Loss:(?P<loss>[^\s,]{1,64}+), Step time: "
        rb"(?P<rate>[^\s,s]{1,64}+)s, TFLOPS: (?P<tflops>\d{1,6}+\.\d{3}), FWD time: "
    ),
    rate=rb"\d+\.\d{3}",
    statements=(
        stated(
            ", batch size ",
            r" (?P<network>[\w-]{1,64}+), (?:CAI|Pytorch)_\w{1,32}+, "
            r"batch size (?P<batch_size_per_device>\d{1,9}+)(?!\S)",
        ),
    ),
    one_step=True,
    seconds=1.0,
    rates_are_per="step",
    framework="pytorch",
    unit="samples",
    caveat="each device is taken to have a batch of its own; the making of data does not count",
)
FORMAT = Format(
    name="colossalai",
    sample="Throughput: 24.51 samples/sec, TFLOPS per GPU by Megatron: 187.12, TFLOPS per GPU: ...",
    marker=b" samples/sec, TFLOPS per GPU",
    entry=Expression(
        rb"Throughput: (?P<step>)(?P<rate>\S{1,64}+) samples/sec, TFLOPS per GPU(?= by |: )"
    ),
    rate=rb"\d+\.\d\d",
    statements=(stated("dp_world_size: ", r"dp_world_size: (?P<data_parallel>[1-9]\d{0,8}+)"),),
    framework="pytorch",
    whole_run=True,
    variants=(_STEPS,),
)
