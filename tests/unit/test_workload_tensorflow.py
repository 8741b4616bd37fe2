"""The TensorFlow program without TensorFlow: its options, its lines and its clock."""

import argparse
from datetime import datetime

import pytest
from read_logs import read, together

from dlperf_runner.workloads import tensorflow_resnet50 as program


def arguments(*options: str) -> argparse.Namespace:
    return program.parse_arguments(["--lr", "0.1", *options])


def test_a_line_is_dlloggers_to_the_letter() -> None:
    now = datetime(2026, 11, 20, 14, 2, 53, 644242)
    line = program.dll_line(now, "(0, 2)", {"total_ips": 3.192439778844046})
    assert line == "DLL 2026-11-20 14:02:53.644242 - (0, 2) total_ips : 3.192439778844046 "


def test_every_nth_step_after_the_warmup_has_a_line_and_is_read() -> None:
    said: list[str] = []
    # step 0 takes 1 s, step 1 takes 2 s, ...; 8 images of 2 processes a step
    ticks = iter([0, 1, 1, 3, 3, 6, 6, 10, 10, 15, 15, 21])
    options = arguments(
        *("--iterations", "6", "--warmup-steps", "2", "--display-every", "2", "--batch-size", "4")
    )
    losses = iter([6.0, 5.0, 4.0, 3.0, 2.0, 1.0])
    program.say_start(options, 2, said.append)
    found = program.train(options, 2, lambda: next(losses), said.append, lambda: float(next(ticks)))
    assert found == [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
    headers, steps = read("dllogger", "\n".join(said) + "\n")
    assert [(step.step, step.samples_per_second) for step in steps] == [(3, 8 / 3), (5, 8 / 5)]
    # the mean over all measured steps, 2 to 5, and not only over the printed ones
    mean = pytest.approx((8 / 3 + 8 / 4 + 8 / 5 + 8 / 6) / 4)
    stated = {"batch_size_per_device": 4, "world_size": 2, "precision": "fp32|tf32"}
    stated |= {"total_steps": 6, "final_samples_per_second": mean}
    told = together(headers)
    assert {name: told[name] for name in stated} == stated
