"""Train ArcFace in PaddlePaddle on one synthetic batch per process.

The program of this project that stands beside PLSC's entry.py and prints its log lines on stderr.
It trains PLSC's ResNet50 (residual units 3, 4, 14, 3 of two 3x3 convolutions, embedding of 512)
under the additive angular margin softmax (margin 0.5, scale 64) over all classes. As in PLSC, with
several processes the classifier is divided among them, each taking its share of the classes for
the samples of all (`--parallel model`, PLSC's dist_arcface); with `data` every process has the
whole classifier. It needs no data set.

`qps` counts the images of all processes per second, over the last `--log-period` batches; a
batch's time ends when its computation has finished. Batches count from 0. As in PLSC, batch 0 comes
before the `--iterations`: the lines of 150 iterations end with that of batch 150.

Several processes: `python -m paddle.distributed.launch --ips=A,B --nproc_per_node=2
paddle_arcface.py ...`, once per node; NCCL on GPU, Gloo on CPU. Only the first process prints.
Runs on Paddle 2 (2.6.2 was tried); Paddle 1.8 has another interface.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import sys
import time
from collections.abc import Callable

from builtin_common import (
    bare_options,
    check,
    finish,
    intervals,
    learning_rate,
    multiple_of_16,
    positive,
    share_of,
)

EMBEDDING = 512
UNITS = ((64, 3), (128, 4), (256, 14), (512, 3))  # width, units
MARGIN, SCALE = 0.5, 64.0
MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = bare_options(__doc__, lr_type=learning_rate, lr_help="auto: 0.1 per 1024 images")
    parser.add_argument("--batch-size", type=positive, default=128, help="images per process")
    parser.add_argument("--dtype", choices=("float32",), default="float32", help="as published")
    parser.add_argument("--iterations", type=positive, default=150, help="batches after batch 0")
    parser.add_argument("--log-period", type=positive, default=1, help="a line every n batches")
    parser.add_argument("--image-size", type=multiple_of_16, default=112, help="a multiple of 16")
    parser.add_argument("--classes", type=positive, default=85742, help="identities")
    parser.add_argument(
        "--parallel",
        choices=("model", "data"),
        default="model",
        help="model: the classifier is divided among the processes; data: each has all of it",
    )
    return parser.parse_args(argv)


def say_start(
    arguments: argparse.Namespace, rank: int, world_size: int, say: Callable[[str], None]
) -> None:
    """The configuration in the published program's own words; the plan is checked against it."""
    head = "dist_arcface" if arguments.parallel == "model" and world_size > 1 else "arcface"
    say(f"trainer_id: {rank}, num_trainers: {world_size}")
    say(f"Set num_classes to {arguments.classes}.")
    say(f"Set train batch size to {arguments.batch_size}.")
    say(f"Set loss_type to {head}.")
    say(f"Set log period to {arguments.log_period}.")
    say(f"Set image_shape to (3, {arguments.image_size}, {arguments.image_size}).")
    say("Set noise to one batch.")
    say(f"Set dtype to {arguments.dtype}.")
    say(f"Set number of batches to {arguments.iterations}.")


