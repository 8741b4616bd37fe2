"""Train ResNet-50 v1.5 with PyTorch on a fixed synthetic batch; print DLLogger's lines.

What is timed is what NVIDIA's DeepLearningExamples time in a training step: forward, backward,
all-reduce and update. An interval ends when the device has finished. `train.total_ips` is the rate
of all devices, `train.loss` the mean over them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from builtin_common import EXPANSION, FEATURES, bottlenecks, check, on_or_off, parsed
from dllogger_common import resnet_options, say_parameters, training
from pytorch_common import (
    PyTorchProcess,
    autocast,
    communication,
    data_parallel,
    join,
    leave,
    mean_over_ranks,
    use_precision,
    wait_for,
)


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = resnet_options(__doc__)
    parser.add_argument("--memory-format", choices=("nhwc", "nchw"), default="nhwc")
    parser.add_argument("--compile", type=on_or_off, default=False, metavar="on|off")
    return parsed(parser, argv)


def resnet50(torch: Any, classes: int) -> Any:
    """ResNet-50 v1.5: the stride is in the 3x3 convolution. 25,557,032 parameters for 1000 classes.

    The last normalisation of a block begins at zero, so that the block begins as its shortcut.
    """
    nn = torch.nn

    def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> list[Any]:
        layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        return [layer, nn.BatchNorm2d(outputs)]

    class Bottleneck(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inputs: int, channels: int, stride: int) -> None:
            super().__init__()
            outputs = channels * EXPANSION
            self.body = nn.Sequential(
                *convolution(inputs, channels, 1),
                nn.ReLU(inplace=True),
                *convolution(channels, channels, 3, stride),
                nn.ReLU(inplace=True),
                *convolution(channels, outputs, 1),
            )
            nn.init.zeros_(self.body[-1].weight)
            self.shortcut = nn.Identity()
            if stride != 1 or inputs != outputs:
                self.shortcut = nn.Sequential(*convolution(inputs, outputs, 1, stride))
            self.relu = nn.ReLU(inplace=True)

        def forward(self, images: Any) -> Any:
            return self.relu(self.body(images) + self.shortcut(images))

    layers = [*convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    layers += [Bottleneck(*block) for block in bottlenecks()]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(FEATURES, classes)
    )


def prepared(
    torch: Any, arguments: argparse.Namespace, place: PyTorchProcess, device: Any
) -> tuple[Any, Callable[[], Any]]:
    """The network, and a function that takes a step on a fixed batch and returns its loss."""
    torch.manual_seed(arguments.seed)  # the same network everywhere
    network = resnet50(torch, arguments.classes)
    nhwc = arguments.memory_format == "nhwc"
    layout = torch.channels_last if nhwc else torch.contiguous_format
    network = network.to(device=device, memory_format=layout)
    use_precision(torch, arguments.precision)
    network = data_parallel(torch, network, device)
    if arguments.compile:
        network = torch.compile(network)

    torch.manual_seed(arguments.seed + 1 + place.rank)
    shape = (arguments.batch_size, 3, arguments.image_size, arguments.image_size)
    images = torch.randn(shape, device=device).to(memory_format=layout)
    labels = torch.randint(arguments.classes, (arguments.batch_size,), device=device)
    optimizer = torch.optim.SGD(
        network.parameters(),
        lr=arguments.lr,
        momentum=arguments.momentum,
        weight_decay=arguments.wd,
        nesterov=True,
    )
    scaler = torch.amp.GradScaler(device.type, enabled=arguments.precision == "amp")

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        with autocast(torch, device, arguments.precision):
            loss = torch.nn.functional.cross_entropy(network(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return network, step


def train(arguments: argparse.Namespace) -> list[float]:
    """Train on a fixed batch, and return the losses; only rank 0 says anything."""
    # Imported here so that --help and a wrong option need no framework.
    import torch

    place, device = join(torch, not arguments.no_cuda)
    say_parameters(place.rank == 0, arguments, place.world_size)
    network, step = prepared(torch, arguments, place, device)
    wait = wait_for(torch, device)
    samples = place.world_size * arguments.batch_size
    return training(
        *(arguments, place.rank == 0, samples, step, wait),
        lambda loss: mean_over_ranks(torch, loss, place),
        lambda: communication(torch, network, step, wait, place),
    )


def main(argv: list[str] | None = None) -> None:
    leave("pytorch_resnet50", check(train(parse_arguments(argv))))


if __name__ == "__main__":
    main()
