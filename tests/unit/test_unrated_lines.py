"""Lines of programs whose logs have no rate: the message names the line and what to do."""

from pathlib import Path

import pytest
from make_logs import write
from other_logs import load, only

BAR = "      0/99     4.25G   0.04581   0.06952   0.01808        47       640: 100%|████| 8/8 00:03"


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("{'loss': 2.2, 'learning_rate': 4e-05, 'epoch': 0.2}", "let the run end"),
        ("{'loss': 2.2, 'epoch': 0.2, 'num_input_tokens_seen': 204800}", "let the run end"),
        ("{'loss': 2.2, 'epoch': 0.2, 'step_tokens_per_second': 18801.85}", "with the bar"),
        (
            '{"current_steps": 10, "total_steps": 500, "loss": 2.2, "remaining_time": "0:02:04"}',
            "set include_num_input_tokens_seen: true",
        ),
        ('    "train_samples_per_second": 113.4,', "if the run was not resumed"),
        ("  train_samples_per_second =      113.4", "if the run was not resumed"),
        (
            "Step Time : 2.47s GPU utilization: 244.3MODEL_TFLOP/s/GPU",
            "give the output of all ranks",
        ),
        (BAR, "set TQDM_BAR_FORMAT"),
        (
            "Progress on:train 120it/10.0kit rate:1.2it/s remaining:2:17:13 elapsed:01:40",
            "let Levanter's json_logger print them",
        ),
        ("# OSU MPI-CUDA Allreduce Latency Test v7.3", "run all_reduce_perf of nccl-tests"),
        ("     Loss:11.071, Step time: 0.912s, TFLOPS: ", "run it with COLUMNS=250"),
        ("     Step time: 0.912s, TFLOPS: 26.345, FWD time:   ", "run it with COLUMNS=250"),
    ],
)
def test_a_line_without_a_rate_says_what_to_do(tmp_path: Path, line: str, hint: str) -> None:
    log = write(tmp_path / "train.log", ["starting", line, line])
    error = only(load(log))
    assert error.where == f"{log}:2" and str(error.hint).startswith(hint)


def test_tokens_per_second_of_all_steps_so_far_are_no_rates_of_steps(tmp_path: Path) -> None:
    line = "{{'loss': 2.2, 'num_input_tokens_seen': {}, 'train_tokens_per_second': {}.1}}".format
    log = write(tmp_path / "train.log", [line(1000 * n, 80 - n) for n in range(1, 9)])
    assert "of all steps so far" in only(load(log)).problem
