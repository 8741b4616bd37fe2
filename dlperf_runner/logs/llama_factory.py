"""LLaMA-Factory's trainer_log.jsonl: the tokens/s of all devices in all steps so far.

    {"current_steps": 10, "total_steps": 50, "loss": 1.2345, "lr": 4.9e-05, "epoch": 0.2,
      "percentage": 20.0, "elapsed_time": "0:00:31", "remaining_time": "0:02:04",
      "throughput": 12345.67, "total_tokens": 382720}     (on one line)

Rates since the line before follow from these means and the tokens. Both are there if the program
was asked to count tokens (`include_num_input_tokens_seen`). Until November 2024, the rate is in
quotes. Steps count from 1. What the program prints is in the words of Hugging Face's Trainer.

Source: hiyouga/LLaMA-Factory ff6d4d1, src/llamafactory/train/callbacks.py (LogCallback).
"""

from __future__ import annotations

from .records import Expression, Format

FORMAT = Format(
    name="llama_factory",
    sample='{"current_steps": 10, "total_steps": 50, "loss": 1.2, ... "throughput": 12345.67, ...',
    marker=b'"current_steps": ',
    entry=Expression(
        rb'"current_steps": (?P<step>\d{1,12}+), "total_steps": (?P<total>\d{1,12}+), '
        rb'"loss": (?P<loss>[^\s,]{1,64}+), (?>(?:"[a-z_]{1,32}+": [^\s,"]{1,64}+, ){0,12})'
        rb'"elapsed_time": "[^"\r\n]{1,40}+", "remaining_time": "[^"\r\n]{1,40}+", '
        rb'"throughput": "?(?P<rate>[^\s,"]{1,64}+)"?, '
        rb'"total_tokens": (?P<amount>\d{1,18}+)(?:\}|, )'
    ),
    rate=rb"\d+\.\d{1,2}",
    statements=(),
    running_mean=0,
    framework="pytorch",
    unit="tokens",
)
