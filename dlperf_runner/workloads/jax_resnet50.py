"""Train ResNet-50 v1.5 with JAX on a fixed synthetic batch; print DLLogger's lines.

A step is forward, backward, all-reduce and update, compiled as one program per device
(`shard_map`). Batch normalisation is over the images of one device, as in other frameworks. A step
ends when all devices have completed it. `train.total_ips` is the rate of all devices, `train.loss`
the mean over them. Several devices then take steps without communication, which are timed, too.
"""

from __future__ import annotations

import argparse

from builtin_common import bare_options, check, finish, parsed, positive, say, say_nothing
from dllogger_common import add_resnet_options, say_parameters, say_training
from jax_common import alone, completed, join, two_steps


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = bare_options(__doc__, lr=0.01)
    parser.add_argument("--devices", type=positive, default=1, help="of this node")
    parser.add_argument("--batch-size", type=positive, default=256, help="images per device")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="bf16")
    parser.add_argument("--iterations", type=positive, default=120)
    add_resnet_options(parser)
    return parsed(parser, argv)


def train(arguments: argparse.Namespace) -> list[float]:
    """Train on a fixed batch, and return the losses; only process 0 says anything."""
    # Imported here so that --help and a wrong option need no framework.
    import jax
    from jax_resnet50_step import training

    mesh = join(jax, arguments.devices, arguments.no_cuda)
    log = say if jax.process_index() == 0 else say_nothing
    say_parameters(log, arguments, mesh.size, arch="jax_resnet50")
    step, step_alone = two_steps(mesh, training(arguments, mesh))
    taken = completed(step, jax.block_until_ready, arguments.iterations)
    return say_training(
        log,
        ((number, seconds, float(loss)) for number, (loss, seconds) in enumerate(taken, 1)),
        samples=mesh.size * arguments.batch_size,
        lr=arguments.lr,
        communication=lambda: alone(jax, step_alone, mesh),
    )


def main(argv: list[str] | None = None) -> None:
    finish("jax_resnet50", check(train(parse_arguments(argv))))


if __name__ == "__main__":
    main()
