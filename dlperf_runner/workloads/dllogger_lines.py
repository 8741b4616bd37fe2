"""Lines of DLLogger, as NVIDIA's PyTorch ConvNets print them."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Mapping


def parameters(arguments: argparse.Namespace, world_size: int) -> dict[str, object]:
    """What runs, under the names of NVIDIA's program where it has one."""
    names = {"iterations": "prof", "log_interval": "print_freq", "classes": "num_classes"}
    named = {names.get(name, name): value for name, value in vars(arguments).items()}
    return {"data_backend": "synthetic", "arch": "resnet50", **named, "world_size": world_size}


def line(step: str, values: Mapping[str, object], now: datetime.datetime) -> str:
    """Rates with their unit, and nothing after other values."""
    units = {"train.compute_ips": "img/s", "train.total_ips": "img/s"}
    formats = {"train.loss": ".5f", "train.compute_ips": ".2f", "train.total_ips": ".2f"}
    texts = (f"{k} : {v:{formats.get(k, '')}} {units.get(k, '')}" for k, v in values.items())
    return f"DLL {now:%Y-%m-%d %H:%M:%S.%f} - {step} {' '.join(texts)}"


def print_line(step: str, values: Mapping[str, object]) -> None:
    print(line(step, values, datetime.datetime.now()), flush=True)
