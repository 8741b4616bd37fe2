"""Train ArcFace in MXNet on one synthetic batch, in one process that drives all devices of a node.

The program of this project that stands beside insightface's recognition/ArcFace (`train.py` with
`--parallel data`, `train_parall.py` with `--parallel model`) and prints their log lines. It trains
the same networks with the same loss: r100 is LResNet100E-IR (embedding of 512), y1 is MobileFaceNet
(embedding of 128); the head is the additive angular margin softmax (m1 1.0, m2 0.5, m3 0, s 64)
over all classes. `data`: every device has the whole classifier, gradients are summed over the
devices. `model`: the classifier is divided among the devices, each takes its share of the classes
for all samples. It needs no data set.

`samples/sec` counts all devices together, over the last `--frequent` batches; the clock is read
when the computation of the last of them has finished. Batches count from 0 and the first interval
begins behind batch 0, so `--iterations n` runs n + 1 batches, as `config.max_steps = n` does.

Runs on MXNet 1.6 to 1.9 (1.6.0 and 1.9.1 were tried).
"""

from __future__ import annotations

import argparse
import logging
import math
import operator
import time
from collections.abc import Callable

from builtin_common import bare_options, check, finish, intervals, multiple_of_16, positive

EMBEDDING = {"r100": 512, "y1": 128}
MARGIN, SCALE = 0.5, 64.0
MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = bare_options(__doc__, lr=0.1)
    parser.add_argument("--network", choices=tuple(EMBEDDING), default="r100")
    parser.add_argument("--batch-size", type=positive, default=64, help="images per device")
    parser.add_argument("--devices", type=positive, default=1)
    parser.add_argument(
        "--parallel",
        choices=("model", "data"),
        default="model",
        help="model: the classifier is divided among the devices; data: each has all of it",
    )
    parser.add_argument("--dtype", choices=("float32",), default="float32", help="as published")
    parser.add_argument("--iterations", type=positive, default=120, help="batches behind the first")
    parser.add_argument("--frequent", type=positive, default=20, help="a line every n batches")
    parser.add_argument("--image-size", type=multiple_of_16, default=112, help="a multiple of 16")
    parser.add_argument("--classes", type=positive, default=85742, help="identities")
    arguments = parser.parse_args(argv)
    if arguments.parallel == "model" and arguments.classes < arguments.devices:
        parser.error(f"--classes: one per device expected, found {arguments.classes}")
    return arguments


def say_start(arguments: argparse.Namespace, say: Callable[[str], None]) -> None:
    """The configuration in the published program's own words; the plan is checked against it."""
    say("use cpu" if arguments.no_cuda else f"gpu num: {arguments.devices}")
    say(f"image_size {(arguments.image_size, arguments.image_size)}")
    say(f"num_classes {arguments.classes}")
    values = {
        "batch_size": arguments.batch_size * arguments.devices,
        "ctx_num": arguments.devices,
        "dtype": arguments.dtype,
        "frequent": arguments.frequent,
        "iterations": arguments.iterations,
        "loss": "arcface",
        "lr": arguments.lr,
        "mom": MOMENTUM,
        "network": arguments.network,
        "parallel": arguments.parallel,
        "per_batch_size": arguments.batch_size,
        "seed": arguments.seed,
        "wd": WEIGHT_DECAY,
    }
    shown = ", ".join(f"{name}={value!r}" for name, value in values.items())
    config = {
        "emb_size": EMBEDDING[arguments.network],
        "max_steps": arguments.iterations,
        "loss_name": "margin_softmax",
        "loss_s": SCALE,
        "loss_m1": 1.0,
        "loss_m2": MARGIN,
        "loss_m3": 0.0,
        "num_classes": arguments.classes,
    }
    say(f"Called with argument: Namespace({shown}) {config}")


