"""Train a decoder like Llama with JAX on synthetic tokens; print MaxText's lines.

A token of a sequence follows from the two before it, so that the loss falls. A step is forward,
backward, clipping of the gradient and AdamW, compiled as one. Its seconds are those since the step
before was complete on the devices. FLOPs are counted as MaxText does, with half of attention.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from builtin_common import check, finish, positive, say, say_nothing
from jax_common import alone, completed, join, two_steps
from llama_sizes import SIZES, llama_options


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = llama_options(__doc__, "llama-3.1-8b", steps=30)
    parser.add_argument("--devices", type=positive, default=1, help="of this node")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument(
        "--parallel",
        choices=("fsdp", "dp"),
        default="fsdp",
        help="fsdp shards parameters, gradients and optimiser",
    )
    parser.add_argument(
        "--attention",
        choices=("auto", "xla", "cudnn"),
        default="auto",
        help="auto is cudnn for bfloat16 on a GPU, else xla",
    )
    arguments = parser.parse_args(argv)
    takes_cudnn = arguments.dtype == "bfloat16" and not arguments.no_cuda
    if arguments.attention == "cudnn" and not takes_cudnn:
        parser.error("--attention cudnn needs a GPU and --dtype bfloat16; choose xla")
    if arguments.attention == "auto":
        arguments.attention = "cudnn" if takes_cudnn else "xla"
    return arguments


def state(log: Callable[[str], None], arguments: argparse.Namespace, world_size: int) -> None:
    """Say what runs, in MaxText's words, so that the log can confirm the plan."""
    settings = {
        "attention": arguments.attention,
        "dtype": arguments.dtype,
        "max_target_length": arguments.sequence_length,
        "model_name": arguments.model,
        "parallel": arguments.parallel,
        "per_device_batch_size": float(arguments.batch_size),
        "remat_policy": arguments.recompute,
        "steps": arguments.steps,
    }
    for name, value in settings.items():
        log(f"Config param {name}: {value}")
    log(f"Num_devices: {world_size}, shape ({world_size},)")


def progress(
    step: int, loss: float, seconds: float, tokens: int, world_size: int, flops_per_token: int
) -> str:
    """MaxText's line of a step; `tokens` and rates are of one device."""
    rate = tokens / seconds
    return (
        f"completed step: {step}, seconds: {seconds:.3f},"
        f" TFLOP/s/device: {rate * flops_per_token / 1e12:.3f}, Tokens/s/device: {rate:.3f},"
        f" total_weights: {tokens * world_size}, loss: {loss:.3f}"
    )


def train(arguments: argparse.Namespace) -> list[float]:
    """Train, and return the losses; only process 0 says anything."""
    # Imported here so that --help and a wrong option need no framework.
    import jax
    from jax_llama_model import training

    mesh = join(jax, arguments.devices, arguments.no_cuda)
    log = say if jax.process_index() == 0 else say_nothing
    state(log, arguments, mesh.size)
    size = SIZES[arguments.model]
    log(f"number parameters: {size.parameters / 1e9:.3f} billion")
    step, step_alone = two_steps(mesh, training(arguments, mesh))
    losses: list[float] = []
    tokens = arguments.batch_size * arguments.sequence_length
    flops = size.flops_per_token(arguments.sequence_length, causal=True)
    for loss, seconds in completed(step, jax.block_until_ready, arguments.steps):
        losses.append(float(loss))
        log(progress(len(losses) - 1, losses[-1], seconds, tokens, mesh.size, flops))
    for text in alone(jax, step_alone, mesh):
        log(text)
    return losses


def main(argv: list[str] | None = None) -> None:
    finish("jax_llama", check(train(parse_arguments(argv))))


if __name__ == "__main__":
    main()
