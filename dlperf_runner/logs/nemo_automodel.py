"""NeMo AutoModel: tokens/s of all devices in one step, without the padding at the ends of samples.

    2026-08-10 15:55:23 | INFO | root | step 10 | epoch 0 | loss 0.8534 | grad_norm 1.5040 |
      lr 1.00e-05 | mem 29.67 GiB | tps 13746.23(1718.28/gpu) | num_label_tokens 29550

This is one line. The first process prints each step. Lines of `[val]` are no training. The tokens
of a step differ with the lengths of its samples, unless these are packed.

Source: NVIDIA-NeMo/Automodel, nemo_automodel/recipes/llm/train_ft.py (log_train_metrics), and its
pull request 3473 (August 2026).
"""

from __future__ import annotations

from .records import Expression, Format

FORMAT = Format(
    name="nemo_automodel",
    sample="step 10 | epoch 0 | loss 0.8534 | grad_norm 1.5040 | ... | tps 13746.23(1718.28/gpu) |",
    marker=b"/gpu) | num_label_tokens ",
    entry=Expression(
        rb"(?<!\] )\bstep (?P<step>\d{1,12}+) \| epoch \d{1,9}+ \| loss (?P<loss>[^\s|]{1,64}+) \| "
        rb"(?:[a-z_]{1,32}+ [^|\r\n]{1,32}+\| ){0,8}?"
        rb"tps (?P<rate>[^\s(]{1,64}+)\([^\s/]{1,64}+/gpu\) \|"
    ),
    rate=rb"\d+\.\d\d",
    statements=(),
    one_step=True,
    framework="pytorch",
    unit="tokens",
)
