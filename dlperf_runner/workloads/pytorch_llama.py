"""Train a decoder like Llama 3 with PyTorch on synthetic tokens; print torchtitan's lines.

A token of a sequence follows from the two before it, so that the loss falls. A step is forward,
backward, clipping of the gradient and AdamW. `tps` is tokens per second and device, over the steps
since the line before. `memory` is the peak of this process: on a GPU what PyTorch reserved, else
its resident set. `mfu` is N/A for devices whose peak is not known, and with float8, whose products
have two peaks.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Callable
from typing import Any

from builtin_common import check, intervals, on_or_off, parsed, positive
from llama_sizes import SIZES, llama_options
from pytorch_common import PyTorchProcess, PyTorchRun, data_parallel, leave, peak_memory

# Dense bf16 FLOPS of devices, by a part of their names, as their data sheets state them.
PEAK_FLOPS = {"A100": 312e12, "H100 NVL": 835e12, "H100": 989e12, "H200": 989e12, "B200": 2.25e15}
# The oldest PyTorch whose FSDP2 was seen to work on CPUs, over Gloo. That of 2.6 fails.
CPU_FSDP = (2, 13)
# Of the vocabulary, so many tokens occur.
ALPHABET = 64
# Of GPUs that multiply in float8; the sizes of their matrices are multiples of 16.
FLOAT8_CAPABILITY = (8, 9)
FLOAT8_MULTIPLE = 16
GIB = 1 << 30


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = llama_options(__doc__, "llama-8b", steps=100)
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="bf16")
    parser.add_argument(
        "--parallel",
        choices=("auto", "fsdp", "ddp"),
        default="auto",
        help="FSDP2 shards parameters, gradients and optimiser; auto is ddp where it cannot",
    )
    parser.add_argument(
        "--recipe",
        choices=("none", "float8"),
        default="none",
        help="float8: the linear layers of the blocks multiply in it",
    )
    parser.add_argument("--compile", type=on_or_off, default=False, metavar="on|off")
    parser.add_argument("--log-interval", type=positive, default=1, help="steps between lines")
    arguments = parsed(parser, argv, "steps")
    if arguments.recipe == "float8":
        if arguments.no_cuda:
            parser.error("--recipe float8 needs a GPU; a CPU takes none")
        if arguments.precision != "bf16":
            parser.error("--recipe float8 goes with --precision bf16")
        if arguments.batch_size * arguments.sequence_length % FLOAT8_MULTIPLE:
            parser.error("--recipe float8 needs a multiple of 16 tokens per device")
    return arguments


def method(wanted: str, has_fsdp: bool) -> str:
    """`fsdp` or `ddp`, by what the user wants."""
    if wanted == "fsdp" and not has_fsdp:
        sys.exit("this PyTorch cannot shard (FSDP2) on this device; choose --parallel ddp")
    return wanted if wanted != "auto" else "fsdp" if has_fsdp else "ddp"


def refuse_float8(capability: tuple[int, int], name: str) -> None:
    """End the program if the GPU cannot multiply in float8."""
    if capability < FLOAT8_CAPABILITY:
        has, least = (".".join(map(str, pair)) for pair in (capability, FLOAT8_CAPABILITY))
        sys.exit(
            f"--recipe float8 needs a GPU of compute capability {least} or newer (H100, H200,"
            f" B200), and {name} has {has}; choose --recipe none"
        )


def can_shard(torch: Any, on_cpu: bool) -> bool:
    """True if this PyTorch has FSDP2, and its collectives on this device."""
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    return version >= (CPU_FSDP if on_cpu else (2, 6))


def batch(torch: Any, arguments: argparse.Namespace, device: Any) -> Any:
    """Sequences of one token more than the length: arithmetic progressions modulo ALPHABET."""
    shape = (arguments.batch_size, 1)
    first = torch.randint(ALPHABET, shape, device=device)
    difference = torch.randint(1, 4, shape, device=device)
    positions = torch.arange(arguments.sequence_length + 1, device=device)
    return (first + difference * positions) % ALPHABET


def distributed(torch: Any, model: Any, arguments: argparse.Namespace, device: Any) -> Any:
    """The model on its device with its values, compiled and distributed as was chosen."""
    if arguments.compile:
        # The compiled module, not its forward: the hooks of FSDP2 must stay outside.
        for number, block in enumerate(model.blocks):
            model.blocks[number] = torch.compile(block, fullgraph=True)
    if arguments.parallel != "fsdp":
        model.to_empty(device=device)
        model.initialise()
        return data_parallel(torch, model, device)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    world_size = torch.distributed.get_world_size()
    mesh = init_device_mesh(device.type, (world_size,), mesh_dim_names=("dp_shard",))
    # The embedding's output has the type of the parameters; angles of positions stay exact.
    types = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32}
    policy = MixedPrecisionPolicy(
        **(types if arguments.precision == "bf16" else {}), cast_forward_inputs=False
    )
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    model.to_empty(device=device)
    model.initialise()
    return model


def clipped(torch: Any, parameters: list[Any], is_alone: bool) -> Any:
    """Clip the gradient to a norm of 1, and return its norm. A rank alone takes its own part."""
    if not is_alone or not hasattr(parameters[0].grad, "to_local"):
        return torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    gradients = [parameter.grad.to_local() for parameter in parameters]
    norm = torch.nn.utils.get_total_norm(gradients)
    for gradient in gradients:
        gradient.mul_((1 / (norm + 1e-6)).clamp(max=1.0))
    return norm


def peak_flops(name: str) -> float | None:
    """The dense bf16 FLOPS of a device. None if unknown."""
    return next((flops for part, flops in PEAK_FLOPS.items() if part in name), None)


def progress(
    step: int,
    loss: float,
    norm: float,
    memory: tuple[int, int],
    tokens_per_second: float,
    flops_per_token: int,
    peak: float | None,
) -> str:
    """torchtitan's line of a step; rates are of one device."""
    used, total = memory
    flops = flops_per_token * tokens_per_second
    mfu = f"{100 * flops / peak:.2f}%" if peak else "N/A"
    return (
        f"step: {step:2}  loss: {loss:7.4f}  grad_norm: {norm:7.4f}"
        f"  memory: {used / GIB:5.2f}GiB({100 * used / total:.2f}%)"
        f"  tps: {round(tokens_per_second):,}  tflops: {flops / 1e12:,.2f}  mfu: {mfu}"
    )


