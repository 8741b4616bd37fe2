"""Train ResNet-50 v1b with MXNet and Horovod on a fixed synthetic batch; print gluon-cv's lines.

What is timed is what gluon-cv's train_horovod.py does per batch: forward, backward, all-reduce,
update, metric; each interval ends only when the device has finished. The speed is the world's
total. Several processes then take steps without communication, and all-reduce without a step, which
are timed, too. Runs with MXNet 1.6 to 1.9, on CPU and GPU, alone or under mpirun.
"""

import logging
import time

from builtin_common import (
    EXPANSION,
    FEATURES,
    bare_options,
    bottlenecks,
    check,
    intervals,
    leave,
    positive,
    said_all_reduce,
    said_alone,
    seconds_alone,
)


def parse_arguments(argv=None):
    parser = bare_options(__doc__, 0.002, lr_help="learning rate, of any world size")
    parser.add_argument("--batch-size", type=positive, default=128, help="samples per device")
    parser.add_argument("--dtype", choices=("float32", "float16"), default="float32")
    parser.add_argument("--iterations", type=positive, default=120)
    parser.add_argument("--image-size", type=positive, default=224)
    parser.add_argument("--classes", type=positive, default=1000)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--wd", type=float, default=0.0001, help="weight decay")
    parser.add_argument("--log-interval", type=positive, default=1, help="batches between lines")
    arguments = parser.parse_args(argv)
    if arguments.no_cuda and arguments.dtype == "float16":
        parser.error("--dtype float16 needs a GPU: MXNet has no fp16 matrix product for the CPU")
    return arguments


def bottleneck(nn, in_channels, channels, stride):
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
        net.add(*(bottleneck(nn, *block) for block in bottlenecks()))
        net.add(nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(classes, in_units=FEATURES))
    return net


def run(step, report, arguments, world_size, log, clock=time.time):
    """Take the steps, log gluon-cv's lines, and return the losses that they show.

    `step` returns when the device has finished. `report` gives the loss, the metric's name and
    value, and the learning rate; it is no part of the timed intervals. Speeds are in samples per
    second of the whole world.
    """
    samples, steps = world_size * arguments.batch_size, arguments.iterations
    losses = []
    began = clock()
    taken = intervals(step, lambda _: None, steps, arguments.log_interval, clock)
    for batch, seconds, _ in taken:
        loss, name, value, lr = report()
        losses.append(loss)
        log("Epoch[0] Batch[%d] Loss[%.3f]", batch, loss)
        log("Epoch[0] Rank[0] Batch[%d]\t%s=%f\tlr=%f", batch, name, value, lr)
        speed = samples * arguments.log_interval / seconds
        log("Epoch[0] Batch[%d]\tSpeed: %f samples/sec", batch, speed)
    elapsed = clock() - began
    value = report()[2]
    log("Epoch[0] Rank[0] Batch[%d]\tTime cost=%.2f\tTrain-metric=%f", steps, elapsed, value)
    log("Epoch[0]\tSpeed: %f samples/sec", samples * steps / elapsed)
    return losses


def parts(step, trainer, gather, wait, size, clock=time.time):
    """The texts that say how long each rank takes for a step without Horovod, and how long Horovod
    takes to all-reduce the gradients, of `size` bytes, without a step. To be called after the
    training: the ranks' networks are different afterwards.

    `gather` takes this rank's number and returns those of all, when all have called it.
    """
    all_reduce = trainer._allreduce_grads  # where Horovod's trainer differs from MXNet's

    def reduce():
        all_reduce()
        wait()

    trainer._allreduce_grads = lambda: None
    seconds = seconds_alone(step, lambda _: wait(), lambda: gather(0.0), clock=clock)
    return [said_alone(gather(seconds)), said_all_reduce(reduce, size, clock)]


def train(arguments):
    """Train on a fixed batch, and return the losses; only rank 0 says anything."""
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

    loss = None

    def step():
        nonlocal loss
        with autograd.record():
            output = net(data)
            loss = loss_function(output.astype("float32"), label)
        loss.backward()
        trainer.step(batch_size)
        metric.update([label], [output.astype("float32")])
        mx.nd.waitall()

    def report():
        return (float(loss.mean().asscalar()), *metric.get(), trainer.learning_rate)

    def gather(number):
        return hvd.allgather(mx.nd.array([number]), name="seconds").asnumpy().tolist()

    mx.nd.waitall()
    losses = run(step, report, arguments, world_size, log)
    if world_size > 1:
        gradients = [each.grad() for each in parameters.values() if each.grad_req != "null"]
        size = sum(each.size * each.dtype().itemsize for each in gradients)
        for text in parts(step, trainer, gather, mx.nd.waitall, size):
            log(text)
    return losses


def main(argv=None):
    arguments = parse_arguments(argv)
    logging.basicConfig(level=logging.INFO)
    import horovod.mxnet as hvd

    leave("mxnet_resnet50", check(train(arguments)), hvd.shutdown)


if __name__ == "__main__":
    main()
