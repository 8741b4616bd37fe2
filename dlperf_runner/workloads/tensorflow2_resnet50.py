"""Train ResNet-50 v1.5 with TensorFlow 2 on a fixed synthetic batch; print DLLogger's lines.

A loop of this program's own, without Keras: forward and backward, the mean of the gradients over
all processes by MultiWorkerMirroredStrategy, and the update. There is one process per device. A
step ends when its loss has been read. `train.total_ips` is the rate of all devices, `train.loss`
the mean over them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from builtin_common import check, count, finish, parsed, parts, say, say_nothing
from dllogger_common import resnet_options, say_parameters, training
from tensorflow_network import FP16_LOSS_SCALE, loss_of, make_batch, network

# The first process of a node listens on this port, each further one on the next.
PORT = 29500
# Gradients are sent in packs of so many bytes, each when it is complete; by default, all at once.
PACK = 32 * 2**20


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = resnet_options(__doc__)
    parser.add_argument("--xla", choices=("true", "false"), default="true")
    parser.add_argument(
        "--threads", type=count, default=0, help="of an operation; 0: by TensorFlow"
    )
    return parsed(parser, argv)


def workers(environment: Mapping[str, str]) -> tuple[list[str], int, int]:
    """The addresses of all processes, the number of this one, and that on its node. Under mpirun,
    OpenMPI numbers the processes, node by node."""
    rank, size, local = (
        int(environment.get(f"OMPI_COMM_WORLD_{name}", usual))
        for name, usual in (("RANK", "0"), ("SIZE", "1"), ("LOCAL_RANK", "0"))
    )
    hosts = environment.get("TF_WORKER_HOSTS", "127.0.0.1").split(",")
    if size % len(hosts):
        sys.exit(f"TF_WORKER_HOSTS names {len(hosts)} nodes, which cannot have {size} processes")
    ports = range(PORT, PORT + size // len(hosts))
    return [f"{host}:{port}" for host in hosts for port in ports], rank, local


def join(tf: Any, arguments: argparse.Namespace) -> tuple[Any, int, int]:
    """Take this process's device and join the others. Returns the strategy, the number of this
    process, and how many there are."""
    addresses, rank, local = workers(os.environ)
    gpus = tf.config.list_physical_devices("GPU")
    if not arguments.no_cuda and local >= len(gpus):
        problem = f"process {local} of this node has no GPU, TensorFlow finds {len(gpus)}"
        sys.exit(f"{problem}; --no-cuda trains on the CPU")
    devices = [] if arguments.no_cuda else [gpus[local]]
    tf.config.set_visible_devices(devices, "GPU")
    for gpu in devices:
        tf.config.experimental.set_memory_growth(gpu, True)
    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    tf.config.experimental.enable_tensor_float_32_execution(arguments.precision != "fp32")
    if len(addresses) == 1:
        return tf.distribute.get_strategy(), 0, 1
    task = {"type": "worker", "index": rank}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
    ways = tf.distribute.experimental.CommunicationImplementation
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            bytes_per_pack=PACK, implementation=ways.RING if arguments.no_cuda else ways.NCCL
        )
    )
    return strategy, rank, len(addresses)


class Training(NamedTuple):
    """`step` takes a step and returns its loss, the mean over all processes. `alone` takes one
    without the others and returns the own loss; parameters differ afterwards. `all_reduce` is what
    a step does with so many bytes of gradients, and returns a number when it has."""

    step: Callable[[], Any]
    alone: Callable[[], Any]
    all_reduce: Callable[[], Any]
    gradient_bytes: int

    def parts(
        self, gather: Callable[[float], list[float]], clock: Callable[[], float] = time.perf_counter
    ) -> list[str]:
        steps = self.alone, float, gather, lambda: float(self.all_reduce())
        return parts(*steps, self.gradient_bytes, clock=clock)


def compiled_steps(tf: Any, arguments: argparse.Namespace, strategy: Any, rank: int) -> Training:
    """All processes have the same parameters, and each its own batch and moving averages."""
    import numpy as np

    compute_type = {"amp": tf.float16, "bf16": tf.bfloat16}.get(arguments.precision, tf.float32)
    loss_scale = FP16_LOSS_SCALE if compute_type == tf.float16 else 1.0
    classes, size, seed = arguments.classes, arguments.batch_size, arguments.seed
    forward, first_to_last, _ = network(tf, np, classes, seed, compute_type)
    trained = first_to_last[
        ::-1
    ]  # packs go in this order, and the last layers' gradients are first
    velocities = [tf.Variable(tf.zeros(variable.shape)) for variable in trained]
    batch = make_batch(tf, np, size, arguments.image_size, classes, seed + 1 + rank)
    # Without autograph: nothing needs converting, which takes minutes.
    compiled = tf.function(autograph=False, jit_compile=arguments.xla == "true")

    @compiled
    def gradients_of(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(tf, forward(images), labels)
            scaled = loss * loss_scale
        return loss, [part / loss_scale for part in tape.gradient(scaled, trained)]

    @compiled
    def update(gradients: Any) -> None:
        for variable, velocity, gradient in zip(trained, velocities, gradients, strict=True):
            tf.raw_ops.ResourceApplyMomentum(
                var=variable.handle,
                accum=velocity.handle,
                lr=arguments.lr,
                grad=gradient + arguments.wd * variable,
                momentum=arguments.momentum,
                use_nesterov=True,
            )

    def mean(values: list[Any]) -> Any:
        everywhere = tf.distribute.get_replica_context()
        return everywhere.all_reduce(tf.distribute.ReduceOp.MEAN, values)

    def of_process(images: Any, labels: Any, is_alone: bool) -> Any:
        loss, gradients = gradients_of(images, labels)
        if not is_alone:
            loss, *gradients = mean([loss, *gradients])
        update(gradients)
        return loss

    @tf.function(autograph=False)
    def step(images: Any, labels: Any, is_alone: bool) -> Any:
        return strategy.run(of_process, args=(images, labels, is_alone))

    def zeros_of_process() -> Any:
        reduced = mean([tf.zeros(variable.shape) for variable in trained])
        return tf.add_n([tf.reshape(part, [-1])[0] for part in reduced])

    return Training(
        lambda: step(*batch, False),
        lambda: step(*batch, True),
        tf.function(lambda: strategy.run(zeros_of_process), autograph=False),
        4 * sum(variable.shape.num_elements() for variable in trained),
    )


def gatherer(tf: Any, strategy: Any, rank: int, world_size: int) -> Callable[[float], list[float]]:
    """A function that takes this process's number and returns those of all, when all call it."""

    def of_process(value: Any) -> Any:
        everywhere = tf.distribute.get_replica_context()
        return everywhere.all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(value))

    @tf.function(autograph=False)
    def added(value: Any) -> Any:
        return strategy.run(of_process, args=(value,))

    def gather(value: float) -> list[float]:
        values = [value * (rank == each) for each in range(world_size)]
        return [float(each) for each in added(tf.constant(values, tf.float64)).numpy()]

    return gather


def train(arguments: argparse.Namespace) -> list[float]:
    """Train on a fixed batch, and return the losses; only the first process says anything."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Imported here so that --help and a wrong option need no framework.
    import tensorflow as tf

    strategy, rank, world_size = join(tf, arguments)
    log = say if rank == 0 else say_nothing
    say_parameters(log, arguments, world_size, arch="tensorflow2_resnet50")
    trained = compiled_steps(tf, arguments, strategy, rank)
    gather = gatherer(tf, strategy, rank, world_size)
    return training(
        *(arguments, log, world_size * arguments.batch_size, trained.step, float, float),
        lambda: trained.parts(gather) if world_size > 1 else [],
    )


def main(argv: list[str] | None = None) -> None:
    finish("tensorflow2_resnet50", check(train(parse_arguments(argv))))


if __name__ == "__main__":
    main()
