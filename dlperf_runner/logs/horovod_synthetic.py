"""Horovod's synthetic benchmarks (PyTorch, TensorFlow and Keras): the printed rate is that of one
device, the mean over the batches of an iteration, 10 by default.

    Model: resnet50
    Batch size: 32
    Number of GPUs: 16
    Iter #0: 97.9 img/sec per GPU
    Img/sec per GPU: 98.3 +-0.6
    Total img/sec on 16 GPU(s): 1572.5 +-9.9

Iterations count from 0; the warm-up has ended before. Only rank 0 prints. The second line from the
end is the mean of all iterations. Without a GPU, the lines say CPU.

Source: horovod/horovod 2626dc8, examples/pytorch/pytorch_synthetic_benchmark.py and
examples/tensorflow2/tensorflow2{,_keras}_synthetic_benchmark.py.
"""

from __future__ import annotations

from . import text
from .records import Expression, Format, stated

FORMAT = Format(
    name="horovod_synthetic",
    sample="Iter #0: 97.9 img/sec per GPU",
    marker=b"Iter #",
    entry=Expression(rb"Iter #(?P<step>\d{1,9}+): (?P<rate>%s) img/sec per [CG]PU" % text.WORD),
    rate=rb"\d+\.\d",
    statements=(
        stated("Model: ", r"\AModel: (?P<network>\S{1,100}+)"),
        stated("Batch size: ", r"\ABatch size: (?P<batch_size_per_device>\d{1,9}+)"),
        stated("Number of ", r"\ANumber of [CG]PUs: (?P<world_size>\d{1,9}+)"),
        stated(
            "mg/sec per ", r"\AImg/sec per [CG]PU: (?P<final_samples_per_second>[^\s+]{1,64}+) \+-"
        ),
    ),
    zero_based=True,
    silent_warmup=True,
    rates_are_per="device",
)
