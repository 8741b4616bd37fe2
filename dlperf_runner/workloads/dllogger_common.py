"""DLLogger's lines, the training of programs that print them as NVIDIA's PyTorch ConvNets do, and
the options of their ResNet-50. Runs on Python 3.7."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from builtin_common import intervals, options, positive


def resnet_options(document: str | None) -> argparse.ArgumentParser:
    parser = options(document, "images", batch_size=256, lr=0.01)
    add_resnet_options(parser)
    return parser


def add_resnet_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--image-size", type=positive, default=224)
    parser.add_argument("--classes", type=positive, default=1000)
    parser.add_argument("--momentum", type=float, default=0.875)
    parser.add_argument("--wd", type=float, default=1 / 32768, help="weight decay")


def line(step: str, values: Mapping[str, object], now: datetime.datetime | None = None) -> str:
    """A line as DLLogger writes it, with the blank that it leaves at the end:
    `DLL 2026-11-20 14:02:53.644242 - (0, 2) total_ips : 3.192439778844046 `. Rates of training have
    their unit, that of images, as in the format, whatever a sample is."""
    units = {"train.compute_ips": "img/s", "train.total_ips": "img/s"}
    formats = {"train.loss": ".5f", "train.compute_ips": ".2f", "train.total_ips": ".2f"}
    texts = (f"{k} : {v:{formats.get(k, '')}} {units.get(k, '')}" for k, v in values.items())
    return f"DLL {now or datetime.datetime.now():%Y-%m-%d %H:%M:%S.%f} - {step} {' '.join(texts)}"


def say_parameters(
    log: Callable[[str], None], arguments: argparse.Namespace, world_size: int, arch: str = ""
) -> None:
    """Say the parameters of the run, under the names of NVIDIA's program where it has one. By
    `arch`, the log of a program is told from one of PyTorch."""
    names = {"iterations": "prof", "log_interval": "print_freq", "classes": "num_classes"}
    named = {{**names, "model": "arch"}.get(k, k): value for k, value in vars(arguments).items()}
    values = {"data_backend": "synthetic", "arch": "resnet50", **named, "world_size": world_size}
    log(line("PARAMETER", {**values, "arch": arch or values["arch"]}))


def training(
    arguments: argparse.Namespace,
    log: Callable[[str], None],
    samples: int,
    step: Callable[[], Any],
    wait: Callable[[Any], object],
    mean_loss: Callable[[Any], float],
    communication: Callable[[], Iterable[str]],
) -> list[float]:
    """Take the steps, of so many samples each, and say their lines. A step returns its loss, for
    `wait` and `mean_loss`. Returns the losses."""
    taken = intervals(step, wait, arguments.iterations, arguments.log_interval)
    with_loss = ((number, seconds, mean_loss(loss)) for number, seconds, loss in taken)
    whole = samples * arguments.log_interval
    return say_training(log, with_loss, whole, arguments.lr, communication)


def say_training(
    log: Callable[[str], None],
    taken: Iterable[tuple[int, float, float]],
    samples: int,
    lr: float,
    communication: Callable[[], Iterable[str]],
) -> list[float]:
    """Say the line of each interval, the rate of all, and what is known of the communication.
    `taken` gives an interval's last step, its seconds and a loss; `samples` are those of all
    devices in an interval. Returns the losses."""
    losses, whole = [], 0.0
    for number, seconds, loss in taken:
        whole += seconds
        losses.append(loss)
        rate = samples / seconds
        values = {"train.loss": loss, "train.compute_ips": rate, "train.total_ips": rate}
        log(line(f"Epoch: 0 Iteration: {number} ", {**values, "train.lr": lr}))
    rate = samples * len(losses) / whole
    log(line("Summary:", {"train.compute_ips": rate, "train.total_ips": rate}))
    for text in communication():
        log(text)
    return losses
