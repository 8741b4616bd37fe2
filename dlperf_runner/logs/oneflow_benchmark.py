"""OneFlow-Benchmark's cnns: the printed rate is that of all devices, since the previous line.

    train: epoch 0, iter 20, loss: 6.505637, top_1: 0.000000, top_k: 0.000000, samples/s: 288.088
    train: epoch 0, iter 20, loss: 6.505637, top_1: 0.000000, samples/s: 288.088 1597050000.123456

Later commits append the Unix time. OneFlow of that time has no TF32. Iterations count from 1.
Validation lines and epochs after the first one of a log are ignored.
"""

from __future__ import annotations

from . import text
from .records import Expression, Format, Statement, stated


def _stated(marker: str, value: str) -> Statement:
    return stated(marker, rf"\b{marker}{value}")


FORMAT = Format(
    name="oneflow_benchmark",
    sample="train: epoch 0, iter 20, loss: 6.505637, ..., samples/s: 288.088",
    marker=b"samples/s:",
    entry=Expression(
        rb"train: epoch (?P<epoch>\d{1,6}+), iter (?P<step>\d{1,12}+),"
        rb"(?: loss: (?P<loss>[^\s,]{1,64}+),)?"
        rb"(?>(?: top_\w{1,16}+: [^\s,]{1,64}+,){0,8}) samples/s: %s"
        % text.rate_before(rb"(?: (?P<time>\d{9,11}\.\d{1,9}+))?" + text.END)
    ),
    rate=rb"\d+\.\d{3}",
    statements=(
        # Running resnet50: num_gpu_per_node = 1, num_nodes = 1.
        _stated(
            "num_gpu_per_node = ", r"(?P<devices_per_node>\d{1,9}), num_nodes = (?P<nodes>\d{1,9})"
        ),
        stated("num_nodes = ", r"(?:^|\s)num_nodes = (?P<nodes>\d{1,9})\s{0,8}\Z"),
        # What changes the work of a step, unless it is as usual.
        *(
            _stated(f"{option} = ", f"(?P<{option}>True)")
            for option in ("channel_last", "fuse_bn_relu", "fuse_bn_add_relu", "pad_output")
        ),
        stated("Running ", r"\bRunning (?P<network>[\w.-]+):"),
        stated("model = ", r"(?:^|\s)model = (?P<network>[\w.-]+)"),
        _stated("image_size = ", r"(?P<image_size>\d{1,18}+)"),
        stated("train_data_dir = ", r"\btrain_data_dir = (?P<data>\S+)", values={"None": ""}),
        _stated("batch_size_per_device = ", r"(?P<batch_size_per_device>\d{1,18}+)"),
        _stated("loss_print_every_n_iter = ", r"(?P<log_every>\d{1,18}+)"),
        _stated("num_iters = ", r"(?P<total_steps>\d{1,18}+)"),
        stated(
            "use_fp16 = ",
            r"use_fp16 = (?P<precision>\w{1,64}+)",
            values={"True": "fp16", "False": "fp32", "None": "fp32"},
        ),
    ),
    is_fp32=True,
)
