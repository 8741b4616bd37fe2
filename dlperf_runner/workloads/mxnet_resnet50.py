"""Train ResNet-50 v1b with MXNet and Horovod on a fixed synthetic batch; print gluon-cv's lines.

What is timed is what gluon-cv's train_horovod.py does per batch: forward, backward, all-reduce,
update, metric; each interval ends only when the device has finished. The speed is the world's
total. Runs with MXNet 1.6 to 1.9, on CPU and GPU, alone or under mpirun.
"""

import argparse
import logging
import math
import sys
import time

BLOCKS = (3, 4, 6, 3)
CHANNELS = (64, 128, 256, 512)
EXPANSION = 4


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--batch-size", type=positive, default=128, help="samples per device")
    parser.add_argument("--dtype", choices=("float32", "float16"), default="float32")
    parser.add_argument("--iterations", type=positive, default=120)
    parser.add_argument("--image-size", type=positive, default=224)
    parser.add_argument("--classes", type=positive, default=1000)
    parser.add_argument("--lr", type=float, default=0.002, help="learning rate, of any world size")
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--wd", type=float, default=0.0001, help="weight decay")
    parser.add_argument("--log-interval", type=positive, default=1, help="batches between lines")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-cuda", action="store_true", help="train on the CPU")
    return parser.parse_args(argv)


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("a whole number of at least 1 was expected")
    return value


def bottleneck(nn, channels, stride, in_channels):
    """gluon-cv's BottleneckV1b: the stride is in the 3x3 convolution, unlike in v1."""

    class Bottleneck(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            out_channels = channels * EXPANSION
            with self.name_scope():
                self.body = nn.HybridSequential(prefix="")
                self.body.add(nn.Conv2D(channels, 1, use_bias=False, in_channels=in_channels))
                self.body.add(nn.BatchNorm(), nn.Activation("relu"))
                self.body.add(
                    nn.Conv2D(channels, 3, stride, 1, use_bias=False, in_channels=channels)
                )
                self.body.add(nn.BatchNorm(), nn.Activation("relu"))
                self.body.add(nn.Conv2D(out_channels, 1, use_bias=False, in_channels=channels))
                self.body.add(nn.BatchNorm())
                self.downsample = None
                if stride != 1 or in_channels != out_channels:
                    self.downsample = nn.HybridSequential(prefix="")
                    self.downsample.add(
                        nn.Conv2D(out_channels, 1, stride, use_bias=False, in_channels=in_channels),
                        nn.BatchNorm(),
                    )

        def hybrid_forward(self, F, x):  # noqa: N803 the name that Gluon calls it by
            shortcut = self.downsample(x) if self.downsample else x
            return F.Activation(self.body(x) + shortcut, act_type="relu")

    return Bottleneck()


def resnet50_v1b(nn, classes):
    """ResNet-50 v1b: 25,557,032 trainable parameters for 1000 classes, as gluon-cv's."""
    net = nn.HybridSequential(prefix="resnetv1b_")
    with net.name_scope():
        net.add(nn.Conv2D(64, 7, 2, 3, use_bias=False, in_channels=3))
        net.add(nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(3, 2, 1))
        in_channels = 64
        for stage, (blocks, channels) in enumerate(zip(BLOCKS, CHANNELS)):  # noqa: B905 Python 3.7
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                net.add(bottleneck(nn, channels, stride, in_channels))
                in_channels = channels * EXPANSION
        net.add(nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(classes, in_units=in_channels))
    return net


def log_step(log, batch, loss, metric, lr, speed):
    """gluon-cv's three lines of a batch; `speed` is in samples per second of the whole world."""
    log("Epoch[0] Batch[%d] Loss[%.3f]", batch, loss)
    log("Epoch[0] Rank[0] Batch[%d]\t%s=%f\tlr=%f", batch, metric[0], metric[1], lr)
    log("Epoch[0] Batch[%d]\tSpeed: %f samples/sec", batch, speed)


def train(arguments):
    """Train, print from rank 0, and return the losses of its log lines."""
    # Imported here so that --help and a wrong option need no framework.
    import horovod.mxnet as hvd
    import mxnet as mx
    from mxnet import autograd, gluon

    hvd.init()
    rank, world_size = hvd.rank(), hvd.size()
    log = logging.info if rank == 0 else (lambda *_: None)
    log(arguments)
    log("world_size=%d", world_size)

    context = mx.cpu() if arguments.no_cuda else mx.gpu(hvd.local_rank())
    mx.random.seed(arguments.seed + rank)
    size, batch_size = arguments.image_size, arguments.batch_size
    shape = (batch_size, 3, size, size)
    data = mx.nd.random.normal(shape=shape, ctx=context).astype(arguments.dtype)
    label = mx.nd.floor(mx.nd.random.uniform(0, arguments.classes, (batch_size,), ctx=context))

    net = resnet50_v1b(gluon.nn, arguments.classes)
    net.cast(arguments.dtype)
    net.initialize(mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2), ctx=context)
    net.hybridize()
    parameters = net.collect_params()
    hvd.broadcast_parameters(parameters, root_rank=0)
    options = {"learning_rate": arguments.lr, "momentum": arguments.momentum}
    options.update(wd=arguments.wd, multi_precision=arguments.dtype == "float16")
    trainer = hvd.DistributedTrainer(parameters, mx.optimizer.create("nag", **options))
    loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
    metric = mx.metric.Accuracy()

    losses = []
    mx.nd.waitall()
    began = last = time.time()
    for batch in range(1, arguments.iterations + 1):
        with autograd.record():
            output = net(data)
            loss = loss_function(output.astype("float32"), label)
        loss.backward()
        trainer.step(batch_size)
        metric.update([label], [output.astype("float32")])
        mx.nd.waitall()
        if batch % arguments.log_interval == 0:
            now = time.time()
            speed = world_size * batch_size * arguments.log_interval / (now - last)
            losses.append(float(loss.mean().asscalar()))
            log_step(log, batch, losses[-1], metric.get(), trainer.learning_rate, speed)
            last = time.time()
    elapsed = time.time() - began
    log(
        "Epoch[0] Rank[0] Batch[%d]\tTime cost=%.2f\tTrain-metric=%f",
        batch,
        elapsed,
        metric.get()[1],
    )
    log("Epoch[0]\tSpeed: %f samples/sec", world_size * batch_size * batch / elapsed)
    return losses


def check(losses):
    """Why this was no training; None if the loss stayed finite and fell."""
    for number, loss in enumerate(losses, 1):
        if not math.isfinite(loss):
            return f"the loss at log line {number} is {loss}: no training took place"
    if len(losses) > 1 and not losses[-1] < losses[0]:
        return f"the loss did not fall on a fixed batch: {losses[0]:.3f}, then {losses[-1]:.3f}"
    return None


def main(argv=None):
    arguments = parse_arguments(argv)
    logging.basicConfig(level=logging.INFO)
    problem = check(train(arguments))
    if problem:
        sys.exit("mxnet_resnet50: " + problem)


if __name__ == "__main__":
    main()
