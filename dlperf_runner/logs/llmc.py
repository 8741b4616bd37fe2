"""llm.c: tokens/s of all devices. train_gpt2.cu prints a mean that forgets what is older than some
20 steps, without the first step; its programs in Python and in fp32 print those of one step.

    batch_size B=64 * seq_len T=1024 * num_processes=8 and total_batch_size=524288
    step    1/60 | loss 10.960000 (+nanz)| norm 1.4800 (+nanz)| lr 3.00e-04 | 413.84 ms | 31.9% bf16
      MFU | 1266887 tok/s     (on one line)
    step    1/60 | train loss 4.367631 | norm 1.4800 | lr 3.00e-04 | (259.10 ms | 2027124 tok/s)
    step    1/74: train loss 4.367631 (36.360000 ms, 112647 tok/s)

Steps count from 1, and the first process prints each. The total batch is in tokens, those of
accumulated batches included.

Source: karpathy/llm.c f1e2ace, train_gpt2.cu, train_gpt2.py and train_gpt2_fp32.cu.
"""

from __future__ import annotations

from .records import Expression, Format, stated

FORMAT = Format(
    name="llmc",
    sample="step    1/60 | loss 10.960000 (+nanz)| norm 1.4800 (+nanz)| ... | 1266887 tok/s",
    marker=b" tok/s",
    entry=Expression(
        rb"step {1,8}+(?P<step>\d{1,9}+)/(?P<total>\d{1,9}+)(?: \||:) (?>(?:train )?)"
        rb"loss (?P<loss>\S{1,64}+) [^\r\n]{0,160}?[|,] (?P<rate>[^|(\r\n]{1,64}?) tok/s"
    ),
    rate=rb"\d+",
    statements=(
        stated(
            "batch_size B=",
            r"B=(?P<micro_batch_size>\d{1,9}+) \* seq_len T=(?P<sequence_length>\d{1,9}+)"
            r" \* num_processes=(?P<world_size>\d{1,9}+)"
            r" and total_batch_size=(?P<tokens_per_step>\d{1,12}+)",
        ),
        stated(
            "| precision ",
            r"\| precision {1,40}+\| (?P<precision>[A-Z\d]{1,8}+) ",
            values={"BF16": "bf16", "FP16": "fp16", "FP32": "fp32", "TF32": "tf32"},
        ),
    ),
    one_step=True,
    batch_of_step=True,
    framework="cuda",
    caveat="train_gpt2.cu prints a mean of about the last 20 steps, so that slow first steps may"
    " reach beyond the warm-up",
    unit="tokens",
)
