"""torchtune: tokens/s of one device in one step, without padding.

    Step 10 | loss:1.2345 lr:2e-05 tokens_per_second_per_gpu:2143.6 peak_memory_active:24.9 ...

Steps count from 1 through all epochs. Rank 0 writes every `log_every_n_steps` steps, to a file
`log_*.txt` or to standard output. The tokens of a step differ with the lengths of its samples.

    INFO:torchtune.utils.logging:Model is initialized with precision torch.bfloat16.

Source: pytorch/torchtune bd2a0fc, recipes/full_finetune_distributed.py and
torchtune/training/metric_logging.py (DiskLogger, StdoutLogger).
"""

from __future__ import annotations

from . import text
from .records import Expression, Format, stated

FORMAT = Format(
    name="torchtune",
    sample="Step 10 | loss:1.2345 lr:2e-05 tokens_per_second_per_gpu:2143.6 ...",
    marker=b" tokens_per_second_per_gpu:",
    entry=Expression(
        rb"Step (?P<step>\d{1,12}+) \| loss:(?P<loss>%s) (?:[a-z_/]{1,64}+:\S{1,64}+ ){0,8}?"
        rb"tokens_per_second_per_gpu:%s" % (text.WORD, text.rate_until(rb"(?: |%s)" % text.END))
    ),
    rate=text.FLOAT,
    statements=(
        stated(
            "Model is initialized with precision torch.",
            r"with precision torch\.(?P<precision>bfloat16|float16|float32)\b",
        ),
    ),
    one_step=True,
    rates_are_per="device",
    framework="pytorch",
    unit="tokens",
)
