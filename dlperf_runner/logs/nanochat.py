"""nanochat's base_train.py, and build-nanogpt: tokens/s of all devices, of one step.

    step 00010/21400 (0.05%) | loss: 9.123456 | lrm: 1.00 | dt: 1200.11ms | tok/sec: 436,906 |
      bf16_mfu: 34.10 | epoch: 1 | total time: 0.20m     (on one line)
    step    10 | loss: 9.123456 | lr 3.0000e-05 | norm: 1.2345 | dt: 330.10ms | tok/sec: 1588235.12

Steps count from 0; the first process prints each. The prints of chat_sft.py are alike.

    Tokens / micro-batch / rank: 32 x 2048 = 65,536
    Total batch size 524,288 => gradient accumulation steps: 1

Source: karpathy/nanochat 92d63d4, scripts/base_train.py and chat_sft.py; karpathy/build-nanogpt
6104ab1, train_gpt2.py.
"""

from __future__ import annotations

from . import text
from .records import Expression, Format, stated

FORMAT = Format(
    name="nanochat",
    sample="step 00010/21400 (0.05%) | loss: 9.123456 | ... | dt: 1200.11ms | tok/sec: 436,906 |",
    marker=b" | tok/sec: ",
    entry=Expression(
        rb"step {1,8}+(?P<step>\d{1,9}+)(?>(?:/(?P<total>\d{1,9}+))?)"
        rb"(?>(?: \([\d.]{1,8}+%%\))?) \| "
        rb"loss: (?P<loss>%s) \| [^\r\n]{0,120}?dt: [\d.]{1,16}+ms \| tok/sec: "
        rb"(?P<rate>\S{1,64}+)(?: \||(?<=\.\d\d)%s)" % (text.WORD, text.END)
    ),
    rate=rb"\d+\.\d\d|\d{1,3}(?>(?:,\d{3})*)",
    statements=(
        stated(
            "Tokens / micro-batch / rank: ",
            r"rank: (?P<micro_batch_size>\d{1,9}+) x (?P<sequence_length>\d{1,9}+) = ",
        ),
        stated(
            "Total batch size ",
            r"Total batch size (?P<tokens_per_step>[\d,]{1,24}+) => gradient accumulation"
            r" steps: (?P<accumulation_steps>\d{1,9}+)",
        ),
    ),
    zero_based=True,
    one_step=True,
    batch_of_step=True,
    framework="pytorch",
    unit="tokens",
)
