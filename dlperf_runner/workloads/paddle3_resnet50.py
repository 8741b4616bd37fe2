"""Train ResNet-50 v1.5 with PaddlePaddle 3 on a fixed synthetic batch; print DLLogger's lines.

A step is forward, backward, all-reduce (`paddle.DataParallel`) and update. An interval ends when
the device has finished. `train.total_ips` is the rate of all devices, `train.loss` the mean over
them. Several processes are started by `python -m paddle.distributed.launch`; they use NCCL on GPU
and Gloo on CPU.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import resnet50
from builtin_common import buckets, check, finish, parsed, parts, say, say_nothing
from dllogger_common import resnet_options, say_parameters, training


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = resnet_options(__doc__)
    parser.add_argument("--memory-format", choices=("nhwc", "nchw"), default="nhwc")
    return parsed(parser, argv)


def network_of(paddle: Any, classes: int, layout: str) -> Any:
    nn = paddle.nn

    def convolution(inputs: int, outputs: int, size: int, stride: int) -> list[Any]:
        spread = nn.initializer.Normal(0.0, (2.0 / (size * size * outputs)) ** 0.5)  # He
        channels = inputs, outputs, size, stride, size // 2
        return [
            nn.Conv2D(*channels, weight_attr=spread, bias_attr=False, data_format=layout),
            nn.BatchNorm2D(outputs, momentum=0.9, epsilon=1e-5, data_format=layout),
        ]

    class Residual(nn.Layer):  # type: ignore[misc, name-defined]
        def __init__(self, body: list[Any], shortcut: list[Any]) -> None:
            super().__init__()
            nn.initializer.Constant(0.0)(body[-1].weight)  # it begins as its shortcut
            self.body, self.shortcut = nn.Sequential(*body), nn.Sequential(*shortcut)

        def forward(self, images: Any) -> Any:
            return nn.functional.relu(self.body(images) + self.shortcut(images))

    pool = nn.MaxPool2D(3, 2, 1, data_format=layout)
    return nn.Sequential(
        *resnet50.layers(convolution, nn.ReLU, pool, Residual),
        *(nn.AdaptiveAvgPool2D(1, data_format=layout), nn.Flatten()),
        nn.Linear(resnet50.FEATURES, classes),
    )


def join(paddle: Any, on_cpu: bool) -> tuple[int, int]:
    """Take this process's device and join the others. Returns its number and that of all."""
    if not on_cpu and not paddle.device.cuda.device_count():
        sys.exit("Paddle finds no GPU on this node; --no-cuda trains on the CPU")
    if on_cpu:
        paddle.set_device("cpu")
    if int(os.environ.get("PADDLE_TRAINERS_NUM", "1")) > 1:
        paddle.distributed.init_parallel_env()
    return paddle.distributed.get_rank(), paddle.distributed.get_world_size()


def alone(
    paddle: Any,
    network: Any,
    step: Callable[[], object],
    wait: Callable[..., object],
    clock: Callable[[], float] = time.perf_counter,
) -> list[str]:
    """The texts of `parts`; none for a single process."""
    together = paddle.distributed
    rank, world_size = together.get_rank(), together.get_world_size()
    if world_size == 1:
        return []

    def gather(value: float) -> list[float]:
        every = paddle.to_tensor([value * (rank == each) for each in range(world_size)], "float64")
        together.all_reduce(every)
        return [float(each) for each in every.tolist()]

    values = sum(each.size for each in network.parameters() if not each.stop_gradient)
    pieces = buckets(values, lambda size: paddle.zeros([size]))

    def reduce() -> None:
        for task in [together.all_reduce(piece, sync_op=False) for piece in pieces]:
            task.wait()
        wait()

    with network.no_sync():
        return parts(step, wait, gather, reduce, 4 * values, clock=clock)


def prepared(
    paddle: Any, arguments: argparse.Namespace, rank: int, world_size: int
) -> tuple[Any, Callable[[], Any]]:
    """The network, and a function that takes a step on a fixed batch and returns its loss."""
    paddle.seed(arguments.seed)  # the same network everywhere
    network = network_of(paddle, arguments.classes, arguments.memory_format.upper())
    optimizer = paddle.optimizer.Momentum(
        arguments.lr,
        arguments.momentum,
        parameters=network.parameters(),
        weight_decay=arguments.wd,
        use_nesterov=True,
    )
    if world_size > 1:
        network = paddle.DataParallel(network)

    paddle.seed(arguments.seed + 1 + rank)
    pixels = (arguments.image_size, arguments.image_size)
    shape = (*pixels, 3) if arguments.memory_format == "nhwc" else (3, *pixels)
    images = paddle.randn((arguments.batch_size, *shape))
    labels = paddle.randint(0, arguments.classes, (arguments.batch_size,))
    dtype = {"amp": "float16", "bf16": "bfloat16"}.get(arguments.precision)
    scaler = paddle.amp.GradScaler(arguments.precision == "amp")

    def step() -> Any:
        with paddle.amp.auto_cast(dtype is not None, dtype=dtype or "float16"):
            loss = paddle.nn.functional.cross_entropy(network(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
        return loss.detach()

    return network, step


def train(arguments: argparse.Namespace) -> list[float]:
    """Train on a fixed batch, and return the losses; only the first process says anything."""
    if arguments.precision == "fp32":
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"  # cuBLAS and cuDNN take TF32 otherwise
    # Imported here so that --help and a wrong option need no framework.
    import paddle

    rank, world_size = join(paddle, arguments.no_cuda)
    log = say if rank == 0 else say_nothing
    say_parameters(log, arguments, world_size, arch="paddle3_resnet50")
    network, step = prepared(paddle, arguments, rank, world_size)

    def wait(*_: Any) -> None:
        if not arguments.no_cuda:
            paddle.device.cuda.synchronize()

    def mean(loss: Any) -> float:
        value = loss.astype("float32")
        if world_size > 1:
            paddle.distributed.all_reduce(value)
        return float(value) / world_size

    samples = world_size * arguments.batch_size
    return training(
        *(arguments, log, samples, step, wait, mean),
        lambda: alone(paddle, network, step, wait),
    )


def main(argv: list[str] | None = None) -> None:
    finish("paddle3_resnet50", check(train(parse_arguments(argv))))


if __name__ == "__main__":
    main()
