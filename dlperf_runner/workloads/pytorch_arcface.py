"""Train ArcFace with PyTorch on a fixed synthetic batch; print the lines of insightface's program.

The classes' centres are divided among the processes, as by insightface's arcface_torch: each takes
its share of the softmax for the samples of all. With `--sample-rate` below 1 (Partial FC), a step
takes the centres of the batch's classes, and of the others a random share. A step is forward,
backward, both communications, clipping of the gradient and update. `Speed` is the rate of all
devices over the steps since the line before, `Loss` that of the last step over all samples.
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Callable
from typing import Any, NamedTuple

from builtin_common import check, intervals, multiple_of_16, options, parsed, positive
from pytorch_common import PyTorchProcess, PyTorchRun, autocast, data_parallel, leave, use_precision

LONGEST_GRADIENT = 5.0


class Network(NamedTuple):
    """A residual network: the number of units and their width in each of its stages."""

    units: tuple[int, ...]
    widths: tuple[int, ...] = (64, 128, 256, 512)
    embedding: int = 512


NETWORKS = {
    "r10": Network((1, 1, 1, 1), (8, 16, 32, 64), 64),  # for CPUs
    "r50": Network((3, 4, 14, 3)),
    "r100": Network((3, 13, 30, 3)),
}


def sample_rate(text: str) -> float:
    if not 0 < (value := float(text)) <= 1:
        raise argparse.ArgumentTypeError(f"a share above 0, at most 1 expected, found {text}")
    return value


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = options(__doc__, "images", batch_size=128, lr=0.1)
    parser.add_argument("--network", choices=NETWORKS, default="r50")
    parser.add_argument("--classes", type=positive, default=85742, help="identities")
    parser.add_argument(
        "--sample-rate", type=sample_rate, default=1.0, help="the share of centres in a step"
    )
    parser.add_argument("--image-size", type=multiple_of_16, default=112, help="a multiple of 16")
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--wd", type=float, default=5e-4, help="weight decay")
    return parsed(parser, argv)


def say(text: str) -> None:
    now = datetime.datetime.now()
    print(f"Training: {now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03}-{text}", flush=True)


def state(log: Callable[[str], None], arguments: argparse.Namespace, world_size: int) -> None:
    """Say what runs as insightface does, under its names where it has one."""
    names = {"classes": "num_classes", "log_interval": "frequent", "iterations": "total_step"}
    values = {names.get(name, name): value for name, value in vars(arguments).items()}
    whole = arguments.batch_size * world_size
    for name, value in {"rec": "synthetic", **values, "total_batch_size": whole}.items():
        log(f": {name:<25}{value}")


def progress(step: int, loss: float, rate: float, lr: float, hours: float) -> str:
    """insightface's line; `hours` are those that remain."""
    return (
        f"Speed {rate:.2f} samples/sec   Loss {loss:.4f}   LearningRate {lr:.6f}   Epoch: 0"
        f"   Global Step: {step}   Required: {hours:.0f} hours"
    )


def prepared(
    torch: Any, arguments: argparse.Namespace, place: PyTorchProcess, device: Any
) -> tuple[Any, Callable[..., Any]]:
    """The network without its head, and a function that takes a step on a fixed batch, with
    communication or alone, and returns its loss."""
    from pytorch_arcface_model import Backbone, PartialFC

    use_precision(torch, arguments.precision)
    torch.manual_seed(arguments.seed)  # the same network everywhere
    network = NETWORKS[arguments.network]
    backbone = data_parallel(torch, Backbone(network, arguments.image_size).to(device), device)
    if arguments.precision == "amp" and place.world_size > 1:
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        backbone.register_comm_hook(None, fp16_compress_hook)

    torch.manual_seed(arguments.seed + 1 + place.rank)
    head = PartialFC(arguments.classes, network.embedding, arguments.sample_rate, place).to(device)
    shape = (arguments.batch_size, 3, arguments.image_size, arguments.image_size)
    images = torch.randn(shape, device=device)
    labels = torch.randint(arguments.classes, (arguments.batch_size,), device=device)
    optimizer = torch.optim.SGD(
        [*backbone.parameters(), *head.parameters()],
        lr=arguments.lr,
        momentum=arguments.momentum,
        weight_decay=arguments.wd,
    )
    # All ranks skip the same steps: what overflows is in half precision, and that is averaged.
    scaler = torch.amp.GradScaler(device.type, enabled=arguments.precision == "amp")

    def step(is_alone: bool = False) -> Any:
        head.together.alone = is_alone
        optimizer.zero_grad(set_to_none=True)
        with autocast(torch, device, arguments.precision):
            embeddings = backbone(images)
        loss = head(embeddings.float(), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(backbone.parameters(), LONGEST_GRADIENT)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return backbone, step


def train(arguments: argparse.Namespace) -> list[float]:
    """Train on a fixed batch, and return the losses of the lines."""
    run = PyTorchRun(arguments, state, prepared, say)
    losses = []
    steps, interval = arguments.iterations, arguments.log_interval
    for number, seconds, loss in intervals(run.step, run.wait, steps, interval):
        losses.append(float(loss))
        hours = (steps - number) / interval * seconds / 3600
        rate = run.samples * interval / seconds
        run.say(progress(number, losses[-1], rate, arguments.lr, hours))
    for text in run.communication(is_alone=True):
        run.say(text)
    return losses


def main(argv: list[str] | None = None) -> None:
    leave("pytorch_arcface", check(train(parse_arguments(argv))))


if __name__ == "__main__":
    main()
