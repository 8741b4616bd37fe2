"""The builtin programs that stand beside published ones, without their frameworks: networks, lines,
clocks, and how they start. This project's parsers read what they print."""

import argparse
import re
import sys
from itertools import islice
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from read_logs import confirm, read, together

from dlperf_runner.workloads import builtin_common, make_recordio
from dlperf_runner.workloads import mxnet_arcface as arcface
from dlperf_runner.workloads import mxnet_resnet50 as mxnet
from dlperf_runner.workloads import oneflow_resnet50 as oneflow
from dlperf_runner.workloads import paddle_arcface as plsc
from dlperf_runner.workloads import tensorflow_resnet50 as tensorflow


def parsed(program: ModuleType, *options: str) -> argparse.Namespace:
    return program.parse_arguments(" ".join(options).split())


# ---- ArcFace in MXNet


def test_the_clock_starts_behind_the_first_batch_and_waits_for_the_last() -> None:
    said: list[str] = []
    happened: list[str] = []
    ticks, values = iter([10.0, 14.0, 14.0, 16.0, 16.0]), [9.0, 8.0, 7.0, 6.0, 5.0, 4.0]
    losses = iter(values)

    def step() -> tuple[float, float]:
        happened.append("step")
        return 0.5, next(losses)

    def clock() -> float:
        assert happened[-1] == "wait", "the clock was read before the computation had finished"
        return next(ticks)

    words = "--iterations 5 --frequent 2 --batch-size 3 --devices 2 --parallel data"
    options = parsed(arcface, words)
    arcface.say_start(options, said.append)
    count = len(said)
    wait = lambda: happened.append("wait")  # noqa: E731
    assert arcface.train(options, step, wait, float, said.append, clock) == values
    # 12 images in 4 s, then in 2 s; a loss is the mean of its two batches
    assert said[count:] == [
        "Epoch[0] Batch [0-2]\tSpeed: 3.00 samples/sec\tacc=0.500000\tlossvalue=7.500000",
        "Epoch[0] Batch [2-4]\tSpeed: 6.00 samples/sec\tacc=0.500000\tlossvalue=5.500000",
    ]
    assert happened.count("step") == 6
    stated = {"batch_size_per_device": 3, "world_size": 2, "total_steps": 5, "log_every": 2}
    rates = ((2, 3.0, 7.5), (4, 6.0, 5.5))
    confirm("mxnet_speedometer", "\n".join(said) + "\n", [*rates], **stated)
    # By model parallelism, its lines have no metric.
    lines = [arcface.speed_line("model", step, 2, rate, 0.5, 1.0) for step, rate, _ in rates]
    assert lines[0] == "Iter[0] Batch [2]\tSpeed: 3.00 samples/sec"
    without = [(step, rate, None) for step, rate, _ in rates]
    confirm("mxnet_speedometer", "\n".join([*said[:count], *lines, ""]), without)


# ---- ResNet-50 in MXNet


