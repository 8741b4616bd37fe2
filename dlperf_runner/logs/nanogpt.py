"""nanoGPT: the time of a single step of all devices, in ms, every `log_interval` steps.

    tokens per iteration will be: 491,520
    iter 10: loss 10.8000, time 260.37ms, mfu 38.71%

llama2.c, and what is made from it, prints the same in other words:

    breaks down as: 4 grad accum steps * 8 processes * 16 batch size * 256 max seq len
    10 | loss 9.0000 | lr 5.000000e-04 | 210.37ms | mfu 38.71%

Steps count from 0; only the first process prints them. The tokens of a step, with accumulated
batches, are stated since 2023; the rate follows from them.

In older versions, batch and sequence length have to be stated, and how many batches a step
accumulates. The first line, and each after an evaluation, includes that. The printed `mfu` is a
running mean for the peak of an A100, and does not count.

Source: karpathy/nanoGPT 3adf61e and fe80428, and karpathy/llama2.c, train.py.
"""

from __future__ import annotations

from dataclasses import replace

from . import text
from .records import Expression, Format, stated

_OF_GPT = Format(
    name="nanogpt",
    sample="iter 10: loss 10.8000, time 260.37ms, mfu 38.71%",
    marker=b", time ",
    entry=Expression(
        rb"iter (?P<step>\d{1,12}+): loss (?P<loss>%(w)s), time (?P<rate>[^\sm]{1,64}+)ms"
        rb"(?=[,\s]|\Z)" % {b"w": rb"[^\s,]{1,64}+"}
    ),
    rate=text.NUMBER,
    statements=(
        stated(
            "tokens per iteration will be: ",
            r"will be: (?P<tokens_per_step>\d{1,3}+(?>(?:,\d{3}){1,6}))(?!\S)",
        ),
        stated(
            "breaks down as: ",
            r"down as: \d{1,9}+ grad accum steps \* (?P<world_size>\d{1,9}+) processes \*"
            r" ?(?P<micro_batch_size>\d{1,9}+) batch size \* (?P<sequence_length>\d{1,9}+) max",
        ),
    ),
    zero_based=True,
    one_step=True,
    seconds=0.001,
    rates_are_per="step",
    batch_of_step=True,
    accumulates=True,
    framework="pytorch",
    unit="tokens",
)
_OF_LLAMA = replace(
    _OF_GPT,
    sample="10 | loss 9.0000 | lr 5.000000e-04 | 210.37ms | mfu 38.71%",
    marker=b" | lr ",
    entry=Expression(
        rb"(?<!\S)(?P<step>\d{1,12}+) \| loss (?P<loss>[^\s|]{1,64}+) \| lr [^\s|]{1,64}+ \| "
        rb"(?P<rate>[^\sm|]{1,64}+)ms(?= \|)"
    ),
)
FORMAT = replace(_OF_GPT, variants=(_OF_LLAMA,))
