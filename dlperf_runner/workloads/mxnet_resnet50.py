"""Train ResNet-50 v1b with MXNet and Horovod on a fixed synthetic batch; print gluon-cv's lines.

What is timed is what gluon-cv's train_horovod.py does per batch: forward, backward, all-reduce,
update, metric; each interval ends only when the device has finished. The speed is the world's
total. Several processes then take steps without communication, and all-reduce without a step, which
are timed, too. Runs with MXNet 1.6 to 1.9, on CPU and GPU, alone or under mpirun.
"""

import logging
import time

import resnet50
from builtin_common import bare_options, check, intervals, leave, parts, positive


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


def resnet50_v1b(nn, classes):
    """gluon-cv's network, whose blocks are the BottleneckV1b."""

    def convolution(inputs, outputs, size, stride):
        shape = outputs, size, stride, size // 2
        return [nn.Conv2D(*shape, use_bias=False, in_channels=inputs), nn.BatchNorm()]

    def chained(layers):
        chain = nn.HybridSequential()
        chain.add(*layers)
        return chain

    class Residual(nn.HybridBlock):
        def __init__(self, body, shortcut):
            super().__init__()
            self.body, self.shortcut = chained(body), chained(shortcut)

        def hybrid_forward(self, F, x):  # noqa: N803 the name that Gluon calls it by
            return F.Activation(self.body(x) + self.shortcut(x), act_type="relu")

    pool = nn.MaxPool2D(3, 2, 1)
    layers = resnet50.layers(convolution, lambda: nn.Activation("relu"), pool, Residual)
    head = nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(classes, in_units=resnet50.FEATURES)
    return chained([*layers, *head])


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


def without_horovod(step, trainer, gather, wait, size, clock=time.time):
    """The texts of `parts`, once the trainer communicates no more."""
    all_reduce = trainer._allreduce_grads  # where Horovod's trainer differs from MXNet's

    def reduce():
        all_reduce()
        wait()

    trainer._allreduce_grads = lambda: None
    return parts(step, lambda _: wait(), gather, reduce, size, clock=clock)


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
        for text in without_horovod(step, trainer, gather, mx.nd.waitall, size):
            log(text)
    return losses


def main(argv=None):
    arguments = parse_arguments(argv)
    logging.basicConfig(level=logging.INFO)
    import horovod.mxnet as hvd

    leave("mxnet_resnet50", check(train(arguments)), hvd.shutdown)


if __name__ == "__main__":
    main()
