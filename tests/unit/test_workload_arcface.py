"""The MXNet ArcFace program without MXNet: its options, its lines and its clock."""

import argparse

from read_logs import read, together

from dlperf_runner.workloads import mxnet_arcface as program


def arguments(*options: str) -> argparse.Namespace:
    return program.parse_arguments(list(options))


def test_the_clock_starts_behind_the_first_batch_and_waits_for_the_last() -> None:
    said: list[str] = []
    happened: list[str] = []
    ticks = iter([10.0, 14.0, 14.0, 16.0, 16.0])
    losses = iter([9.0, 8.0, 7.0, 6.0, 5.0, 4.0])

    def step() -> tuple[float, float]:
        happened.append("step")
        return 0.5, next(losses)

    def clock() -> float:
        assert happened[-1] == "wait", "the clock was read before the computation had finished"
        return next(ticks)

    options = arguments(
        *("--iterations", "5", "--frequent", "2", "--batch-size", "3", "--devices", "2"),
        *("--parallel", "data"),
    )
    program.say_start(options, said.append)
    count = len(said)
    found = program.train(options, step, lambda: happened.append("wait"), float, said.append, clock)
    assert found == [9.0, 8.0, 7.0, 6.0, 5.0, 4.0]
    # 12 images in 4 s, then in 2 s; a loss is the mean of its two batches
    assert said[count:] == [
        "Epoch[0] Batch [0-2]\tSpeed: 3.00 samples/sec\tacc=0.500000\tlossvalue=7.500000",
        "Epoch[0] Batch [2-4]\tSpeed: 6.00 samples/sec\tacc=0.500000\tlossvalue=5.500000",
    ]
    assert happened.count("step") == 6
    headers, steps = read("mxnet_speedometer", "\n".join(said) + "\n")
    assert [(step.step, step.samples_per_second) for step in steps] == [(2, 3.0), (4, 6.0)]
    # By model parallelism, its lines have no metric.
    rates = ((2, 3.0), (4, 6.0))
    lines = [program.speed_line("model", step, 2, rate, 0.5, 1.0) for step, rate in rates]
    assert lines[0] == "Iter[0] Batch [2]\tSpeed: 3.00 samples/sec"
    _, steps = read("mxnet_speedometer", "\n".join([*said[:count], *lines, ""]))
    assert [(step.step, step.samples_per_second) for step in steps] == [*rates]
    told = {"batch_size_per_device": 3, "world_size": 2, "total_steps": 5, "log_every": 2}
    assert told.items() <= together(headers).items()
