"""Train ResNet-50 v1.5 in OneFlow on one synthetic batch per device.

The program of this project that stands beside OneFlow-Benchmark's cnns and prints its log lines. It
needs no data set. `samples/s` counts all devices of all nodes, over the iterations since the line
before; the clock is read when the computation of the last of them has finished. The first interval
holds the compilation of the graph too, so its line is dropped, as the published one is.

The same command is started on every node, with all nodes' addresses: each finds its own among them
and starts its processes by `oneflow.distributed.launch`. Only the first process prints.
Runs on OneFlow 0.9.0; the v0.1.8 of the published runs has another interface.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from collections.abc import Callable

import resnet50
from builtin_common import bare_options, check, finish, positive

MOMENTUM, WEIGHT_DECAY = 0.9, 1e-4
TOP_K = 5


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = bare_options(__doc__, lr=0.001)
    parser.add_argument("--batch-size", type=positive, default=128, help="images per device")
    parser.add_argument("--dtype", choices=("float32",), default="float32", help="as published")
    parser.add_argument("--iterations", type=positive, default=200)
    parser.add_argument("--log-interval", type=positive, default=20, help="iterations per line")
    parser.add_argument("--image-size", type=positive, default=224)
    parser.add_argument("--classes", type=positive, default=1000)
    parser.add_argument("--nodes", type=positive, default=1)
    parser.add_argument("--devices", type=positive, default=1, help="processes per node")
    parser.add_argument("--node_ips", default="", help="addresses of the nodes, A,B,...")
    parser.add_argument("--port", type=positive, default=29500, help="of the first node")
    arguments = parser.parse_args(argv)
    arguments.node_ips = arguments.node_ips.split(",") if arguments.node_ips else ["127.0.0.1"]
    if len(arguments.node_ips) != arguments.nodes:
        parser.error(
            f"--node_ips: {arguments.nodes} addresses expected, as --nodes says, "
            f"found {len(arguments.node_ips)}"
        )
    return arguments


def is_own(address: str) -> bool:
    """True if an address is this machine's: only to its own can a socket be bound."""
    try:
        family, kind, _, _, where = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(where)
    except OSError:
        return False
    return True


def launcher_argv(
    arguments: argparse.Namespace,
    options: list[str],
    is_here: Callable[[str], bool] = is_own,
) -> list[str]:
    """The command that starts this program's processes on this node."""
    addresses = arguments.node_ips
    rank = next((n for n, address in enumerate(addresses) if is_here(address)), None)
    if rank is None:
        raise ValueError(f"none of the addresses {', '.join(addresses)} is this node's")
    return [
        *(sys.executable, "-m", "oneflow.distributed.launch"),
        *("--nnodes", str(arguments.nodes), "--node_rank", str(rank)),
        *("--nproc_per_node", str(arguments.devices)),
        *("--master_addr", addresses[0], "--master_port", str(arguments.port)),
        os.path.abspath(__file__),  # noqa: PTH100 (pathlib resolves links, which may lead elsewhere)
        *options,
    ]


def say_start(arguments: argparse.Namespace, say: Callable[[str], None]) -> None:
    """The configuration in the published program's own words; the plan is checked against it."""
    devices, nodes = arguments.devices, arguments.nodes
    say(f"Running resnet50: num_gpu_per_node = {devices}, num_nodes = {nodes}.")
    values = {
        "batch_size_per_device": arguments.batch_size,
        "num_iters": arguments.iterations,
        "loss_print_every_n_iter": arguments.log_interval,
        "image_size": arguments.image_size,
        "num_classes": arguments.classes,
        "learning_rate": arguments.lr,
        "use_fp16": False,
        "model": "resnet50",
    }
    for name, value in values.items():
        say(f"{name} = {value}")


def train_line(iteration: int, loss: float, first: float, among: float, rate: float) -> str:
    return (
        f"train: epoch 0, iter {iteration}, loss: {loss:.6f}, top_1: {first:.6f}, "
        f"top_k: {among:.6f}, samples/s: {rate:.3f}"
    )