def train(
    arguments: argparse.Namespace,
    world_size: int,
    step: Callable[[], float],
    say: Callable[[str], None],
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Run all batches and say their rates. `step` trains once, waits for the end of the
    computation and returns the loss before the update. Returns all losses."""
    losses: list[float] = []
    samples = arguments.batch_size * world_size
    # The line of batch 0, then those of every n batches.
    for steps, period in ((1, 1), (arguments.iterations, arguments.log_period)):
        taken = intervals(lambda: losses.append(step()), lambda _: None, steps, period, clock)
        for _, seconds, _ in taken:
            batch, loss = len(losses) - 1, sum(losses[-period:]) / period
            qps = period * samples / seconds
            say(f"Pass:0 batch:{batch} lr:{arguments.lr:.8f} loss:{loss:.6f} qps:{qps:.2f}")
    return losses


def make_blocks(paddle, arguments: argparse.Namespace, classes: int):
    """The network (normalised images in, embeddings out), and the head for a share of the classes
    (embeddings in, cosines out)."""
    nn, functional = paddle.nn, paddle.nn.functional
    init = nn.initializer

    def conv(inputs, width, size, stride=1):
        spread = init.Normal(0.0, math.sqrt(2.0 / (width * size * size)))  # by fan-out
        return nn.Conv2D(
            inputs, width, size, stride, size // 2, weight_attr=spread, bias_attr=False
        )

    def norm(width):
        return nn.BatchNorm2D(width, momentum=0.9, epsilon=2e-5)

    class ResidualUnit(nn.Layer):
        """Normalised before and between, the stride in the second convolution."""

        def __init__(self, inputs, width, stride):
            super().__init__()
            self.body = nn.Sequential(
                norm(inputs),
                conv(inputs, width, 3),
                norm(width),
                nn.PReLU(),
                conv(width, width, 3, stride),
                norm(width),
            )
            self.shortcut = None
            if stride > 1 or inputs != width:
                self.shortcut = nn.Sequential(conv(inputs, width, 1, stride), norm(width))

        def forward(self, x):
            return self.body(x) + (x if self.shortcut is None else self.shortcut(x))

    class Cosines(nn.Layer):
        def __init__(self):
            super().__init__()
            spread = init.Normal(0.0, math.sqrt(2.0 / (EMBEDDING + arguments.classes)))
            attribute = paddle.ParamAttr(initializer=spread)
            self.weight = self.create_parameter([EMBEDDING, classes], attr=attribute)

        def forward(self, x):
            x = functional.normalize(x, axis=1)
            return paddle.matmul(x, functional.normalize(self.weight, axis=0))

    layers = [conv(3, 64, 3), norm(64), nn.PReLU()]
    inputs = 64
    for width, units in UNITS:
        for unit in range(units):
            layers.append(ResidualUnit(inputs, width, 2 if unit == 0 else 1))
            inputs = width
    left = (arguments.image_size // 16) ** 2 * inputs
    layers += [norm(inputs), nn.Dropout(0.4), nn.Flatten(), nn.Linear(left, EMBEDDING)]
    layers.append(nn.BatchNorm1D(EMBEDDING, momentum=0.9, epsilon=2e-5))
    return nn.Sequential(*layers), Cosines()


def with_margin(paddle, cosine, label):
    """s * cos(t), and s * cos(t + m) for the label, which is returned as one-hot too; a label of
    another share of the classes has no effect."""
    functional, classes = paddle.nn.functional, cosine.shape[1]
    is_local = paddle.cast((label >= 0) & (label < classes), "float32").unsqueeze(1)
    chosen = functional.one_hot(paddle.clip(label, 0, classes - 1), classes) * is_local
    target = (cosine * chosen).sum(axis=1, keepdim=True)
    # cos(t + m) without arccos, whose slope is infinite where a sample is learnt by heart
    inner = paddle.clip(target, -1 + 1e-6, 1 - 1e-6)
    moved = inner * math.cos(MARGIN) - paddle.sqrt(1 - inner * inner) * math.sin(MARGIN)
    return SCALE * (cosine + chosen * (moved - target)), chosen


class ProcessTraining:
    """The network, its data and its optimiser on this process's device."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        import numpy as np
        import paddle
        import paddle.distributed as dist

        self.is_cuda = not arguments.no_cuda
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.by_model = arguments.parallel == "model" and self.world_size > 1
        shares = self.world_size if self.by_model else 1
        self.first, count = share_of(arguments.classes, shares, self.by_model * self.rank)
        paddle.seed(arguments.seed)
        network, self.cosines = make_blocks(paddle, arguments, count)
        weight = self.cosines.weight
        if self.by_model:  # each process its own weights of the classifier, unlike the network's
            paddle.seed(arguments.seed + 1 + self.rank)
            weight.set_value(paddle.randn(weight.shape) * float(weight.std()))
        parameters = [*network.parameters(), *self.cosines.parameters()]
        self.optimizer = paddle.optimizer.Momentum(
            arguments.lr, MOMENTUM, parameters=parameters, weight_decay=WEIGHT_DECAY
        )
        generator = np.random.RandomState(arguments.seed + 1 + self.rank)
        shape = (arguments.batch_size, 3, arguments.image_size, arguments.image_size)
        pixels = generator.randint(0, 256, shape).astype("float32")
        self.images = paddle.to_tensor((pixels - 127.5) / 128)
        labels = generator.randint(0, arguments.classes, arguments.batch_size)
        self.labels = paddle.to_tensor(labels)
        # With the classifier, for the gradients of both to be averaged.
        self.model = network if self.by_model else paddle.nn.Sequential(network, self.cosines)
        if self.world_size > 1:
            self.model = paddle.DataParallel(self.model)
        self.all_labels = gathered(self.labels) if self.by_model else self.labels

    def step(self) -> float:
        """A training step; returns its loss."""
        import paddle

        loss = self.model_parallel() if self.by_model else self.data_parallel()
        self.optimizer.step()
        self.optimizer.clear_grad()
        if self.is_cuda:
            paddle.device.cuda.synchronize()
        return float(loss)

    def data_parallel(self):
        import paddle

        logits, _ = with_margin(paddle, self.model(self.images), self.labels)
        loss = paddle.nn.functional.cross_entropy(logits, self.labels)
        loss.backward()
        return loss

    def model_parallel(self):
        import paddle
        import paddle.distributed as dist

        embeddings = self.model(self.images)
        x = gathered(embeddings.detach())
        x.stop_gradient = False
        logits, chosen = with_margin(paddle, self.cosines(x), self.all_labels - self.first)
        # the softmax over all classes, of which each process knows its own
        with paddle.no_grad():
            top = logits.max(axis=1, keepdim=True)
            dist.all_reduce(top, dist.ReduceOp.MAX)
            powers = paddle.exp(logits - top)
            total = powers.sum(axis=1, keepdim=True)
            dist.all_reduce(total)
            target = (logits * chosen).sum(axis=1, keepdim=True)
            dist.all_reduce(target)
            loss = (paddle.log(total) + top - target).mean()
            slope = (powers / total - chosen) / len(self.all_labels)
        logits.backward(slope)
        # Each share of the classes adds to the gradient of every sample. DataParallel takes the
        # mean over the processes of what is a sum.
        gradient = x.grad.detach()
        dist.all_reduce(gradient)
        rows = len(self.labels)
        part = gradient[self.rank * rows : (self.rank + 1) * rows]
        embeddings.backward(part * float(self.world_size))
        return loss


def gathered(tensor):
    """The parts of all processes as one."""
    import paddle
    import paddle.distributed as dist

    parts: list = []
    dist.all_gather(parts, tensor)
    return paddle.concat(parts)


def make_say(rank: int) -> Callable[[str], None]:
    """Lines as PLSC's logger writes them, from the first process:
    `INFO 2026-11-20 13:40:15,997 entry.py:1029] Pass:0 batch:0 lr:0.00039063 ...`."""
    logger = logging.getLogger("plsc")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter("%(levelname)s %(asctime)s %(filename)s:%(lineno)d] %(message)s")
    )
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(logging.INFO if rank == 0 else logging.CRITICAL)
    return logger.info


def main(argv: list[str] | None = None) -> None:
    arguments = parse_arguments(argv)
    rank = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
    program, say = f"paddle_arcface.py: rank {rank}", make_say(rank)

    import paddle
    import paddle.distributed as dist

    if not hasattr(paddle, "to_tensor"):
        finish(program, f"Paddle 2 expected, found {paddle.__version__}")
    if not arguments.no_cuda and not paddle.device.cuda.device_count():
        finish(program, "no GPU found; try --no-cuda")
    if arguments.no_cuda:
        paddle.set_device("cpu")
    if int(os.environ.get("PADDLE_TRAINERS_NUM", "1")) > 1:
        dist.init_parallel_env()
    world_size = dist.get_world_size()
    if arguments.lr is None:
        arguments.lr = 0.1 * arguments.batch_size * world_size / 1024
    say_start(arguments, rank, world_size, say)
    finish(program, check(train(arguments, world_size, ProcessTraining(arguments).step, say)))


if __name__ == "__main__":
    main()
