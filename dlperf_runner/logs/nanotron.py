"""Hugging Face's nanotron: tokens/s of all devices in one step, with three digits.

    01/17/2024 13:47:27 [INFO|DP=0|PP=0|TP=0|node]: iteration: 991 / 1000 | consumed_tokens: 634K |
      elapsed_time_per_iteration_ms: 45 | tokens_per_sec: 14.2K | tokens_per_sec_per_gpu: 1.78K |
      global_batch_size: 20 | lm_loss: 10.6 | lr: 1e-05 | model_tflops_per_gpu: 0.00869 | ...
    ... [INFO|DP=0]: iteration: 991 / 1000 | consumed_tokens: 1.04B | time_per_iteration_ms: 690 |
      tokens_per_sec: 1.52M | ... | global_batch_size: 1.05M | grad_norm: 0.5 | lm_loss: 2.38 | ...

Each is one line; the second is that of March 2025 and newer, whose batch is in tokens. K, M, G (now
B) and T multiply a number.

Three digits are within 0.5 %, but do not give the number of devices. A batch of four digits is
rounded, too; the line with `mbs:` at the beginning has all of them.

Steps count from 1. One rank prints, every `iteration_step_info_interval` steps.

Source: huggingface/nanotron e77dfdf (2023), 2b141c2 and 2411b02 (2025), src/nanotron/trainer.py and
src/nanotron/logging/base.py (human_format).
"""

from __future__ import annotations

from . import text
from .records import Expression, Format, stated

_FIELDS = rb"(?:[^|\r\n]{0,120}+\|){0,25}?"
_SETTINGS = "mbs: "

FORMAT = Format(
    name="nanotron",
    sample="iteration: 991 / 1000 | consumed_tokens: 634K | ... | tokens_per_sec: 14.2K | ...",
    marker=b" | tokens_per_sec: ",
    entry=Expression(
        rb"iteration: (?P<step>\d{1,12}+) / (?P<total>\d{1,12}+) \|"
        rb"(?=(?:(?>%(f)s elapsed_time_per_iteration_ms: )"
        rb"(?>%(f)s global_batch_size: )(?P<batch>\d{1,3}+) \|)?)"
        rb"(?>%(f)s tokens_per_sec: )(?P<rate>[^\s|]{1,16}?)(?P<prefix>[KMGBT]?) \|"
        rb"(?:(?>%(f)s lm_loss: )(?P<loss>%(w)s) \|)?"
        rb"(?:(?>%(f)s model_tflops_per_gpu: )(?P<tflops>\d{1,3}+(?:\.\d{1,9}+)?) \|)?"
        % {b"f": _FIELDS, b"w": text.WORD}
    ),
    rate=rb"\d{1,3}(?:\.\d{1,9})?",
    statements=(
        stated(_SETTINGS, r"\bmbs: (?P<micro_batch_size>\d{1,9}+) \|"),
        stated(_SETTINGS, r" cp: (?P<mesh_cp>\d{1,9}+) \|"),
        stated(_SETTINGS, r" global_batch_size: (?P<global_batch_size>\d{1,9}+) \|"),
        stated(_SETTINGS, r" sequence_length: (?P<sequence_length>\d{1,9}+) \|"),
        stated(_SETTINGS, r" train_steps: (?P<total_steps>\d{1,12}+) \|"),
    ),
    one_step=True,
    batch_of_step=True,
    framework="pytorch",
    unit="tokens",
)
