"""The Paddle program without Paddle: its options, its lines and its clock."""

import argparse
import re
import sys
from itertools import islice
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from read_logs import read, together

from dlperf_runner.workloads import builtin_common
from dlperf_runner.workloads import paddle_arcface as program


def arguments(*options: str) -> argparse.Namespace:
    return program.parse_arguments(["--lr", "0.000390625", *options])


def test_every_class_is_in_one_share() -> None:
    assert [program.share_of(10, 4, part) for part in range(4)] == [(0, 3), (3, 3), (6, 2), (8, 2)]
    assert program.share_of(85742, 1, 0) == (0, 85742)


def test_a_line_is_plscs_to_the_letter(capsys: pytest.CaptureFixture[str]) -> None:
    program.make_say(1)("Pass:0 batch:0")  # only the first process says something
    program.make_say(0)("Pass:0 batch:0 lr:0.00039063 loss:40.266624 qps:0.99")
    said = capsys.readouterr()
    assert said.out == ""
    # INFO 2026-11-20 13:40:15,997 entry.py:1029] Pass:0 batch:0 lr:0.00039063 ...
    assert re.fullmatch(
        r"INFO \d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \w+\.py:\d+\] "
        r"Pass:0 batch:0 lr:0\.00039063 loss:40\.266624 qps:0\.99\n",
        said.err,
    )


def test_a_rate_counts_the_images_of_all_processes_and_is_read() -> None:
    said: list[str] = []
    ticks = iter([0.0, 4.0, 5.0, 7.0, 9.0, 10.0])  # 4 s, 2 s, 1 s; what is between does not count
    losses = iter([41.0, 40.0, 39.0])
    options = arguments("--iterations", "2", "--batch-size", "4")
    program.say_start(options, 0, 2, said.append)
    count = len(said)
    found = program.train(options, 2, lambda: next(losses), said.append, lambda: next(ticks))
    assert found == [41.0, 40.0, 39.0]
    assert said[count:] == [
        "Pass:0 batch:0 lr:0.00039063 loss:41.000000 qps:2.00",
        "Pass:0 batch:1 lr:0.00039063 loss:40.000000 qps:4.00",
        "Pass:0 batch:2 lr:0.00039063 loss:39.000000 qps:8.00",
    ]
    # As its logger prints them.
    prefix = "INFO 2026-11-21 06:43:56,679 paddle_arcface.py:83] "
    headers, steps = read("plsc", "".join(f"{prefix}{line}\n" for line in said))
    assert [(s.step, s.samples_per_second) for s in steps] == [(1, 2.0), (2, 4.0), (3, 8.0)]
    told = together(headers)
    assert {"batch_size_per_device": 4, "world_size": 2, "log_every": 1}.items() <= told.items()
    assert told["parameters"]["noise"] == "one batch"


def test_a_line_every_n_batches_is_over_n_batches() -> None:
    said: list[str] = []
    ticks = iter([0.0, 1.0, 1.0, 2.0, 2.0, 4.0])
    losses = iter([41.0, 40.0, 39.0])
    options = arguments("--iterations", "2", "--batch-size", "3", "--log-period", "2")
    program.train(options, 1, lambda: next(losses), said.append, lambda: next(ticks))
    assert [line.split(" lr:")[0] for line in said] == ["Pass:0 batch:0", "Pass:0 batch:2"]
    assert said[1].endswith("loss:39.500000 qps:2.00")


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
