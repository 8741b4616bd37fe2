"""Collective operations over MPI on CPUs, with the sizes, columns and formulas of nccl-tests.

    mpirun -np 4 python mpi_collectives.py --operation all_reduce --max-bytes 16777216

Each size is timed out of place and in place, then its results are checked: #wrong is the number of
elements, of all ranks, that differ from the sum or from the other ranks' data. The exit status is 1
if one does. A size is that of the whole message, so all_gather and reduce_scatter round it down to
a multiple of 16 bytes per rank.

Source of sizes, columns and formulas: NVIDIA/nccl-tests a0b82b2, src/common.cu, src/util.cu,
src/all_reduce.cu, src/all_gather.cu and src/reduce_scatter.cu. Runs on Python 3.9.
"""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
from builtin_common import count, positive
from mpi4py import MPI

WORD = 4  # bytes of a float
MOST = 251  # values of the pattern; sums of so small integers are exact in a float


def main() -> int:
    options = _options()
    world = MPI.COMM_WORLD
    ranks = world.Get_size()
    if ranks < 2:
        raise SystemExit("mpi_collectives.py: a collective operation needs at least two processes")

    def tell(text: str) -> None:
        if world.Get_rank() == 0:
            print(text, flush=True)

    tell(
        f"# Collective test starting: {options.operation}_perf\n"
        f"# nThread 1 nGpus 1 minBytes {options.min_bytes} maxBytes {options.max_bytes}"
        f" step: 2(factor) warmup iters: {options.warmup_iterations} iters: {options.iterations}"
        " agg iters: 1 validation: 1 graph: 0 unalign: 0\n#\n# Using devices"
    )
    for line in world.gather(_device(world), root=0) or ():
        tell(line)
    tell(_heading())
    rates, wrong = [], 0
    for size in sizes(options.min_bytes, options.max_bytes):
        message = Message(world, options.operation, size)
        halves = []
        for in_place in (False, True):
            seconds = message.seconds(in_place, options.iterations, options.warmup_iterations)
            rate = algbw(message.size, seconds)
            rates.append(rate * bus_factor(options.operation, ranks))
            errors = message.wrong(in_place)
            wrong += errors
            numbers = (fitted(seconds * 1e6, 7, 2), fitted(rate, 6, 4), fitted(rates[-1], 6, 4))
            halves.append("".join(f"  {text}" for text in numbers) + f"  {errors:6d}")
        operator = "none" if options.operation == "all_gather" else "sum"
        tell(
            f"{message.size:12d}  {message.count:12d}  {'float':>8}  {operator:>6}  {-1:6d}"
            + "".join(halves)
        )
    tell(f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}")
    tell(f"# Avg bus bandwidth    : {sum(rates) / len(rates):g} ")
    tell(f"#\n# Collective test concluded: {options.operation}_perf")
    return 1 if wrong else 0


def sizes(least: int, most: int) -> Iterator[int]:
    while least <= most:
        yield least
        least *= 2


def algbw(size: int, seconds: float) -> float:
    """GB/s of the whole message."""
    return size / 1e9 / seconds


def bus_factor(operation: str, ranks: int) -> float:
    """From algbw to busbw, which is that of the slowest link, whatever the number of ranks."""
    return (2 if operation == "all_reduce" else 1) * (ranks - 1) / ranks


def fitted(value: float, width: int, decimals: int) -> str:
    """The number in a column, with as many decimals as fit."""
    texts = (f"{value:{width}.{places}f}" for places in range(decimals, -1, -1))
    return next((text for text in texts if len(text) <= width), f"{value:{width}.0f}")


class Message:
    """One size: the buffers of an operation, and what must come out. `count` is that of elements
    that a rank gives (all_gather) or gets (reduce_scatter)."""

    def __init__(self, world: Any, operation: str, size: int) -> None:
        self.world, self.operation = world, operation
        self.rank, self.ranks = world.Get_rank(), world.Get_size()
        whole = size // WORD
        part = whole // self.ranks // 4 * 4
        self.count = whole if operation == "all_reduce" else part
        self.whole = whole if operation == "all_reduce" else part * self.ranks
        self.size = self.whole * WORD
        self.share = slice(self.rank * part, (self.rank + 1) * part)
        self.pattern = np.arange(self.whole, dtype=np.float32) % MOST
        self.buffer = np.zeros(self.whole, dtype=np.float32)

    def seconds(self, in_place: bool, iterations: int, warmup: int) -> float:
        """The time of one operation, as the mean of all ranks."""
        self._fill(in_place)
        for _ in range(warmup):
            self._run(in_place)
        self.world.Barrier()
        start = MPI.Wtime()
        for _ in range(iterations):
            self._run(in_place)
        elapsed = MPI.Wtime() - start
        return float(self.world.allreduce(elapsed)) / self.ranks / iterations

    def wrong(self, in_place: bool) -> int:
        """The elements of all ranks that an operation leaves wrong."""
        self._fill(in_place)
        self._run(in_place)
        if self.operation == "all_gather":
            result, expected = self.buffer, self.pattern
        else:
            # rank 0 gives the pattern, rank 1 the pattern plus 1, and so on
            result, expected = self.buffer, self.pattern * self.ranks + sum(range(self.ranks))
        if self.operation == "reduce_scatter":
            expected = expected[self.share]
            result = self.buffer[: self.count]
        return int(self.world.allreduce(int(np.count_nonzero(result != expected))))

    def _fill(self, in_place: bool) -> None:
        """Data to send, and nothing where the results will be."""
        self.buffer[:] = 0
        if self.operation == "all_gather":
            self.sent = self.pattern[self.share].copy()
            if in_place:
                self.buffer[self.share] = self.sent
            return
        self.sent = self.pattern + self.rank
        if in_place:
            self.buffer[:] = self.sent

    def _run(self, in_place: bool) -> None:
        source = MPI.IN_PLACE if in_place else self.sent
        if self.operation == "all_reduce":
            self.world.Allreduce(source, self.buffer)
        elif self.operation == "all_gather":
            self.world.Allgather(source, self.buffer)
        elif in_place:
            self.world.Reduce_scatter_block(source, self.buffer)
        else:
            self.world.Reduce_scatter_block(source, self.buffer[: self.count])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    operations = ("all_reduce", "all_gather", "reduce_scatter")
    parser.add_argument("--operation", choices=operations, default="all_reduce")
    parser.add_argument("--min-bytes", type=positive, default=8)
    parser.add_argument("--max-bytes", type=positive, default=2**24)
    parser.add_argument("--iterations", type=positive, default=20)
    parser.add_argument("--warmup-iterations", type=count, default=5)
    return parser.parse_args()


def _device(world: Any) -> str:
    local = world.Split_type(MPI.COMM_TYPE_SHARED).Get_rank()
    return (
        f"#  Rank {world.Get_rank():2d} Group  0 Pid {os.getpid():6d} on"
        f" {socket.gethostname():>10} device {local:2d} [mpi] CPU"
    )


def _heading() -> str:
    names = ("size", "count", "type", "redop", "root")
    units = ("(B)", "(elements)", "", "", "")
    form = "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}"
    half, of_half = ("time", "algbw", "busbw", "#wrong"), ("(us)", "(GB/s)", "(GB/s)", "")
    numbers = "  {:>7}  {:>6}  {:>6}  {:>6}" * 2
    return (
        "#\n" + form.format(*[""] * 5) + "           out-of-place                       in-place\n"
        f"{form.format(*names)}{numbers.format(*half, *half)}\n"
        f"{form.format(*units)}{numbers.format(*of_half, *of_half)}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