def test_the_network_is_gluon_cvs_resnet50_v1b() -> None:
    """gluon-cv's resnet50_v1b(classes=1000) at the workload's commit, as MXNet 1.9.1 counts it:
    25,557,032 values that have a gradient. Given its values, this network gives its output."""
    block = type("Block", (), {})
    nn = Mock(HybridBlock=block)
    mxnet.resnet50_v1b(nn, 1000)
    trainable, strides = 2048 * 1000 + 1000, []
    for (channels, kernel, stride, padding), options in nn.Conv2D.call_args_list:
        assert (options["use_bias"], padding) == (False, kernel // 2)
        trainable += channels * (options["in_channels"] * kernel**2 + 2)  # with gamma and beta
        strides += [(channels, kernel, stride)] if stride > 1 else []
    nn.Dense.assert_called_once_with(1000, in_units=2048)
    assert nn.Conv2D.call_count == nn.BatchNorm.call_count == 53
    assert trainable == 25_557_032
    # v1b has its stride in the 3x3 convolution; v1 has it in the first 1x1 one.
    assert strides == [
        (64, 7, 2),
        *((128, 3, 2), (512, 1, 2)),
        *((256, 3, 2), (1024, 1, 2)),
        *((512, 3, 2), (2048, 1, 2)),
    ]


def test_the_lines_are_gluon_cvs_and_are_read() -> None:
    """A step takes 0.25 s, and a report 10 s, of a clock that only they move."""
    losses, done, now, lines = [7.0, 6.0, 5.0, 4.0], [0], [100.0], list[str]()

    def step() -> None:
        done[0] += 1
        now[0] += 0.25

    def report() -> tuple[float, str, float, float]:
        now[0] += 10
        return losses[done[0] - 1], "accuracy", 0.5, 0.002

    def log(message: object, *values: object) -> None:
        lines.append(f"INFO:root:{str(message) % values if values else message}\n")

    arguments = parsed(mxnet, "--iterations 4 --batch-size 4 --log-interval 2")
    log(arguments)
    log("world_size=%d", 2)
    assert mxnet.run(step, report, arguments, 2, log, lambda: now[0]) == [6.0, 4.0]
    assert lines[1:] == [
        "INFO:root:world_size=2\n",
        "INFO:root:Epoch[0] Batch[2] Loss[6.000]\n",
        "INFO:root:Epoch[0] Rank[0] Batch[2]\taccuracy=0.500000\tlr=0.002000\n",
        # Twice 4 samples on each of 2 devices in 0.5 s; reporting takes no part of it.
        "INFO:root:Epoch[0] Batch[2]\tSpeed: 32.000000 samples/sec\n",
        "INFO:root:Epoch[0] Batch[4] Loss[4.000]\n",
        "INFO:root:Epoch[0] Rank[0] Batch[4]\taccuracy=0.500000\tlr=0.002000\n",
        "INFO:root:Epoch[0] Batch[4]\tSpeed: 32.000000 samples/sec\n",
        "INFO:root:Epoch[0] Rank[0] Batch[4]\tTime cost=21.00\tTrain-metric=0.500000\n",
        "INFO:root:Epoch[0]\tSpeed: 1.523810 samples/sec\n",
    ]
    confirm(
        *("gluoncv_horovod", "".join(lines), [(2, 32, 6.0), (4, 32, 4.0)]),
        batch_size_per_device=4, precision="fp32|tf32", total_steps=4, log_every=2, world_size=2,
    )  # fmt: skip


def test_the_recordio_file_is_named_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    found: argparse.Namespace = make_recordio.parse_arguments(["a/b.rec", "--images", "7"])
    assert (found.output, found.images, found.size) == (Path("a/b.rec"), 7, 256)
    with pytest.raises(SystemExit):
        make_recordio.parse_arguments(["a/b.txt"])
    assert "a name that ends with .rec was expected" in capsys.readouterr().err


# ---- ResNet-50 in OneFlow


def test_each_node_finds_its_rank_among_the_addresses() -> None:
    options = ["--nodes", "2", "--devices", "8", "--node_ips=10.11.0.2,10.11.0.3"]
    found = oneflow.launcher_argv(parsed(oneflow, *options), options, is_here="10.11.0.3".__eq__)
    assert found == [
        *(sys.executable, "-m", "oneflow.distributed.launch"),
        *("--nnodes", "2", "--node_rank", "1", "--nproc_per_node", "8"),
        *("--master_addr", "10.11.0.2", "--master_port", "29500"),
        *(oneflow.__file__, *options),
    ]
    with pytest.raises(ValueError, match=r"none of the addresses 10\.11\.0\.2,.* is this node's"):
        oneflow.launcher_argv(parsed(oneflow, *options), options, is_here=lambda _: False)
    # This machine has its loopback, and no address of documentations.
    assert oneflow.is_own("127.0.0.1") and not oneflow.is_own("192.0.2.1")


def test_a_line_every_n_iterations_counts_all_devices_and_is_read() -> None:
    said: list[str] = []
    taken: list[int] = []

    def read_step(step: object) -> tuple[float, float, float]:
        taken.append(int(str(step)))
        return 7.0 - taken[-1], 0.5, 1.0

    words = "--iterations 5 --log-interval 2 --batch-size 3 --nodes 2 --devices 2 --node_ips=a,b"
    options = parsed(oneflow, words)
    oneflow.say_start(options, said.append)
    count = len(said)
    clock = iter([0.0, 8.0, 8.0, 12.0, 12.0]).__next__
    found = oneflow.train(options, iter(range(1, 6)).__next__, read_step, said.append, clock)
    # the first step, each with a line, and the last
    assert taken == [1, 2, 4, 5]
    assert found == [6.0, 5.0, 3.0, 2.0]
    # As the report's program prints it, to the letter.
    iteration = "train: epoch 0, iter {}, loss: {}, top_1: 0.500000, top_k: 1.000000, samples/s: {}"
    assert said[count:] == [
        iteration.format(2, "5.000000", "3.000"),
        iteration.format(4, "3.000000", "6.000"),
    ]
    confirm(
        *("oneflow_benchmark", "\n".join(said) + "\n", [(2, 3.0, 5.0), (4, 6.0, 3.0)]),
        batch_size_per_device=3, world_size=4, log_every=2,
    )  # fmt: skip


# ---- ArcFace in Paddle


def test_every_class_is_in_one_share() -> None:
    assert [plsc.share_of(10, 4, part) for part in range(4)] == [(0, 3), (3, 3), (6, 2), (8, 2)]
    assert plsc.share_of(85742, 1, 0) == (0, 85742)


def test_a_line_is_plscs_to_the_letter(capsys: pytest.CaptureFixture[str]) -> None:
    plsc.make_say(1)("Pass:0 batch:0")  # only the first process says something
    plsc.make_say(0)("Pass:0 batch:0 lr:0.00039063 loss:40.266624 qps:0.99")
    said = capsys.readouterr()
    assert said.out == ""
    # INFO 2026-11-20 13:40:15,997 entry.py:1029] Pass:0 batch:0 lr:0.00039063 ...
    assert re.fullmatch(
        r"INFO \d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \w+\.py:\d+\] "
        r"Pass:0 batch:0 lr:0\.00039063 loss:40\.266624 qps:0\.99\n",
        said.err,
    )


def trained_by_plsc(
    world: int, ticks: list[float], losses: list[float], *options: str
) -> tuple[list[float], list[str]]:
    """The losses, and what the program says; each of its lines begins with Pass."""
    said: list[str] = []
    arguments = parsed(plsc, "--lr 0.000390625 --iterations 2", *options)
    plsc.say_start(arguments, 0, world, said.append)
    step, clock = iter(losses).__next__, iter(ticks).__next__
    return plsc.train(arguments, world, step, said.append, clock), said


def test_a_rate_counts_the_images_of_all_processes_and_is_read() -> None:
    # 4 s, 2 s, 1 s; what is between does not count
    ticks = [0.0, 4.0, 4.5, 5.0, 7.0, 9.0, 10.0, 11.0]
    losses, said = trained_by_plsc(2, ticks, [41.0, 40.0, 39.0], "--batch-size 4")
    assert losses == [41.0, 40.0, 39.0]
    assert [line for line in said if line.startswith("Pass")] == [
        "Pass:0 batch:0 lr:0.00039063 loss:41.000000 qps:2.00",
        "Pass:0 batch:1 lr:0.00039063 loss:40.000000 qps:4.00",
        "Pass:0 batch:2 lr:0.00039063 loss:39.000000 qps:8.00",
    ]
    # As its logger prints them.
    prefix = "INFO 2026-11-21 06:43:56,679 paddle_arcface.py:83] "
    log = "".join(f"{prefix}{line}\n" for line in said)
    rates = [(1, 2.0, 41.0), (2, 4.0, 40.0), (3, 8.0, 39.0)]
    confirm("plsc", log, rates, batch_size_per_device=4, world_size=2, log_every=1)
    assert together(read("plsc", log)[0])["parameters"]["noise"] == "one batch"


def test_a_line_every_n_batches_is_over_n_batches() -> None:
    options = "--batch-size 3 --log-period 2"
    _, said = trained_by_plsc(1, [0.0, 1.0, 1.0, 1.0, 4.0, 4.0], [41.0, 40.0, 39.0], options)
    first, second = (line for line in said if line.startswith("Pass"))
    assert first.startswith("Pass:0 batch:0 ") and second.startswith("Pass:0 batch:2 ")
    assert second.endswith("loss:39.500000 qps:2.00")


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """In place of PLSC's, with which plsc_train trains."""
    made = Mock(num_trainers=1, trainer_id=0)
    monkeypatch.setitem(sys.modules, "plsc", SimpleNamespace(Entry=lambda: made))
    monkeypatch.setitem(sys.modules, "builtin_common", builtin_common)
    monkeypatch.setattr(sys, "path", sys.path[:])
    return made


@pytest.mark.parametrize(
    ("last", "period", "stops"), [("150", "10", 150), ("25", "10", 20), ("25", "1", 25)]
)
def test_upstream_stops_at_a_batch_of_which_it_prints_a_line(
    entry: Mock, capsys: pytest.CaptureFixture[str], last: str, period: str, stops: int
) -> None:
    """The patch stands behind the line, which PLSC prints every `log period` batches. PLSC states
    its other settings."""
    from dlperf_runner.workloads import plsc_train

    options = ["--last-batch", last, "--log-period", period, "--image-size", "1"]
    plsc_train.main([*options, "--noise", "repeated"])
    entry.set_log_period.assert_called_once_with(int(period))
    assert entry.last_batch == stops
    (header,) = read("plsc", capsys.readouterr().out)[0]
    assert header.parameters == (("noise", "repeated"),)


@pytest.mark.parametrize(("options", "different"), [((), 2000), (("--noise", "repeated"), 1024)])
def test_upstream_makes_noise_for_each_sample_as_published_or_repeats_it(
    entry: Mock, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], different: int
) -> None:
    """By default as PaddlePaddle/PLSC/scripts/train.py of Oneflow-Inc/DLPerf a057d7f: normal noise
    in double precision, passed on by eight threads that read 5,000 samples ahead."""
    entry.trainer_id = 3
    handed: list[tuple[int, int]] = []

    def xmap_readers(mapper: Any, reader: Any, threads: int, ahead: int) -> Any:
        handed.append((threads, ahead))
        return lambda: map(mapper, reader())

    fake = SimpleNamespace(reader=SimpleNamespace(xmap_readers=xmap_readers))
    monkeypatch.setitem(sys.modules, "paddle", fake)
    from dlperf_runner.workloads import plsc_train

    plsc_train.main(["--image-size", "2", "--classes", "7", *options])
    samples = list(islice(entry.train_reader(), 2000))
    assert {image.shape for image, _ in samples} == {(3, 2, 2)}
    assert {label for _, label in samples} == set(range(7))
    assert len({image.tobytes() for image, _ in samples}) == different
    values = np.concatenate([image.ravel() for image, _ in samples])
    assert (abs(values.mean()) < 0.05, abs(values.std() - 1) < 0.05) == (True, True)
    if not options:
        assert (values.dtype, handed) == (np.float64, [(8, 5000)])


# ---- ResNet-50 in TensorFlow


def test_every_nth_step_after_the_warmup_has_a_line_and_is_read() -> None:
    said: list[str] = []
    # step 0 takes 1 s, step 1 takes 2 s, ...; 8 images of 2 processes a step
    clock = iter([0.0, 1, 1, 3, 3, 6, 6, 10, 10, 15, 15, 21, 21]).__next__
    words = "--lr 0.1 --iterations 6 --warmup-steps 2 --display-every 2 --batch-size 4"
    options = parsed(tensorflow, words)
    losses = [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
    tensorflow.say_start(options, 2, said.append)
    assert tensorflow.train(options, 2, iter(losses).__next__, said.append, clock) == losses
    # the mean over all measured steps, 2 to 5, and not only over the printed ones
    mean = pytest.approx((8 / 3 + 8 / 4 + 8 / 5 + 8 / 6) / 4)
    confirm(
        *("dllogger", "\n".join(said) + "\n", [(3, 8 / 3, None), (5, 8 / 5, None)]),
        batch_size_per_device=4, world_size=2, precision="fp32|tf32", total_steps=6,
        final_samples_per_second=mean,
    )  # fmt: skip
