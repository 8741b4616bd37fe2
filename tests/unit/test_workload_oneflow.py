"""The OneFlow program without OneFlow: its options, its lines, its clock and how it starts."""

import argparse
import sys

import pytest
from read_logs import read, together

from dlperf_runner.workloads import oneflow_resnet50 as program


def arguments(*options: str) -> argparse.Namespace:
    return program.parse_arguments(list(options))


def test_each_node_finds_its_rank_among_the_addresses() -> None:
    options = ["--nodes", "2", "--devices", "8", "--node_ips=10.11.0.2,10.11.0.3"]
    found = program.launcher_argv(arguments(*options), options, own="10.11.0.3".__eq__)
    assert found == [
        *(sys.executable, "-m", "oneflow.distributed.launch"),
        *("--nnodes", "2", "--node_rank", "1", "--nproc_per_node", "8"),
        *("--master_addr", "10.11.0.2", "--master_port", "29500"),
        *(program.__file__, "--nodes", "2", "--devices", "8", "--node_ips=10.11.0.2,10.11.0.3"),
    ]


def test_a_node_without_any_of_the_addresses_is_told() -> None:
    options = ["--node_ips=10.11.0.2"]
    with pytest.raises(ValueError, match=r"none of the addresses 10\.11\.0\.2 is this node's"):
        program.launcher_argv(arguments(*options), options, own=lambda _: False)


def test_this_machine_has_its_loopback_and_no_documentation_address() -> None:
    assert program.is_own("127.0.0.1")
    assert not program.is_own("192.0.2.1")


def test_a_line_is_the_reports_to_the_letter() -> None:
    line = program.train_line(20, 6.505637, (0.0, 0.0), 288.088, None)
    assert line == (
        "train: epoch 0, iter 20, loss: 6.505637, top_1: 0.000000, top_k: 0.000000, "
        "samples/s: 288.088"
    )
    timed = program.train_line(20, 6.505637, (0.0, 0.0), 288.088, 1597050000.5)
    assert timed == f"{line} 1597050000.5"


def test_a_line_every_n_iterations_counts_all_devices_and_is_read() -> None:
    started: list[str] = []
    said: list[str] = []
    taken: list[int] = []
    steps = iter(range(1, 6))
    ticks = iter([0.0, 8.0, 8.0, 12.0, 12.0])

    def read_step(step: object) -> tuple[float, float, float]:
        taken.append(int(str(step)))
        return 7.0 - int(str(step)), 0.5, 1.0

    options = arguments(
        *("--iterations", "5", "--log-interval", "2", "--batch-size", "3"),
        *("--nodes", "2", "--devices", "2", "--node_ips=a,b"),
    )
    program.say_start(options, started.append)
    found = program.train(options, lambda: next(steps), read_step, said.append, lambda: next(ticks))
    # the first step, each with a line, and the last
    assert taken == [1, 2, 4, 5]
    assert found == [6.0, 5.0, 3.0, 2.0]
    assert [line.rpartition(" ")[2] for line in said] == ["3.000", "6.000"]
    assert said[1].startswith("train: epoch 0, iter 4, loss: 3.000000, top_1: 0.500000, top_k: 1.0")
    headers, rates = read("oneflow_benchmark", "\n".join([*started, *said]) + "\n")
    assert [(line.step, line.samples_per_second) for line in rates] == [(2, 3.0), (4, 6.0)]
    told = {"batch_size_per_device": 3, "world_size": 4, "log_every": 2}
    assert told.items() <= together(headers).items()
