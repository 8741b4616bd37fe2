"""Compare nodes with each other: rounds of a fixed step on each device, of pairs, or of training.

    torchrun ... pytorch_nodes.py --operation collective --rounds 0-1+2-3:0-2+1-3 --size 4194304

compute multiplies matrices, memory copies a buffer, each on every device at the same time, as many
rounds as `--rounds` says. collective lets the pairs of nodes of a round all-reduce, all pairs at
once; `--rounds` lists the pairs of each round by the numbers of the nodes. same trains a small
Llama on each device by itself, with equal data and deterministic algorithms, and states the bits of
each loss and a SHA-256 of the parameters.

Rank 0 prints a line of JSON behind MARK for each round or device. Runs with PyTorch 2.6 or newer.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import statistics
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from builtin_common import positive, seconds_alone
from llama_sizes import SIZES
from pytorch_common import PyTorchProcess, join, leave, wait_for

MARK = "dlperf-nodes: "
WARMUP = 2
STEPS, LENGTH, ALPHABET = 50, 32, 64  # of `same`


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    operations = ("compute", "memory", "collective", "same")
    parser.add_argument("--operation", choices=operations, required=True)
    parser.add_argument("--rounds", default="5", help="a number, or the pairs of each round")
    parser.add_argument(
        "--size", type=positive, default=512, help="rows of a matrix, bytes, or sequences"
    )
    parser.add_argument("--iterations", type=positive, default=20)
    parser.add_argument("--no-cuda", action="store_true", help="use the CPU")
    return parser.parse_args(argv)


def pairs_of(text: str) -> list[list[tuple[int, int]]]:
    """`0-1+2-3:0-2+1-3`: the pairs of nodes of each round."""
    rounds = []
    for each in text.split(":"):
        ends = (pair.split("-") for pair in each.split("+"))
        rounds.append([(int(first), int(second)) for first, second in ends])
    return rounds


def say(place: PyTorchProcess, document: object) -> None:
    if place.rank == 0:
        print(MARK + json.dumps(document, separators=(",", ":")), flush=True)


def say_round(
    place: PyTorchProcess, number: int, unit: str, values: Sequence[Any], work: float
) -> None:
    """The speed of each device or pair, and the line that the catalogue's format reads: the median
    in fixed steps per second."""
    say(place, {"round": number, "unit": unit, "values": values})
    if place.rank == 0:
        middle = statistics.median(value for _, value in values)
        print(f"round {number}: {middle / work:.4g} samples/s", flush=True)


def seconds_of(step: Callable[[], object], wait: Callable[..., None], iterations: int) -> float:
    """The time of one step."""
    return seconds_alone(step, wait, lambda: None, WARMUP, steps=iterations)


def fixed_step(torch: Any, options: argparse.Namespace, device: Any) -> tuple[Any, float, str]:
    """A step on one device, how much it does, and the unit of that."""
    if options.operation == "memory":
        source = torch.ones(options.size, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        return functools.partial(target.copy_, source), 2 * options.size / 1e9, "GB/s"
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    matrix = torch.randn(options.size, options.size, device=device).to(kind)
    product = torch.empty_like(matrix)
    step = functools.partial(torch.mm, matrix, matrix, out=product)
    return step, 2 * options.size**3 / 1e12, "TFLOP/s"


def gathered(torch: Any, place: PyTorchProcess, value: object) -> list[Any]:
    """The values of all ranks, on each rank."""
    if place.world_size == 1:
        return [value]
    values: list[Any] = [None] * place.world_size
    torch.distributed.all_gather_object(values, value)
    return values


def rounds_alone(
    torch: Any, options: argparse.Namespace, place: PyTorchProcess, device: Any
) -> None:
    """Each device by itself, all at the same time."""
    step, work, unit = fixed_step(torch, options, device)
    wait = wait_for(torch, device)
    for number in range(1, int(options.rounds) + 1):
        gathered(torch, place, None)  # all begin together
        rate = work / seconds_of(step, wait, options.iterations)
        rates = gathered(torch, place, rate)
        values = [[[rank], value] for rank, value in enumerate(rates)]
        say_round(place, number, unit, values, work)


def rounds_of_pairs(
    torch: Any, options: argparse.Namespace, place: PyTorchProcess, device: Any
) -> None:
    """The bus bandwidth of an all-reduce over all devices of two nodes, all pairs at once."""
    on_node = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    node = place.rank // on_node
    buffer = torch.zeros(options.size // 4, device=device)
    # An all-reduce over n devices counts as 2 (n - 1) / n of its size, as nccl-tests count it.
    work = options.size / 1e9 * (2 * on_node - 1) / on_node
    # A pair that comes again keeps its group: a second one would have the name of the first.
    groups: dict[tuple[int, int], Any] = {}
    for number, pairs in enumerate(pairs_of(options.rounds), 1):
        pair = next((pair for pair in pairs if node in pair), None)
        rate = None
        if pair is not None and pair not in groups:
            ranks = [end * on_node + local for end in pair for local in range(on_node)]
            groups[pair] = torch.distributed.new_group(ranks, use_local_synchronization=True)
        gathered(torch, place, None)
        if pair is not None:
            step = functools.partial(torch.distributed.all_reduce, buffer, group=groups[pair])
            seconds = seconds_of(step, wait_for(torch, device), options.iterations)
            rate = work / seconds
        rates = gathered(torch, place, rate)
        values = [
            [list(pair), min(rates[end * on_node + n] for end in pair for n in range(on_node))]
            for pair in pairs
        ]
        say_round(place, number, "GB/s", values, work)


def trained(torch: Any, sequences: int, device: Any) -> tuple[list[float], list[Any]]:
    """The losses and the parameters of a training that gives the same bits each time."""
    from pytorch_llama_model import Llama
    from torch.nn import functional

    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    random = torch.Generator().manual_seed(1)
    model = Llama(SIZES["llama-lab"], LENGTH, "none")
    torch.manual_seed(1)
    model.initialise()  # on the CPU, whose generator gives every device the same values
    model.to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=False)
    losses = []
    for _ in range(STEPS):
        first = torch.randint(ALPHABET, (sequences, 1), generator=random)
        tokens = ((first + torch.arange(LENGTH + 1)) % ALPHABET).to(device)
        logits = model(tokens[:, :-1]).flatten(0, 1)
        loss = functional.cross_entropy(logits.float(), tokens[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss))
    return losses, list(model.parameters())


def digest_of(parameters: Sequence[Any]) -> str:
    """A SHA-256 of all bits of the parameters, in their order."""
    digest = hashlib.sha256()
    for parameter in parameters:
        digest.update(parameter.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def product_of(torch: Any, device: Any) -> str:
    """The name of the GPU, or of the processor."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "CPU")


def same_bits(torch: Any, options: argparse.Namespace, place: PyTorchProcess, device: Any) -> None:
    losses, parameters = trained(torch, options.size, device)
    stated = {
        "product": product_of(torch, device),
        "torch": str(torch.__version__),
        "losses": [struct.pack(">d", loss).hex() for loss in losses],
        "parameters": digest_of(parameters),
    }
    for rank, document in enumerate(gathered(torch, place, stated)):
        say(place, {"rank": rank, **document})


def main() -> None:
    import torch

    # Of cuBLAS: deterministic products (CUDA's documentation of CUBLAS_WORKSPACE_CONFIG).
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    options = parse_arguments()
    place, device = join(torch, not options.no_cuda)
    if options.operation == "same":
        same_bits(torch, options, place, device)
    elif options.operation == "collective":
        rounds_of_pairs(torch, options, place, device)
    else:
        rounds_alone(torch, options, place, device)
    leave("pytorch_nodes", None)


if __name__ == "__main__":
    main()
