"""Train ResNet-50 v1.5 with JAX on a fixed synthetic batch; print DLLogger's lines.

A step is forward, backward, all-reduce and update, compiled as one program per device
(`shard_map`). Batch normalisation is over the images of one device, as in other frameworks. A step
ends when all devices have completed it. `train.total_ips` is the rate of all devices, `train.loss`
the mean over them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from builtin_common import check, positive
from dllogger_lines import parameters, print_line
from jax_common import completed, join
from resnet50_common import options, parse, say_steps


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = options(__doc__, ("fp32", "tf32", "bf16"), "bf16")
    parser.add_argument("--devices", type=positive, default=1, help="of this node")
    return parse(parser, argv)


def train(arguments: argparse.Namespace) -> list[float]:
    """Train on a fixed batch, and return the losses; only process 0 says anything."""
    # Imported here so that --help and a wrong option need no framework.
    import jax
    from jax_resnet50_step import training

    mesh = join(jax, arguments.devices, arguments.no_cuda)
    say: Callable[..., None] = print_line if jax.process_index() == 0 else (lambda *_: None)
    # By this name, the log of this program is told from one of PyTorch.
    say("PARAMETER", {**parameters(arguments, mesh.size), "arch": "jax_resnet50"})
    exactness = {"fp32": "highest", "tf32": "tensorfloat32"}.get(arguments.precision)
    jax.config.update("jax_default_matmul_precision", exactness)
    trained, batch, step = training(arguments, mesh)

    def take() -> Any:
        nonlocal trained
        trained, loss = step(trained, batch)
        return loss

    done = completed(take, jax.block_until_ready, arguments.iterations)
    taken = ((number, took, float(loss)) for number, (loss, took) in enumerate(done, 1))
    return say_steps(say, taken, mesh.size * arguments.batch_size, arguments.lr)


def main(argv: list[str] | None = None) -> None:
    problem = check(train(parse_arguments(argv)))
    if problem:
        sys.exit("jax_resnet50: " + problem)


if __name__ == "__main__":
    main()
