"""Composer and LLM Foundry: tokens/s of all devices, the mean of the last batches (SpeedMonitor's
`window_size`, 100 by default), on one of several lines.

    [batch=120/1000]:
             Train time/batch: 119
             Train loss/train/total: 8.4213
             Train throughput/tokens_per_sec: 20082.8418
             Train throughput/device/tokens_per_sec: 1255.1776

Batches count from 1 in the head, which may count tokens or epochs instead, and from 0 below it. The
first lines have no rate. Lines of `Eval` are no training. The program shows its settings first:

    global_train_batch_size: 512
    precision: amp_bf16

Source: mosaicml/composer 6405188, composer/loggers/console_logger.py,
composer/callbacks/speed_monitor.py and composer/trainer/trainer.py.
"""

from __future__ import annotations

from . import text
from .records import Expression, Format, stated

FORMAT = Format(
    name="composer",
    sample="     Train throughput/tokens_per_sec: 20082.8418",
    marker=b"Train throughput/tokens_per_sec: ",
    opening=b"Train time/batch: ",
    entry=Expression(
        rb"Train time/batch: (?P<step>\d{1,12}+)(?!\S)|Train throughput/tokens_per_sec: %s"
        % text.rate_before(text.END)
    ),
    rate=rb"\d+\.\d{4}",
    statements=(
        stated("[batch=", r"(?<!\])\[batch=\d{1,12}+/(?P<total_steps>\d{1,12}+)\]:"),
        stated(
            "global_train_batch_size: ",
            r"\bglobal_train_batch_size: (?P<global_batch_size>\d{1,12}+)$",
        ),
        stated(
            "precision: ",
            r"^precision: (?P<precision>amp_bf16|amp_fp16|fp32)$",
            values={"amp_bf16": "bf16", "amp_fp16": "amp", "fp32": "float32"},
        ),
    ),
    zero_based=True,
    one_step=True,
    batch_of_step=True,
    framework="pytorch",
    unit="tokens",
)
