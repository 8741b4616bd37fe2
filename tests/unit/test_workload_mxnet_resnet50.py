"""The MXNet program without MXNet: its options, its network, its lines and its clock."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from read_logs import read

from dlperf_runner.workloads import make_recordio
from dlperf_runner.workloads import mxnet_resnet50 as program

# ---- the network, of layers that only count


class Layers:
    """Stands for mxnet.gluon.nn: what is made of it is kept as parameters and convolutions."""

    def __init__(self) -> None:
        self.trainable = 0
        self.convolutions: list[tuple[int, int, int]] = []
        self._channels = 0
        made = self

        class Block:
            def __init__(self, prefix: str | None = None) -> None:
                self.prefix = prefix

            def add(self, *layers: object) -> None:
                assert None not in layers

            @contextmanager
            def name_scope(self) -> Iterator[None]:
                yield

        def convolution(
            channels: int,
            kernel: int,
            stride: int = 1,
            padding: int = 0,
            *,
            use_bias: bool,
            in_channels: int,
        ) -> str:
            assert (use_bias, padding) == (False, kernel // 2)
            made.trainable += channels * in_channels * kernel**2
            made.convolutions.append((channels, kernel, stride))
            made._channels = channels
            return "convolution"

        def batch_norm() -> str:
            made.trainable += 2 * made._channels  # gamma and beta
            return "normalisation"

        def dense(units: int, in_units: int) -> str:
            made.trainable += units * in_units + units
            return "dense"

        def other(*_: object) -> str:
            return "no parameters"

        self.HybridBlock = self.HybridSequential = Block
        self.Conv2D, self.BatchNorm, self.Dense = convolution, batch_norm, dense
        self.Activation = self.MaxPool2D = self.GlobalAvgPool2D = self.Flatten = other


def test_the_network_is_gluon_cvs_resnet50_v1b() -> None:
    """gluon-cv's resnet50_v1b(classes=1000) at the workload's commit, as MXNet 1.9.1 counts it:
    25,557,032 values that have a gradient. Given its values, this network gives its output."""
    layers = Layers()
    program.resnet50_v1b(layers, 1000)
    assert layers.trainable == 25_557_032
    assert len(layers.convolutions) == 53
    # v1b has its stride in the 3x3 convolution; v1 has it in the first 1x1 one.
    assert [c for c in layers.convolutions if c[2] == 2] == [
        (64, 7, 2),
        *((128, 3, 2), (512, 1, 2)),
        *((256, 3, 2), (1024, 1, 2)),
        *((512, 3, 2), (2048, 1, 2)),
    ]


# ---- the lines


class Training:
    """A step takes 0.25 s, and a report 10 s, of a clock that only they move."""

    def __init__(self, losses: list[float]) -> None:
        self.now, self.steps, self.losses = 100.0, 0, losses
        self.lines: list[str] = []

    def step(self) -> None:
        self.steps += 1
        self.now += 0.25

    def report(self) -> tuple[float, str, float, float]:
        self.now += 10
        return self.losses[self.steps - 1], "accuracy", 0.5, 0.002

    def log(self, message: object, *values: object) -> None:
        self.lines.append(f"INFO:root:{str(message) % values if values else message}\n")

    def run(self, world_size: int, *options: str) -> list[float]:
        arguments = program.parse_arguments(["--iterations", str(len(self.losses)), *options])
        self.log(arguments)
        self.log("world_size=%d", world_size)
        clock: Callable[[], float] = lambda: self.now  # noqa: E731
        return program.run(self.step, self.report, arguments, world_size, self.log, clock)


def test_the_lines_are_gluon_cvs() -> None:
    training = Training([6.5, 3.25])
    assert training.run(4, "--batch-size", "8") == [6.5, 3.25]
    assert training.lines[1:] == [
        "INFO:root:world_size=4\n",
        "INFO:root:Epoch[0] Batch[1] Loss[6.500]\n",
        "INFO:root:Epoch[0] Rank[0] Batch[1]\taccuracy=0.500000\tlr=0.002000\n",
        # 8 samples on each of 4 devices in 0.25 s; reporting takes no part of it.
        "INFO:root:Epoch[0] Batch[1]\tSpeed: 128.000000 samples/sec\n",
        "INFO:root:Epoch[0] Batch[2] Loss[3.250]\n",
        "INFO:root:Epoch[0] Rank[0] Batch[2]\taccuracy=0.500000\tlr=0.002000\n",
        "INFO:root:Epoch[0] Batch[2]\tSpeed: 128.000000 samples/sec\n",
        "INFO:root:Epoch[0] Rank[0] Batch[2]\tTime cost=20.50\tTrain-metric=0.500000\n",
        "INFO:root:Epoch[0]\tSpeed: 3.121951 samples/sec\n",
    ]


def test_this_projects_reader_reads_them() -> None:
    training = Training([7.0, 6.0, 5.0, 4.0])
    training.run(2, "--batch-size", "4", "--log-interval", "2")
    headers, steps = read("gluoncv_horovod", "".join(training.lines))
    assert [(s.step, s.samples_per_second, s.loss) for s in steps] == [(2, 32, 6.0), (4, 32, 4.0)]
    assert (headers[0].batch_size_per_device, headers[0].precision) == (4, "fp32|tf32")
    assert (headers[0].total_steps, headers[0].log_every) == (4, 2)
    assert headers[1].world_size == 2


# ---- the data that upstream reads


def test_the_recordio_file_is_named_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    found: argparse.Namespace = make_recordio.parse_arguments(["a/b.rec", "--images", "7"])
    assert (found.output, found.images, found.size) == (Path("a/b.rec"), 7, 256)
    with pytest.raises(SystemExit):
        make_recordio.parse_arguments(["a/b.txt"])
    assert "a name that ends with .rec was expected" in capsys.readouterr().err
