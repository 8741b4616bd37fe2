"""NeMo 2: the time of a step, in s, or tokens/s of one device, as means since the line before.

    Training epoch 0, iteration 20/59 | lr: 3e-05 | global_batch_size: 128 | global_step: 20 |
      reduced_train_loss: 1.233 | train_step_timing in s: 12.41 |
      tokens_per_sec_per_gpu: 1.073e+04 | consumed_samples: 2688     (on one line)

Iterations count from 0; `59` is the last one. Numbers have four digits, whole ones no point. Newer
versions print tokens/s if they are asked to. Otherwise, the sequence length has to be stated. Lines
of `Validation` are no training. Only rank 0 prints, every `log_interval` steps. BioNeMo prints the
same.

Source: NVIDIA/NeMo 8cfedd7, nemo/lightning/pytorch/callbacks/progress_printer.py and
nemo/utils/exp_manager.py (TimingCallback).
"""

from __future__ import annotations

from dataclasses import replace

from . import text
from .records import Expression, Format

_FIELDS = rb"(?:[^|\r\n]{0,120}+\|){0,25}?"
_RATE = text.rate_until(rb"(?: \||%s)" % text.END)


def _line(field: bytes) -> Expression:
    """The line of an iteration, with the field of its rate."""
    return Expression(
        rb"Training epoch \d{1,9}+, iteration (?P<step>\d{1,12}+)/(?P<last>\d{1,12}+) \|"
        rb"(?:(?>%(f)s global_batch_size: )(?P<batch>\d{1,12}+) \|)?"
        rb"(?:(?>%(f)s reduced_train_loss: )(?P<loss>%(w)s) \|)?"
        rb"(?>%(f)s %(field)s: )%(rate)s"
        % {b"f": _FIELDS, b"w": text.WORD, b"field": field, b"rate": _RATE}
    )


_OF_TOKENS = Format(
    name="nemo",
    sample="Training epoch 0, iteration 20/59 | ... | tokens_per_sec_per_gpu: 1.073e+04 | ...",
    marker=b" | tokens_per_sec_per_gpu: ",
    entry=_line(b"tokens_per_sec_per_gpu"),
    rate=rb"\d+(?:\.\d+)?(?:e\+\d\d)?",
    statements=(),
    zero_based=True,
    rates_are_per="device",
    batch_of_step=True,
    framework="pytorch",
    unit="tokens",
)
_OF_SECONDS = replace(
    _OF_TOKENS,
    sample="Training epoch 0, iteration 20/59 | ... | train_step_timing in s: 12.41 | ...",
    marker=b" | train_step_timing in s: ",
    entry=_line(b"train_step_timing in s"),
    seconds=1.0,
    rates_are_per="step",
)
FORMAT = replace(_OF_TOKENS, variants=(_OF_SECONDS,))