def speed_line(
    parallel: str, batch: int, frequent: int, rate: float, accuracy: float, loss: float
) -> str:
    """A line of MXNet's Speedometer: `train_parall.py` gives it no metric, `train.py` two."""
    if parallel == "model":
        return f"Iter[0] Batch [{batch}]\tSpeed: {rate:.2f} samples/sec"
    interval = f"Epoch[0] Batch [{batch - frequent}-{batch}]"
    return f"{interval}\tSpeed: {rate:.2f} samples/sec\tacc={accuracy:f}\tlossvalue={loss:f}"


def train(
    arguments: argparse.Namespace,
    step: Callable[[], tuple[object, object]],
    wait: Callable[[], None],
    read: Callable[[object], float],
    say: Callable[[str], None],
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Run all batches and say their rates. `step` starts a training step and gives the accuracy
    and the loss before its update, both for `read`; `wait` waits for all that was started.
    Returns all losses."""
    frequent = arguments.frequent
    samples = frequent * arguments.batch_size * arguments.devices
    results = [step()]
    wait()
    taken = intervals(
        *(lambda: results.append(step()), lambda _: wait(), arguments.iterations, frequent, clock)
    )
    for batch, seconds, _ in taken:
        means = [sum(map(read, part)) / frequent for part in zip(*results[-frequent:])]  # noqa: B905
        say(speed_line(arguments.parallel, batch, frequent, samples / seconds, *means))
    wait()
    return [read(loss) for _, loss in results]


def block_classes() -> tuple:
    """PReLU, Residual and Margin: the blocks that Gluon lacks."""
    from mxnet.gluon import nn
    from mxnet.initializer import Constant, Normal

    class PReLU(nn.HybridBlock):
        """With a slope per channel; Gluon's own has one for all."""

        def __init__(self, channels):
            super().__init__()
            with self.name_scope():
                self.slope = self.params.get("slope", shape=(channels,), init=Constant(0.25))

        def hybrid_forward(self, F, x, slope):  # noqa: N803 (Gluon's names)
            return F.LeakyReLU(x, slope, act_type="prelu")

    class Residual(nn.HybridBlock):
        def __init__(self, body, shortcut=None):
            super().__init__()
            self.body, self.shortcut = body, shortcut

        def hybrid_forward(self, F, x):  # noqa: N803, ARG002
            return self.body(x) + (x if self.shortcut is None else self.shortcut(x))

    class Margin(nn.HybridBlock):
        """s * cos(t), and s * cos(t + m) for the label; a label of another share has no effect."""

        def __init__(self, classes, size):
            super().__init__()
            self.classes = classes
            with self.name_scope():
                self.weight = self.params.get("weight", shape=(classes, size), init=Normal(0.01))

        def hybrid_forward(self, F, x, label, weight):  # noqa: N803
            x = F.L2Normalization(x, mode="instance")
            weight = F.L2Normalization(weight, mode="instance")
            cosine = F.FullyConnected(x, weight, None, no_bias=True, num_hidden=self.classes)
            target = F.pick(cosine, label, axis=1)
            # cos(t + m) without arccos, whose slope is infinite where a sample is learnt by heart
            inner = F.clip(target, -1 + 1e-6, 1 - 1e-6)
            moved = inner * math.cos(MARGIN) - F.sqrt(1 - inner * inner) * math.sin(MARGIN)
            change = F.broadcast_mul(
                F.one_hot(label, self.classes), F.expand_dims(moved - target, 1)
            )
            return SCALE * (cosine + change)

    return PReLU, Residual, Margin


def make_blocks(arguments: argparse.Namespace, shares: list[int]):
    """The network (images of 0 to 255 in, embeddings out), and per share of the classes a head
    (embeddings and labels in, scaled logits with margin out)."""
    from mxnet.gluon import nn

    PReLU, Residual, Margin = block_classes()  # noqa: N806 (classes)

    def chain(*blocks):
        sequence = nn.HybridSequential()
        sequence.add(*blocks)
        return sequence

    def conv(width, size, stride=1, groups=1, padding=None):
        padding = size // 2 if padding is None else padding
        return nn.Conv2D(width, size, stride, padding, groups=groups, use_bias=False)

    def norm(epsilon=2e-5, scale=True):
        return nn.BatchNorm(epsilon=epsilon, momentum=0.9, scale=scale)

    def improved_unit(width, stride):
        """The unit "IR": normalised before and between, the stride in the second convolution."""
        first = (norm(), conv(width, 3), norm(), PReLU(width))
        shortcut = chain(conv(width, 1, stride), norm()) if stride > 1 else None
        return Residual(chain(*first, conv(width, 3, stride), norm()), shortcut)

    def active(width, size, stride=1, groups=1):
        return (conv(width, size, stride, groups), norm(1e-3), PReLU(width))

    def separable(inner, width, stride=1):
        last = (conv(width, 1), norm(1e-3))
        return chain(*active(inner, 1), *active(inner, 3, stride, inner), *last)

    size = EMBEDDING[arguments.network]
    scale = nn.HybridLambda(lambda _, x: (x - 127.5) * 0.0078125)
    if arguments.network == "r100":
        layers = [scale, conv(64, 3), norm(), PReLU(64)]
        for width, units in ((64, 3), (128, 13), (256, 30), (512, 3)):
            layers += [improved_unit(width, 2 if unit == 0 else 1) for unit in range(units)]
        layers += [norm(), nn.Dropout(0.4), nn.Dense(size), norm(scale=False)]
    else:
        layers = [scale, *active(64, 3, 2), *active(64, 3, 1, 64)]
        for down, inner, width, units in (
            (128, 128, 64, 4),
            (256, 256, 128, 6),
            (512, 256, 128, 2),
        ):
            layers.append(separable(down, width, 2))
            layers += [Residual(separable(inner, width)) for _ in range(units)]
        whole = arguments.image_size // 16  # depthwise over all that is left of the image
        layers += [*active(512, 1), conv(512, whole, 1, 512, 0), norm(1e-3)]
        layers += [nn.Dense(size), norm(scale=False)]
    return chain(*layers), [Margin(classes, size) for classes in shares]


class DeviceTraining:
    """The network, its data and its optimisers on all devices."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        import mxnet as mx
        import numpy as np
        from mxnet import gluon, nd

        number, classes = arguments.devices, arguments.classes
        self.contexts = [mx.cpu(i) if arguments.no_cuda else mx.gpu(i) for i in range(number)]
        mx.random.seed(arguments.seed)
        self.rows, self.global_batch_size = arguments.batch_size, arguments.batch_size * number
        shape = (arguments.batch_size, 3, arguments.image_size, arguments.image_size)
        self.images, self.labels = [], []
        for i, context in enumerate(self.contexts):
            generator = np.random.RandomState(arguments.seed + 1 + i)
            self.images.append(nd.array(generator.randint(0, 256, shape), context))
            self.labels.append(nd.array(generator.randint(0, classes, self.rows), context))

        by_model = arguments.parallel == "model"
        shares = [classes // number + (i < classes % number) for i in range(number)]
        self.starts = [sum(shares[:i]) for i in range(number)]
        self.network, self.heads = make_blocks(arguments, shares if by_model else [classes])
        he = mx.init.Xavier(rnd_type="gaussian", factor_type="out", magnitude=2)
        self.network.initialize(he, ctx=self.contexts)
        for i, head in enumerate(self.heads):
            head.initialize(ctx=self.contexts[i] if by_model else self.contexts)
        for block in (self.network, *self.heads):
            block.hybridize(static_alloc=True, static_shape=True)

        options = {"learning_rate": arguments.lr, "momentum": MOMENTUM, "wd": WEIGHT_DECAY}
        parameters = self.network.collect_params()
        if not by_model:
            parameters.update(self.heads[0].collect_params())
        store = "device" if number > 1 else None
        self.trainers = [
            gluon.Trainer(parameters, "sgd", options, kvstore=store),
            *(
                gluon.Trainer(head.collect_params(), "sgd", options, kvstore=None)
                for head in self.heads
                if by_model
            ),
        ]
        self.cross_entropy = gluon.loss.SoftmaxCrossEntropyLoss()

    def update(self) -> None:
        for trainer in self.trainers:
            trainer.step(self.global_batch_size)

    def mean(self, parts):
        return sum(part.mean().as_in_context(self.contexts[0]) for part in parts) / len(parts)

    def data_parallel(self):
        from mxnet import autograd

        losses, hits = [], []
        with autograd.record():
            for x, label in zip(self.images, self.labels):  # noqa: B905 (Python 3.7 of MXNet 1.6)
                logits = self.heads[0](self.network(x), label)
                losses.append(self.cross_entropy(logits, label))
                hits.append(logits.argmax(axis=1) == label)
        autograd.backward(losses)
        self.update()
        return self.mean(hits), self.mean(losses)

    def model_parallel(self):
        from mxnet import autograd, nd

        first = self.contexts[0]

        def joined(parts):
            return nd.concat(*[part.as_in_context(first) for part in parts], dim=0)

        with autograd.record():
            embeddings = [self.network(x) for x in self.images]
        together = joined(part.detach() for part in embeddings)
        all_labels = joined(self.labels)
        inputs, logits, chosen = [], [], []
        for context, head, start in zip(self.contexts, self.heads, self.starts):  # noqa: B905
            x = together.copyto(context)
            x.attach_grad()
            label = all_labels.as_in_context(context) - start
            with autograd.record():
                logits.append(head(x, label))
            inputs.append(x)
            chosen.append(nd.one_hot(label, head.classes))
        # the softmax over all classes, of which each device knows its own
        top = nd.concat(*[part.max(axis=1, keepdims=True).as_in_context(first) for part in logits])
        top = top.max(axis=1, keepdims=True)
        powers = [nd.exp(part - top.as_in_context(part.context)) for part in logits]
        total = sum(part.sum(axis=1, keepdims=True).as_in_context(first) for part in powers)
        target = sum(
            (part * one).sum(axis=1, keepdims=True).as_in_context(first)
            for part, one in zip(logits, chosen)  # noqa: B905
        )
        for part, power, one in zip(logits, powers, chosen):  # noqa: B905
            part.backward(power / total.as_in_context(part.context) - one)
        gradient = sum(x.grad.as_in_context(first) for x in inputs)
        parts = [
            gradient[i * self.rows : (i + 1) * self.rows].as_in_context(context)
            for i, context in enumerate(self.contexts)
        ]
        autograd.backward(embeddings, parts)
        self.update()
        return (target >= top).mean(), (nd.log(total) + top - target).mean()


def main(argv: list[str] | None = None) -> None:
    arguments = parse_arguments(argv)
    logging.basicConfig(level=logging.INFO)

    import mxnet as mx

    program = "mxnet_arcface.py"
    gpus = arguments.devices if arguments.no_cuda else mx.context.num_gpus()
    if gpus < arguments.devices:
        finish(program, f"{arguments.devices} GPUs expected, found {gpus}; try --no-cuda")
    say_start(arguments, print)
    training = DeviceTraining(arguments)
    is_model = arguments.parallel == "model"
    step = training.model_parallel if is_model else training.data_parallel
    read = operator.methodcaller("asscalar")
    losses = train(arguments, step, mx.nd.waitall, read, logging.info)
    # train_parall.py prints no loss; this line is no part of its format.
    print(f"Loss of the fixed batch: {losses[0]:.6f} at first, {losses[-1]:.6f} at last")
    finish(program, check(losses))


if __name__ == "__main__":
    main()
