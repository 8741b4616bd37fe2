"""PaddleNLP's Trainer: tokens/s of one device in pretraining, else steps/s, since the line before.

    [2024-05-01 16:19:16,008] [    INFO] - loss: 12.0635252, learning_rate: 2e-06, global_step: 10,
      interval_runtime: 1.1518, interval_samples_per_second: 8.682,
      interval_tokens_per_second_per_device: 889.0448, interval_steps_per_second: 8.682, ...

Each is one line. Steps count from 1. Rank 0 of each node prints every `logging_steps` steps.

Versions of 2022 divide the samples of one step by the time of all, so that number does not count;
without tokens, the rate is in steps/s, and samples/s follow from the global batch size, which the
program states in the words of Hugging Face's Trainer.

Source: PaddlePaddle/PaddleNLP 01f7436, paddlenlp/trainer/trainer_callback.py, trainer_utils.py
(speed_metrics) and trainer.py.
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
FORMAT = replace(_OF_TOKENS, variants=(_OF_STEPS,))
