"""Checked options of this project's programs, and the check that a training was one.

A workload that uses it lists it beside its program in the catalogue. Runs on Python 3.7.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

# Steps without communication, and all-reduces without steps, that are timed after a training.
ALONE_STEPS = 5
ALONE = "a step without communication"
BUCKET = 25 * 2**18  # values in 25 MiB, in which PyTorch and Paddle reduce gradients


def at_least(least: int) -> Callable[[str], int]:
    """A type of option: a whole number that is not less."""

    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"a number from {least} expected, found {text}")
        return value

    number.__name__ = "whole number"  # argparse says `invalid whole number value: 'x'`
    return number


PRECISIONS = ("fp32", "tf32", "amp", "bf16")
positive = at_least(1)
count = at_least(0)


def multiple_of_16(text: str) -> int:
    number = int(text)
    if number < 16 or number % 16:
        raise argparse.ArgumentTypeError(f"a multiple of 16 expected, found {text}")
    return number


def learning_rate(text: str) -> float | None:
    """A learning rate; None is the program's own choice, `auto`."""
    return None if text == "auto" else float(text)


def bare_options(
    document: str | None,
    lr: float | None = None,
    lr_type: Callable[[str], float | None] = float,
    lr_help: str = "learning rate",
) -> argparse.ArgumentParser:
    """The options that all programs which train share."""
    parser = argparse.ArgumentParser(
        description=(document or "").splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--no-cuda", action="store_true", help="train on the CPU")
    parser.add_argument("--seed", type=count, default=0)
    parser.add_argument("--lr", type=lr_type, default=lr, help=lr_help)
    return parser


def options(
    document: str | None, samples: str, batch_size: int, lr: float
) -> argparse.ArgumentParser:
    """The options that several PyTorch programs share."""
    parser = bare_options(document, lr)
    parser.add_argument(
        "--batch-size", type=positive, default=batch_size, help=f"{samples} per device"
    )
    parser.add_argument("--precision", choices=PRECISIONS, default="amp")
    parser.add_argument("--iterations", type=positive, default=120)
    parser.add_argument("--log-interval", type=positive, default=1, help="steps between lines")
    return parser


def parsed(
    parser: argparse.ArgumentParser, argv: list[str] | None, steps: str = "iterations"
) -> argparse.Namespace:
    """The arguments, checked. `steps`: the option for their number."""
    arguments = parser.parse_args(argv)
    if arguments.no_cuda and arguments.precision in ("tf32", "amp"):
        parser.error(f"--precision {arguments.precision} needs a GPU; a CPU takes fp32 and bf16")
    if getattr(arguments, "log_interval", 1) > getattr(arguments, steps):
        parser.error(f"--log-interval must not exceed --{steps}")
    return arguments


def on_or_off(text: str) -> bool:
    if text not in ("on", "off"):
        raise argparse.ArgumentTypeError(f"on or off expected, found {text}")
    return text == "on"


def intervals(
    step: Callable[[], Any],
    wait: Callable[[Any], object],
    steps: int,
    log_interval: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[tuple[int, float, Any]]:
    """Take the steps; after every `log_interval`, give the step's number, the seconds that they
    took, until `wait` saw the device finish the last one, and its result. What the caller does with
    them is not timed.
    """
    began = clock()
    for number in range(1, steps + 1):
        result = step()
        if number % log_interval == 0:
            wait(result)
            yield number, clock() - began, result
            began = clock()


def seconds_alone(
    step: Callable[[], Any],
    wait: Callable[[Any], object],
    meet: Callable[[], object],
    before: int = 1,
    clock: Callable[[], float] = time.perf_counter,
    steps: int = ALONE_STEPS,
) -> float:
    """The duration of a step that communicates with no other rank. The ranks `meet` after the first
    ones, which are not timed, and begin together; `wait` returns when the device has finished."""
    for _ in range(before):
        result = step()
    wait(result)
    meet()
    began = clock()
    for _ in range(steps):
        result = step()
    wait(result)
    return (clock() - began) / steps


def buckets(values: int, zeros: Callable[[int], Any]) -> list[Any]:
    """In place of so many values of gradients, the pieces in which they are reduced; the whole ones
    are the same tensor."""
    whole, rest = divmod(values, BUCKET)
    return [zeros(BUCKET)] * whole + [zeros(rest) for _ in range(rest > 0)]


def by_rank(what: str, seconds: Sequence[float]) -> str:
    """The text that says how long something takes on each rank."""
    return f"seconds of {what}, by rank: " + " ".join(f"{value:.6f}" for value in seconds)


def parts(
    step: Callable[[], Any],
    wait: Callable[[Any], object],
    gather: Callable[[float], Sequence[float]],
    reduce: Callable[[], object],
    size: int,
    before: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> list[str]:
    """The texts that say how long each rank takes for a step without communication, and how long
    an all-reduce of the gradients, of `size` bytes, takes without a step. To be called after the
    training: the ranks' networks are different afterwards.

    `gather` takes this rank's number and returns those of all, when all have called it.
    """
    seconds = seconds_alone(step, wait, lambda: gather(0.0), before, clock)
    return [by_rank(ALONE, gather(seconds)), said_all_reduce(reduce, size, clock)]


def said_all_reduce(
    reduce: Callable[[], object], size: int, clock: Callable[[], float] = time.perf_counter
) -> str:
    """The text that says how long an all-reduce of `size` bytes takes, and which interface of this
    node sent most of them. `reduce` returns when it is done; the first one is not timed, and lets
    all ranks begin together."""
    reduce()
    before, began = sent_bytes(), clock()
    for _ in range(ALONE_STEPS):
        reduce()
    seconds = (clock() - began) / ALONE_STEPS
    sent = {name: count - before.get(name, 0) for name, count in sent_bytes().items()}
    most = max(sent, key=lambda name: sent[name], default="")
    # Others may send a little; what GPUs and InfiniBand send is not counted by the kernel.
    is_it = sent.get(most, 0) > size * ALONE_STEPS / 10
    through = f" through {most}" if is_it else ""
    return f"all-reduce of the gradients alone: {size} bytes in {seconds:.6f} s{through}"


def sent_bytes(path: str = "/proc/net/dev") -> dict[str, int]:
    """Bytes that each network interface of this node has sent; nothing where the kernel does not
    say."""
    try:
        lines = Path(path).read_text("ascii").splitlines()[2:]
    except OSError:
        return {}
    # interface: bytes packets errs drop fifo frame compressed multicast | bytes packets ...
    named = (line.partition(":") for line in lines)
    return {name.strip(): int(rest.split()[8]) for name, _, rest in named}


def share_of(classes: int, parts: int, part: int) -> tuple[int, int]:
    """The first class and the number of classes of one of `parts` almost equal shares."""
    size, more = divmod(classes, parts)
    return part * size + min(part, more), size + (part < more)


def check(losses: Sequence[float]) -> str | None:
    """The reason why this was no training, if it was none: the fixed batch must be learnt.

    `losses` are in the order of the steps that printed or returned them.
    """
    for number, loss in enumerate(losses, 1):
        if not math.isfinite(loss):
            what = f"loss {number} of {len(losses)} is {loss}"
            return f"{what}: no training took place; try a lower --lr"
    if len(losses) > 1 and not losses[-1] < losses[0]:
        return (
            f"the loss did not fall on a fixed batch: {losses[0]:.6f} at first, "
            f"{losses[-1]:.6f} at last; try another --lr"
        )
    return None


def say(text: str) -> None:
    print(text, flush=True)


def say_nothing(_: str) -> None:
    """Stands for `say` on all processes but the first."""


def finish(program: str, problem: str | None) -> None:
    """End this process with status 1 if there is a problem."""
    if problem:
        sys.exit(f"{program}: {problem}")


def leave(program: str, problem: str | None, part: Callable[[], object]) -> NoReturn:
    """End this process, with status 1 if there is a problem. `part` parts from the others.

    The interpreter's own end is left out: threads of Gloo, Horovod and MXNet's engine may still
    use what it takes away, and then abort the process or never end (pytorch/pytorch#179291).
    """
    if problem:
        print(f"{program}: {problem}", file=sys.stderr)
    part()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if problem else 0)
