"""Train ResNet-50 v1.5 in TensorFlow and Horovod on one synthetic batch per process.

The program of this project that stands beside NVIDIA's DeepLearningExamples (TensorFlow ConvNets)
and prints its log lines, so that one parser reads both. It needs no data set and no DLLogger.
`total_ips` is the images per second of one step of the whole world: global batch size over the
time from the step's start until its loss has been read, which waits for the step's computation;
the line of every n-th step (`--display-every`) shows that step alone. `train_throughput` is the
arithmetic mean of the rates of all steps after the warm-up.

Runs on TensorFlow 1.15 and 2 (1.15.5 with Horovod 0.20.3 and 2.15.1 with 0.28.1 were tried).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

from builtin_common import bare_options, check, count, intervals, learning_rate, leave, positive
from dllogger_common import line
from tensorflow_network import FP16_LOSS_SCALE, loss_of, make_batch, network

MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = bare_options(__doc__, lr_type=learning_rate, lr_help="auto: 0.1 per 256 images")
    parser.add_argument("--batch-size", type=positive, default=256, help="images per process")
    parser.add_argument(
        "--precision",
        choices=("fp32", "amp"),
        default="fp32",
        help="amp: float16 on GPU and bfloat16 on CPU, parameters in float32",
    )
    parser.add_argument("--iterations", type=positive, default=500)
    parser.add_argument("--warmup-steps", type=count, default=200, help="steps without a line")
    parser.add_argument("--display-every", type=positive, default=10, help="a line every n steps")
    parser.add_argument("--image-size", type=positive, default=224)
    parser.add_argument("--classes", type=positive, default=1001)
    parser.add_argument("--xla", action="store_true", help="let XLA compile what it can")
    parser.add_argument("--inter-op-threads", type=count, default=0, help="0: TensorFlow's choice")
    arguments = parser.parse_args(argv)
    if arguments.warmup_steps >= arguments.iterations:
        parser.error(
            f"--warmup-steps: fewer than the {arguments.iterations} iterations expected, "
            f"found {arguments.warmup_steps}"
        )
    return arguments


def say_start(arguments: argparse.Namespace, world_size: int, say: Callable[[str], None]) -> None:
    """The configuration in the published program's own words; the plan is checked against it."""
    values = {
        "arch": "resnet50",
        "mode": "training_benchmark",
        "batch_size": arguments.batch_size,
        "num_iter": arguments.iterations,
        "iter_unit": "batch",
        "warmup_steps": arguments.warmup_steps,
        "display_every": arguments.display_every,
        "seed": arguments.seed,
        "data_dir": None,
        "synthetic_data_size": arguments.image_size,
        "lr_init": arguments.lr,
        "weight_decay": WEIGHT_DECAY,
        "momentum": MOMENTUM,
        "xla": arguments.xla,
        "data_format": "NHWC",
        "amp": arguments.precision == "amp",
        "cpu": arguments.no_cuda,
    }
    say(line("PARAMETER", values))
    say(f"Number of classes {arguments.classes}")
    say(f"Num GPUs {world_size}")
    say(f"Per-GPU Batch Size {arguments.batch_size}")
    say("Starting Model Training...")


def train(
    arguments: argparse.Namespace,
    world_size: int,
    step: Callable[[], float],
    say: Callable[[str], None],
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Run all steps and say their rates. `step` trains once, waits for the end of the computation
    and returns the loss before the update. Returns all losses."""
    global_batch_size = arguments.batch_size * world_size
    losses, rates = [], []
    taken = intervals(step, lambda _: None, arguments.iterations, 1, clock)
    for number, (_, seconds, loss) in enumerate(taken):
        losses.append(loss)
        rate = global_batch_size / seconds
        if number >= arguments.warmup_steps:
            rates.append(rate)
            if number % arguments.display_every == 0:
                say(line(f"(0, {number})", {"total_ips": rate}))
    say("Ending Model Training ...")
    say(line("()", {"train_throughput": sum(rates) / len(rates)}))
    return losses


def make_step(arguments: argparse.Namespace) -> Callable[[], float]:
    """The model, its data and its optimiser on this process's device, as one callable step."""
    import horovod.tensorflow as hvd
    import numpy as np
    import tensorflow.compat.v2 as tf

    compute_type = tf.float32
    if arguments.precision == "amp":
        compute_type = tf.bfloat16 if arguments.no_cuda else tf.float16
    loss_scale = FP16_LOSS_SCALE if compute_type == tf.float16 else 1.0
    classes, size, seed = arguments.classes, arguments.batch_size, arguments.seed
    forward, trained, averages = network(tf, np, classes, seed, compute_type)
    hvd.broadcast_variables([*trained, *averages], root_rank=0)
    velocities = [tf.Variable(tf.zeros(variable.shape)) for variable in trained]
    images, labels = make_batch(tf, np, size, arguments.image_size, classes, seed + 1 + hvd.rank())

    @tf.function(autograph=False)  # nothing in it needs converting, which takes minutes
    def train_once(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(tf, forward(images), labels)
            scaled = loss * loss_scale
        gradients = [hvd.allreduce(part) for part in tape.gradient(scaled, trained)]  # the mean
        for variable, velocity, gradient in zip(trained, velocities, gradients):  # noqa: B905 (Python 3.7)
            decay = WEIGHT_DECAY * variable if variable.shape.rank > 1 else 0.0
            tf.raw_ops.ResourceApplyMomentum(
                var=variable.handle,
                accum=velocity.handle,
                lr=arguments.lr,
                grad=gradient / loss_scale + decay,
                momentum=MOMENTUM,
            )
        return loss

    return lambda: float(train_once(images, labels).numpy())


def use_device(arguments: argparse.Namespace, local_rank: int) -> str | None:
    """Let this process see its own device only; what is wrong, if there is none."""
    import tensorflow.compat.v2 as tf

    tf.compat.v1.enable_v2_behavior()  # 1.15 builds graphs otherwise
    if arguments.inter_op_threads:
        tf.config.threading.set_inter_op_parallelism_threads(arguments.inter_op_threads)
    if arguments.xla:
        tf.config.optimizer.set_jit(True)
    gpus = tf.config.experimental.list_physical_devices("GPU")
    if arguments.no_cuda:
        tf.config.experimental.set_visible_devices([], "GPU")
    elif local_rank < len(gpus):
        tf.config.experimental.set_memory_growth(gpus[local_rank], True)
        tf.config.experimental.set_visible_devices(gpus[local_rank], "GPU")
    else:
        return f"process {local_rank} of this node has no GPU, {len(gpus)} found; try --no-cuda"
    return None


def main(argv: list[str] | None = None) -> None:
    arguments = parse_arguments(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if arguments.xla and arguments.no_cuda:
        # XLA takes no CPU operation by itself otherwise.
        os.environ.setdefault("TF_XLA_FLAGS", "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit")

    import horovod.tensorflow as hvd

    hvd.init()
    if arguments.lr is None:
        arguments.lr = 0.1 * arguments.batch_size * hvd.size() / 256
    problem = use_device(arguments, hvd.local_rank())
    if problem is None:
        say = print if hvd.rank() == 0 else str  # the others say nothing
        say_start(arguments, hvd.size(), say)
        losses = train(arguments, hvd.size(), make_step(arguments), say)
        # The published program prints no loss; this line is no part of its format.
        say(f"Loss of the fixed batch: {losses[0]:.6f} at first, {losses[-1]:.6f} at last")
        problem = check(losses)
    leave(f"tensorflow_resnet50.py: rank {hvd.rank()}", problem, hvd.shutdown)


if __name__ == "__main__":
    main()
