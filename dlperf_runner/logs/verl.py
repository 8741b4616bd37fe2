"""verl: tokens/s of one device in one step of reinforcement learning, which generates samples,
scores them and trains on them. All tokens count, those of the prompts included.

    step:12 - training/global_step:12 - actor/pg_loss:0.01 - ... - perf/total_num_tokens:812345 -
      perf/time_per_step:41.2 - perf/throughput:2464.6 - ...     (on one line)

Steps count from 1. The driver prints each. Lines of a validation have no throughput.

Source: volcengine/verl b178a3c, verl/trainer/ppo/metric_utils.py (compute_throughout_metrics) and
verl/utils/logger/aggregate_logger.py.
"""

from __future__ import annotations

from . import text
from .records import Expression, Format

FORMAT = Format(
    name="verl",
    sample="step:12 - training/global_step:12 - ... - perf/throughput:2464.6 - ...",
    marker=b" - perf/throughput:",
    opening=b"step:",
    entry=Expression(
        rb"(?<![/\w])step:(?P<step>\d{1,12}+) - | - perf/throughput:%s"
        % text.rate_until(rb"(?: - |%s)" % text.END)
    ),
    rate=text.FLOAT,
    statements=(),
    one_step=True,
    rates_are_per="device",
    framework="pytorch",
    unit="tokens",
)