def say(text: str) -> None:
    now = datetime.datetime.now()
    stamp = f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03}"
    print(f"[titan] {stamp} - root - INFO - {text}", flush=True)


def state(log: Callable[[str], None], arguments: argparse.Namespace, world_size: int) -> None:
    """Say what runs, so that the log can confirm the plan."""
    recipe = "" if arguments.recipe == "none" else f" recipe {arguments.recipe},"
    log(
        f"Starting job: {arguments.model}, precision {arguments.precision},{recipe}"
        f" parallel {arguments.parallel}, activation checkpointing {arguments.recompute},"
        f" compile {'on' if arguments.compile else 'off'}"
    )
    replicas, shards = (1, world_size) if arguments.parallel == "fsdp" else (world_size, 1)
    log(
        "Building device mesh with parallelism:"
        f" pp=1, dp_replicate={replicas}, dp_shard={shards}, cp=1, tp=1"
    )
    log(
        f"Trainer is initialized with local batch size {arguments.batch_size}, global batch size"
        f" {arguments.batch_size * world_size}, gradient accumulation steps 1, sequence length"
        f" {arguments.sequence_length}, total steps {arguments.steps} (warmup 0)"
    )


def make_model(torch, arguments: argparse.Namespace, device):
    """The model without memory. Exits if the recipe is FP8 and the GPU has none."""
    from pytorch_llama_model import Float8Linear, Llama

    linear = torch.nn.Linear
    if arguments.recipe == "float8":
        refuse_float8(torch.cuda.get_device_capability(device), torch.cuda.get_device_name(device))
        linear = Float8Linear
    with torch.device("meta"):
        return Llama(SIZES[arguments.model], arguments.sequence_length, arguments.recompute, linear)


def prepared(
    torch: Any, arguments: argparse.Namespace, place: PyTorchProcess, device: Any
) -> tuple[Any, Callable[..., Any]]:
    """The model, and a function that takes a step, with communication or alone, and returns its
    loss and the norm of the gradient."""
    torch.set_float32_matmul_precision("high" if arguments.precision == "tf32" else "highest")
    torch.manual_seed(arguments.seed + place.rank)
    model = distributed(torch, make_model(torch, arguments, device), arguments, device)
    is_cuda = device.type == "cuda"
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=arguments.lr, betas=(0.9, 0.95), weight_decay=0.1, fused=is_cuda
    )
    casts = arguments.precision == "bf16" and arguments.parallel != "fsdp"

    def step(is_alone: bool = False) -> tuple[Any, Any]:
        tokens = batch(torch, arguments, device)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=casts):
            logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), tokens[:, 1:].flatten()
        )
        del logits
        loss.backward()
        norm = clipped(torch, list(model.parameters()), is_alone)
        optimizer.step()
        return loss.detach(), norm

    return model, step


def begin(log: Callable[[str], None], arguments: argparse.Namespace, world_size: int) -> None:
    """Choose how the processes that have joined divide the work, and say what runs."""
    import torch

    arguments.parallel = method(arguments.parallel, can_shard(torch, arguments.no_cuda))
    if not torch.distributed.is_initialized():
        arguments.parallel = "none"
    state(log, arguments, world_size)
    log(f"Model {arguments.model} size: {SIZES[arguments.model].parameters:,} total parameters")


def train(arguments: argparse.Namespace) -> list[float]:
    """Train, and return the losses of the lines."""
    run = PyTorchRun(arguments, begin, prepared, say)
    torch, device = run.torch, run.device
    # Part of float8's products are in bf16.
    has_peak = device.type == "cuda" and arguments.recipe == "none"
    peak = peak_flops(torch.cuda.get_device_name(device)) if has_peak else None
    tokens = arguments.batch_size * arguments.sequence_length * arguments.log_interval
    flops = SIZES[arguments.model].flops_per_token(arguments.sequence_length)
    losses = []
    taken = intervals(run.step, run.wait, arguments.steps, arguments.log_interval)
    for number, seconds, (loss, norm) in taken:
        losses.append(run.mean(loss))
        total_norm = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
        memory = peak_memory(torch, device)
        run.say(progress(number, losses[-1], total_norm, memory, tokens / seconds, flops, peak))
    for text in [*run.communication(is_alone=True), "Training completed"]:
        run.say(text)
    return losses


def main(argv: list[str] | None = None) -> None:
    leave("pytorch_llama", check(train(parse_arguments(argv))))


if __name__ == "__main__":
    main()
