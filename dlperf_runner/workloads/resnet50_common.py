"""What the ResNet-50 programs with DLLogger's lines share: sizes, options, and a line per interval.

A workload that uses it lists it beside its program in the catalogue.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator

from builtin_common import count, positive

BLOCKS = (3, 4, 6, 3)
CHANNELS = (64, 128, 256, 512)
EXPANSION = 4
OF_CPU = ("fp32", "bf16")

Say = Callable[[str, dict[str, object]], None]
# The number of the last step of an interval, the seconds of the interval, and the step's loss.
Taken = tuple[int, float, float]


def options(
    description: str | None, precisions: tuple[str, ...], precision: str
) -> argparse.ArgumentParser:
    """A parser with the options that all programs have. `precision` is the default."""
    parser = argparse.ArgumentParser(
        description=(description or "").splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--batch-size", type=positive, default=256, help="images per device")
    parser.add_argument("--precision", choices=precisions, default=precision)
    parser.add_argument("--iterations", type=positive, default=120)
    parser.add_argument("--image-size", type=positive, default=224)
    parser.add_argument("--classes", type=positive, default=1000)
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate")
    parser.add_argument("--momentum", type=float, default=0.875)
    parser.add_argument("--wd", type=float, default=1 / 32768, help="weight decay")
    parser.add_argument("--seed", type=count, default=0)
    parser.add_argument("--no-cuda", action="store_true", help="train on the CPU")
    return parser


def parse(parser: argparse.ArgumentParser, argv: list[str] | None) -> argparse.Namespace:
    arguments = parser.parse_args(argv)
    if arguments.no_cuda and arguments.precision not in OF_CPU:
        needed = f"--precision {arguments.precision} needs a GPU"
        parser.error(f"{needed}; a CPU takes {' and '.join(OF_CPU)}")
    return arguments


def timed(
    step: Callable[[], object],
    loss: Callable[[], float],
    steps: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Taken]:
    """Take the steps. `step` returns when the device has completed it. What `loss` does to get the
    loss of the last step is not timed."""
    for number in range(1, steps + 1):
        began = clock()
        step()
        seconds = clock() - began
        yield number, seconds, loss()


def say_steps(say: Say, taken: Iterable[Taken], samples: int, lr: float) -> list[float]:
    """Print a line for each interval, of so many `samples`, and the rate of all. Returns the losses
    of all intervals."""
    losses: list[float] = []
    whole = 0.0
    for number, seconds, loss in taken:
        losses.append(loss)
        whole += seconds
        rate = samples / seconds
        values = {"train.loss": loss, "train.compute_ips": rate, "train.total_ips": rate}
        say(f"Epoch: 0 Iteration: {number} ", {**values, "train.lr": lr})
    rate = samples * len(losses) / whole
    say("Summary:", {"train.compute_ips": rate, "train.total_ips": rate})
    return losses
