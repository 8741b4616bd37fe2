"""PaddleNLP's Trainer: tokens/s of one device in pretraining, else steps/s, since the line before.

    [2024-05-01 16:19:16,008] [    INFO] - loss: 12.0635252, learning_rate: 2e-06, global_step: 10,
      interval_runtime: 1.1518, interval_samples_per_second: 8.682,
      interval_tokens_per_second_per_device: 889.0448, interval_steps_per_second: 8.682, ...

Each is one line. Steps count from 1. Rank 0 of each node prints every `logging_steps` steps.

Versions of 2022 divide the samples of one step by the time of all, so that number does not count;
without tokens, the rate is in steps/s, and samples/s follow from the global batch size, which the
program states in the words of Hugging Face's Trainer.

    [2021-11-10 05:43:58,797] [    INFO] - global step 10, epoch: 0, batch: 9, loss: 10.940000000,
      avg_reader_cost: 0.00012 sec, avg_batch_cost: 0.70722 sec, speed: 1.41 step/s, ips_total:
      92667 tokens/s, ips: 11583 tokens/s, learning rate: 2.77778e-08
    [2022-09-21 05:43:58,797] [    INFO] - [train] epoch: 0, batch: 1, loss: 10.940000000,
      avg_batch_cost: 0.71030 sec, ...

The scripts for GPT of PaddleNLP and PaddleFleetX print tokens/s of all devices since the line
before, `ips_total`. `ips` is that of a device, but in some versions of all. `[train]` counts
batches from 0 in each epoch.

Source: PaddlePaddle/PaddleNLP 01f7436, paddlenlp/trainer/trainer_callback.py, trainer_utils.py
(speed_metrics) and trainer.py; examples/language_model/gpt-3 of 2021 to 2023, run_pretrain.py;
PaddlePaddle/PaddleFleetX, ppfleetx/models/language_model/language_module.py (training_step_end).
"""

from __future__ import annotations

from dataclasses import replace

from .hf_trainer import STATEMENTS
from .records import Expression, Format


def _line(field: bytes) -> Expression:
    """The line of a step, with the field of its rate."""
    return Expression(
        rb"loss: (?P<loss>[^\s,]{1,64}+), learning_rate: [^\s,]{1,64}+, "
        rb"global_step: (?P<step>\d{1,12}+), (?:[a-z_]{1,64}+: [^\s,]{1,64}+, ){0,24}?"
        rb"interval_%s: (?P<rate>[^\s,]{1,64}+), " % field
    )


_OF_TOKENS = Format(
    name="paddlenlp_trainer",
    sample="loss: 12.06, learning_rate: 2e-06, global_step: 10, ... interval_steps_per_second: ...",
    marker=b", interval_tokens_per_second_per_device: ",
    entry=_line(b"tokens_per_second_per_device"),
    rate=rb"\d+\.\d{1,4}",
    statements=STATEMENTS,
    rates_are_per="device",
    batch_of_step=True,
    framework="paddle",
    unit="tokens",
)
_OF_STEPS = replace(
    _OF_TOKENS,
    marker=b", interval_steps_per_second: ",
    entry=_line(b"steps_per_second"),
    rates_are_per="step",
    unit="samples",
)


def _of_script(step: bytes) -> Expression:
    """The line of a step of a script for GPT, with what it begins with."""
    return Expression(
        step + rb",(?: epoch: \d{1,9}+,)?(?: batch: \d{1,12}+,)? {1,2}+"
        rb"loss: (?P<loss>[^\s,]{1,64}+),"
        rb"(?>(?: [a-z_]{1,64}+: [^,\r\n]{1,64}+,){0,8}? ips_total: )"
        rb"(?P<rate>[^\s,]{1,64}+) tokens/s,"
    )


_OF_SCRIPTS = replace(
    _OF_TOKENS,
    sample="global step 10, epoch: 0, batch: 9, loss: 10.94, ... ips_total: 92667 tokens/s, ...",
    marker=b" ips_total: ",
    entry=_of_script(rb"\bglobal step (?P<step>\d{1,12}+)"),
    rate=rb"\d+",
    statements=(),
    rates_are_per="world",
)
_OF_FLEETX = replace(
    _OF_SCRIPTS,
    sample="[train] epoch: 0, batch: 1, loss: 10.94, ... ips_total: 92265 tokens/s, ...",
    entry=_of_script(rb"\[train\] epoch: (?P<epoch>\d{1,9}+), batch: (?P<step>\d{1,12}+)"),
    zero_based=True,
)
FORMAT = replace(_OF_TOKENS, variants=(_OF_STEPS, _OF_SCRIPTS, _OF_FLEETX))
