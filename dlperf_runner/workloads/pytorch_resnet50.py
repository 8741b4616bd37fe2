"""Train ResNet-50 v1.5 with PyTorch on a fixed synthetic batch; print DLLogger's lines.

What is timed is what NVIDIA's DeepLearningExamples time in a training step: forward, backward,
all-reduce and update. An interval ends when the device has finished. `train.total_ips` is the rate
of all devices, `train.loss` the mean over them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import resnet50
from builtin_common import check, on_or_off, parsed
from dllogger_common import resnet_options, say_parameters, training
from pytorch_common import PyTorchProcess, PyTorchRun, autocast, data_parallel, leave, use_precision


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = resnet_options(__doc__)
    parser.add_argument("--memory-format", choices=("nhwc", "nchw"), default="nhwc")
    parser.add_argument("--compile", type=on_or_off, default=False, metavar="on|off")
    return parsed(parser, argv)


def prepared(
    torch: Any, arguments: argparse.Namespace, place: PyTorchProcess, device: Any
) -> tuple[Any, Callable[[], Any]]:
    """The network, and a function that takes a step on a fixed batch and returns its loss."""
    torch.manual_seed(arguments.seed)  # the same network everywhere
    network = resnet50.in_torch(torch.nn, arguments.classes, in_place=True)
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
    """Train on a fixed batch, and return the losses."""
    run = PyTorchRun(arguments, say_parameters, prepared)
    return training(
        arguments, run.say, run.samples, run.step, run.wait, run.mean, run.communication
    )


def main(argv: list[str] | None = None) -> None:
    leave("pytorch_resnet50", check(train(parse_arguments(argv))))


if __name__ == "__main__":
    main()
