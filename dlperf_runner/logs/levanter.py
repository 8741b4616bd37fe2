"""Levanter's json_logger: tokens/s of all devices in one step, the whole batch by the time.

    {"tracker": "json_logger", "event": "log", "step": 10, "metrics": {"train/loss": 7.2, ...}}
    {"tracker": "json_logger", "event": "log", "step": 10, "metrics": {"throughput/total_tokens":
      5767168, ..., "throughput/examples_per_second": 620.6, "throughput/tokens_per_second":
      635461.4, "throughput/duration": 0.825, ..., "throughput/mfu": 41.5}}     (on one line)

Steps count from 0, and each has these lines, from every process; behind Levanter's prefix
(`... - 0 - levanter.json_logger - json_logger.py:68 - INFO :: `), those of process 0 count.

The time of a step ends when the loss is on the host; loading of data, evaluations and checkpoints
do not count. The line of the `hparams` states batch, sequence length and steps.

Its progress lines (`Progress on:train 12.0it/...`) have a moving average of two digits, and are not
read; other trackers write no text.

Source: stanford-crfm/levanter 9263f81 (2025), src/levanter/callbacks/_metrics.py, trainer.py and
tracker/json_logger.py.
"""

from __future__ import annotations

from . import text
from .records import Expression, Format, stated

_VALUE = rb'"[\w/ .-]{1,80}+": [^\s,"{}]{1,40}+, '
_HPARAMS = '"event": "hparams"'

FORMAT = Format(
    name="levanter",
    sample='{"tracker": "json_logger", "event": "log", "step": 10, "metrics": {"throughput/...',
    marker=b'"event": "log", "step": ',
    entry=Expression(
        rb"(?: - 0 - [^\r\n:]{1,80}+:\d{1,9}+ - [A-Z]{1,9}+ :: |(?<!:: ))"
        rb'\{"tracker": "[^"\r\n]{1,64}+", "event": "log", "step": (?P<step>\d{1,12}+), '
        rb'"metrics": \{'
        rb'(?:"train/loss": (?P<loss>[^\s,}]{1,64}+)|'
        rb'(?>(?:(?!"throughput/tokens_per_second)%(v)s){0,8})"throughput/tokens_per_second": '
        rb'(?P<rate>[^\s,}]{1,64}+)(?>(?:, (?>(?:(?!"throughput/mfu)%(v)s){0,4})'
        rb'"throughput/mfu": (?P<mfu>\d{1,3}+(?>(?:\.\d{1,20}+)?)))?))(?=[,}])' % {b"v": _VALUE}
    ),
    rate=text.FLOAT,
    statements=(
        stated(_HPARAMS, r'"train_batch_size": (?P<global_batch_size>\d{1,9}+)[,}]'),
        stated(_HPARAMS, r'"seq_len": (?P<sequence_length>\d{1,9}+)[,}]'),
        stated(_HPARAMS, r'"num_train_steps": (?P<total_steps>\d{1,12}+)[,}]'),
    ),
    zero_based=True,
    one_step=True,
    batch_of_step=True,
    framework="jax",
    unit="tokens",
    caveat="the rates leave out the loading of data",
)
