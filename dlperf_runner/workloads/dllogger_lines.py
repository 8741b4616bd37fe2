"""Lines of DLLogger, as NVIDIA's PyTorch ConvNets print them."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Callable, Iterable, Mapping


def parameters(arguments: argparse.Namespace, world_size: int) -> dict[str, object]:
    """The parameters of the run, under the names of NVIDIA's program where it has one."""
    names = {"iterations": "prof", "log_interval": "print_freq", "classes": "num_classes"}
    named = {{**names, "model": "arch"}.get(k, k): value for k, value in vars(arguments).items()}
    return {"data_backend": "synthetic", "arch": "resnet50", **named, "world_size": world_size}


def line(step: str, values: Mapping[str, object], now: datetime.datetime) -> str:
    """Rates with their unit, and nothing after other values. The unit is that of images, as in the
    format, whatever a sample is."""
    units = {"train.compute_ips": "img/s", "train.total_ips": "img/s"}
    formats = {"train.loss": ".5f", "train.compute_ips": ".2f", "train.total_ips": ".2f"}
    texts = (f"{k} : {v:{formats.get(k, '')}} {units.get(k, '')}" for k, v in values.items())
    return f"DLL {now:%Y-%m-%d %H:%M:%S.%f} - {step} {' '.join(texts)}"


def print_line(step: str, values: Mapping[str, object]) -> None:
    print(line(step, values, datetime.datetime.now()), flush=True)


def say_training(
    say: Callable[[str, Mapping[str, object]], None],
    taken: Iterable[tuple[int, float, float]],
    samples: int,
    lr: float,
) -> list[float]:
    """Say the line of each interval and, at last, the rate of all. `taken` gives an interval's last
    step, its seconds and a loss; `samples` are those of all devices in an interval. Returns the
    losses."""
    losses, whole = [], 0.0
    for number, seconds, loss in taken:
        whole += seconds
        losses.append(loss)
        rate = samples / seconds
        values = {"train.loss": loss, "train.compute_ips": rate, "train.total_ips": rate}
        say(f"Epoch: 0 Iteration: {number} ", {**values, "train.lr": lr})
    rate = samples * len(losses) / whole
    say("Summary:", {"train.compute_ips": rate, "train.total_ips": rate})
    return losses
