"""litgpt: the time of one iteration, in ms: of one of the accumulated batches on each device.

    Epoch 1 | iter 4 step 1 | loss train: 10.960, val: n/a | iter time: 1483.35 ms (step) remaining
      time: 1:02:11     (on one line; fine-tuning programs print no remaining time)

Iterations count from 1, and several are a step if batches are accumulated; `(step)` marks the last
one of a step, which also updates the weights. Fine-tuning prints every iteration; pretraining, each
`log_interval` steps, only the last one of a step. The program shows its settings first:

    {'devices': 8,
     'precision': 'bf16-mixed',
     'train': {'global_batch_size': 128, 'max_seq_length': 2048, 'micro_batch_size': 4, ...

The batch size of the run is thus the micro batch. Fine-tuning samples are as long as their texts,
unless the user states a sequence length, which is then the longest.

Source: Lightning-AI/litgpt 2685705, litgpt/pretrain.py, litgpt/finetune/*.py and litgpt/utils.py
(capture_hparams).
"""

from __future__ import annotations

from .records import Expression, Format, Statement, stated


def _setting(name: str, value: str, **values: str) -> Statement:
    return stated(f"'{name}': ", rf"'{name}': {value}", values=values)


_PRECISIONS = {
    "bf16-mixed": "bf16",
    "bf16-true": "bf16",
    "16-mixed": "amp",
    "16-true": "fp16",
    "32-true": "float32",
}

FORMAT = Format(
    name="litgpt",
    sample="Epoch 1 | iter 4 step 1 | loss train: 10.960, val: n/a | iter time: 1483.35 ms (step)",
    marker=b" | iter time: ",
    entry=Expression(
        rb"\| iter (?P<step>\d{1,12}+) step \d{1,12}+ \| loss train: (?P<loss>[^\s,]{1,64}+),"
        rb" val: \S{1,64}+ \| iter time: (?P<rate>\S{1,64}+) ms"
    ),
    rate=rb"\d+\.\d\d",
    statements=(
        _setting("micro_batch_size", r"(?P<batch_size_per_device>\d{1,9}+)"),
        _setting("max_seq_length", r"(?P<sequence_length>\d{1,9}+)"),
        _setting("precision", r"'(?P<precision>[a-z\d-]{1,16}+)'", **_PRECISIONS),
    ),
    one_step=True,
    seconds=0.001,
    rates_are_per="step",
    framework="pytorch",
    caveat="pretraining prints the time of the last of the accumulated batches, which also updates"
    " the weights, so its rates are a little low where a step has several",
    unit="tokens",
)
