"""OneFlow-Benchmark's cnns: the printed rate is that of all devices, since the previous line.

    train: epoch 0, iter 20, loss: 6.505637, top_1: 0.000000, top_k: 0.000000, samples/s: 288.088
    train: epoch 0, iter 20, loss: 6.505637, top_1: 0.000000, samples/s: 288.088 1597050000.123456

Later commits append the Unix time. Iterations count from 1. Validation lines and epochs after the
first are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from . import text
from .records import Columns, Format, Header, Line, Step

_ENTRY = re.compile(
    r"train: epoch 0, iter (\d{1,12}),(?: loss: ([^\s,]+),)?(?: top_\w+: [^\s,]+,)*"
    r" samples/s: (\S+)(?: (\d{9,11}\.\d+))?",
    re.ASCII,
)
_BATCH = re.compile(r"\bbatch_size_per_device = (\d+)", re.ASCII)
_WORLD = re.compile(r"num_gpu_per_node = (\d{1,9}), num_nodes = (\d{1,9})", re.ASCII)
_STEPS = re.compile(r"\bnum_iters = (\d+)", re.ASCII)
_EVERY = re.compile(r"\bloss_print_every_n_iter = (\d+)", re.ASCII)


def parse(lines: Iterable[Line]) -> Iterator[Step | Header]:
    """Steps and headers, in the order of the log."""
    for number, line, rank in text.by_rank(lines):
        if "samples/s:" not in line:
            yield from _headers(number, line)
        for iteration, loss, printed, time in _ENTRY.findall(line):
            yield Step(
                step=int(iteration),
                samples_per_second=text.rate(number, printed),
                line=number,
                printed=printed,
                loss=text.optional_number(loss or None),
                unix_time=float(time) if time else None,
                rank=rank,
            )


def _headers(number: int, line: str) -> Iterator[Header]:
    # Running resnet50: num_gpu_per_node = 1, num_nodes = 1.
    if world := _WORLD.search(line):
        yield Header(line=number, world_size=int(world[1]) * int(world[2]))
    if batch := _BATCH.search(line):
        size = text.count(number, "batch size", batch[1])
        yield Header(line=number, batch_size_per_device=size)
    if every := _EVERY.search(line):
        yield Header(line=number, log_every=text.count(number, "log interval", every[1]))
    if steps := _STEPS.search(line):
        yield Header(line=number, total_steps=text.count(number, "number of steps", steps[1]))
    if "use_fp16 = " in line:
        yield Header(line=number, precision="fp16" if "use_fp16 = True" in line else "fp32")


def columns(lines: str) -> Columns | None:
    """The steps of a whole log."""
    iterations, losses, rates, times = text.transposed(_ENTRY.findall(lines), 4)
    speeds, known = text.numbers(rates), text.optional_numbers(losses)
    stamps = text.optional_numbers(times)
    if speeds is None or known is None or stamps is None:
        return None
    return Columns(list(map(int, iterations)), speeds, known, stamps)


FORMAT = Format(
    name="oneflow_benchmark",
    sample="train: epoch 0, iter 20, loss: 6.505637, ..., samples/s: 288.088",
    step_markers=("samples/s:",),
    head_markers=(
        "batch_size_per_device = ",
        "num_gpu_per_node = ",
        "loss_print_every_n_iter = ",
        "num_iters = ",
        "use_fp16 = ",
    ),
    parse=parse,
    columns=columns,
)
