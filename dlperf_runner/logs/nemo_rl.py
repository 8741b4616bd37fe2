"""NeMo RL: tokens/s of one device in one step of reinforcement learning, which generates samples,
scores them and trains on them. All tokens count, those of the prompts included.

    ========================= Step 12/150 =========================
      • Loss: 0.0123
      • Total step time: 112.03s
        - E2E (Tokens/sec/gpu): 1199.30
        - Policy Training (Tokens/sec/gpu): 4810.11

A step has several lines. Steps count from 1, in each epoch anew. Only the driver prints. The rates
of parts of a step do not count.

Source: NVIDIA-NeMo/RL, nemo_rl/algorithms/grpo.py (grpo_train) and its pull request 781 (2025).
"""

from __future__ import annotations

from . import text
from .records import Expression, Format, stated

FORMAT = Format(
    name="nemo_rl",
    sample="    - E2E (Tokens/sec/gpu): 1199.30",
    marker=b"- E2E (Tokens/sec/gpu): ",
    opening=b"==== Step ",
    entry=Expression(
        rb"==== Step (?P<step>\d{1,9}+)/|- E2E \(Tokens/sec/gpu\): %s" % text.rate_before(text.END)
    ),
    rate=rb"\d+\.\d\d",
    statements=(stated("==== Step ", r"==== Step \d{1,9}+/(?P<total_steps>\d{1,9}+) ===="),),
    one_step=True,
    rates_are_per="device",
    framework="pytorch",
    unit="tokens",
)