def train(
    arguments: argparse.Namespace,
    step: Callable[[], object],
    read: Callable[[object], tuple[float, float, float]],
    say: Callable[[str], None],
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Run all iterations and say their rates. `step` starts a training step; `read` waits for all
    that was started and gives the loss before the update, the share of the samples whose label
    came first, and of those where it was among the first k. Returns the losses that were read."""
    interval = arguments.log_interval
    samples = interval * arguments.batch_size * arguments.devices * arguments.nodes
    losses: list[float] = []
    start = clock()
    for iteration in range(1, arguments.iterations + 1):
        result = step()
        if iteration == 1 or iteration % interval == 0:
            loss, *tops = read(result)
            losses.append(loss)
        if iteration % interval == 0:
            rate = samples / (clock() - start)
            say(train_line(iteration, loss, *tops, rate))
            start = clock()
    if arguments.iterations % interval:
        losses.append(read(result)[0])
    return losses


def make_step(arguments: argparse.Namespace):
    """One training step of all processes, and what waits for it and reads its results."""
    import numpy as np
    import oneflow as flow

    rank, world_size = flow.env.get_rank(), flow.env.get_world_size()
    device = "cpu" if arguments.no_cuda else "cuda"
    everywhere = flow.placement(device, ranks=list(range(world_size)))
    flow.manual_seed(arguments.seed)
    network = resnet50.in_torch(flow.nn, arguments.classes, in_place=False).to(device)
    network = network.to_global(placement=everywhere, sbp=flow.sbp.broadcast)
    optimizer = flow.optim.SGD(
        network.parameters(), lr=arguments.lr, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
    )
    criterion = flow.nn.CrossEntropyLoss()

    generator = np.random.RandomState(arguments.seed + 1 + rank)
    shape = (arguments.batch_size, 3, arguments.image_size, arguments.image_size)
    images = flow.tensor(generator.normal(size=shape).astype("float32"), device=device)
    targets = generator.randint(0, arguments.classes, arguments.batch_size)
    labels = flow.tensor(targets, dtype=flow.int64, device=device)
    images, labels = (
        part.to_global(placement=everywhere, sbp=flow.sbp.split(0)) for part in (images, labels)
    )

    class TrainGraph(flow.nn.Graph):
        """The whole step, compiled at its first call; the mean loss is of the whole world."""

        def __init__(self):
            super().__init__()
            self.network, self.criterion = network, criterion
            self.add_optimizer(optimizer)

        def build(self, images, labels):
            logits = self.network(images)
            loss = self.criterion(logits, labels)
            loss.backward()
            return loss, logits

    graph = TrainGraph()

    def read(result) -> tuple[float, float, float]:
        loss, logits = result
        whole = float(loss.numpy())
        scores = logits.to_local().numpy()
        flow._oneflow_internal.eager.Sync()
        order = (-scores).argsort(axis=1)[:, :TOP_K] == targets[:, None]
        return whole, float(order[:, 0].mean()), float(order.any(axis=1).mean())

    return lambda: graph(images, labels), read


def main(argv: list[str] | None = None) -> None:
    options = sys.argv[1:] if argv is None else argv
    arguments = parse_arguments(options)
    world_size, program = arguments.nodes * arguments.devices, "oneflow_resnet50.py"
    if world_size > 1 and "RANK" not in os.environ:
        try:
            command = launcher_argv(arguments, options)
        except ValueError as error:
            sys.exit(f"{program}: {error}")
        os.execv(command[0], command)  # noqa: S606 (no shell is wanted)

    import oneflow as flow

    if flow.env.get_world_size() != world_size:
        finish(program, f"{world_size} processes expected, found {flow.env.get_world_size()}")
    if not arguments.no_cuda and not flow.cuda.is_available():
        finish(program, "no GPU found; try --no-cuda")
    say = print if flow.env.get_rank() == 0 else str  # the others say nothing
    say_start(arguments, say)
    finish(program, check(train(arguments, *make_step(arguments), say)))


if __name__ == "__main__":
    main()
