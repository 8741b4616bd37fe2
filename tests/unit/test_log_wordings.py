"""Every wording of a line with a rate, wherever the line is torn or the log ends."""

from __future__ import annotations

import contextlib
import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from make_logs import ROOT
from read_logs import TAG, read, steps

from dlperf_runner import logs
from dlperf_runner.logs import LineError

# A line with a rate of each wording, and the step that it is.
WORDINGS = {
    "gluoncv_horovod": [("INFO:root:Epoch[0] Batch[7]\tSpeed: 384.19 samples/sec", (7, 384.19))],
    "mxnet_speedometer": [
        ("INFO:root:Epoch[0] Batch [20-40]\tSpeed: 5.97 samples/sec\tacc=0.0", (40, 5.97)),
        ("INFO:root:Iter[0] Batch [20]\tSpeed: 5.97 samples/sec", (20, 5.97)),
    ],
    "arcface_torch": [
        (
            "Training: 2022-03-01 10:00:20,123-Speed 2271.33 samples/sec   Loss 1.1624   Learning"
            "Rate 0.100000   Epoch: 0   Global Step: 20   Fp16 Grad Scale: 65536   Required: 5"
            " hours",
            (20, 2271.33),
        ),
        (
            "Training: Speed 2271.33 samples/sec   Loss 1.1624   LearningRate 0.2000   Epoch: 0"
            "   Global Step: 20 ",
            (20, 2271.33),
        ),
    ],
    "plsc": [
        (
            "INFO 2026-11-20 13:40:15,997 entry.py:1029] Pass:0 batch:9 lr:0.1 loss:4.5 qps:39.78",
            (10, 39.78),
        )
    ],
    "oneflow_benchmark": [
        ("train: epoch 0, iter 20, loss: 6.5, top_1: 0.0, samples/s: 288.088", (20, 288.088)),
        ("train: epoch 0, iter 20, loss: 6.5, samples/s: 288.088 1597050000.123456", (20, 288.088)),
    ],
    "dllogger": [
        ("DLL 2022-06-14 15:40:21.026182 - (0, 200) total_ips : 9310.31", (201, 9310.31)),
        ("DLL 2022-06-14 15:40:21.026182 - (0, 200) total_ips : 9310.31 images/s", (201, 9310.31)),
    ],
    "dllogger_pytorch": [
        (
            "DLL 2022-06-14 15:40:21.026182 - Epoch: 0 Iteration: 20  train.loss : 7.03125  train."
            "compute_ips : 2500.12 img/s train.total_ips : 2480.33 img/s train.lr : 0.05120 ",
            (20, 2480.33),
        ),
        (
            'DLLL {"timestamp": "1655221221.026182", "elapsedtime": "12.5", "type": "LOG",'
            ' "step": [0, 20], "data": {"train.loss": 7.03125,'
            ' "train.compute_ips": 2500.125, "train.total_ips": 2480.3298, "train.lr": 0.0512}}',
            (20, 2480.3298),
        ),
    ],
    "maxtext": [
        (
            "completed step: 19, seconds: 5.668, TFLOP/s/device: 134.909, Tokens/s/device: 8671.79"
            "4, total_weights: 196608, loss: 10.879",
            (20, 8671.794),
        ),
        (
            "I0101 12:00:00.1 metric_logger.py:1] completed step: 19, seconds: 5.668, live slice "
            "count: 2, TFLOP/s/device: 134.909, Tokens/s/device: 8671.794, total_weights: 196608.0,"
            " loss: 10.879, lm_loss: 0.000",
            (20, 8671.794),
        ),
    ],
    "megatron": [
        (
            " [2026-04-27 00:00:02.123456] iteration       20/     100 | consumed samples:     320"
            " | elapsed time per iteration (ms): 200.0 | learning rate: 1.000000E-04 |"
            " global batch size:    16 | lm loss: 2.000000E+00 | loss scale: 1.0 |",
            (20, 5.0),
        ),
        (
            "[default0]: iteration 20/100 | elapsed time per iteration (ms): 200.0 | throughput per"
            " GPU (TFLOP/s/GPU): 400.1 | global batch size: 16 | loss scale: 1.0 |",
            (20, 5.0),
        ),
    ],
    "torchtitan": [
        (
            "[titan] 2025-12-01 12:00:07,123 - root - INFO - step: 20  loss:  8.1234  grad_norm:"
            "  1.2345  memory:  0.50GiB(1.20%)  tps: 6,835  tflops: 12.30  mfu: 1.20%",
            (20, 6835),
        ),
        ("step:  2  loss:  8.1234  memory:  0.50GiB(1.20%)  tps: 35  mfu: 1.20%", (2, 35)),
        (
            "\x1b[31mstep: 20  \x1b[32mloss:  8.12345  \x1b[38;2;180;60;0mgrad_norm:  1.2345  "
            "\x1b[36mmemory: 40.50GiB(51.20%)  \x1b[34mtps: 1,006,835  \x1b[36mtflops: 1,012.30  "
            "\x1b[35mmfu: N/A\x1b[39m",
            (20, 1006835),
        ),
    ],
}
EVERY_WORDING = [
    (log_format, *wording) for log_format, lines in WORDINGS.items() for wording in lines
]


def test_every_format_has_its_wordings_and_is_documented() -> None:
    tables = {name for name, form in logs.formats().items() if form.table}
    assert set(WORDINGS) == set(logs.formats()) - tables
    page = (ROOT / "docs" / "log-formats.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(logs.formats())


@pytest.mark.parametrize("wording", EVERY_WORDING)
def test_a_rate_of_one_gpu_is_none_of_all(wording: tuple[str, str, tuple[int, float]]) -> None:
    """As a changed program may print it: the rate would be too low by the number of GPUs."""
    log_format, line, _ = wording
    changed = re.sub(r"( (?:samples|images|img)/s(?:ec)?)(?!\w)(?!:)", r"\1/gpu", line)
    with contextlib.suppress(LineError):
        assert changed == line or steps(log_format, changed + "\n") == []


@given(st.sampled_from(EVERY_WORDING), st.integers(0, 200), st.sampled_from(["\n", "\r\n"]))
def test_tag_of_mpirun_at_any_place_of_any_wording(
    wording: tuple[str, str, tuple[int, float]], at: int, end: str
) -> None:
    log_format, line, step = wording
    at = min(at, len(line))
    content = f"{TAG}noise{end}{line[:at]}{TAG}{line[at:]}{end}"
    marker = logs.formats()[log_format].marker.decode()
    split = line.index(marker) < at < line.index(marker) + len(marker)
    # A line whose marker is torn apart is not found: then its step is missing, which is told.
    assert steps(log_format, content) == ([] if split else [step])


@pytest.mark.parametrize("wording", EVERY_WORDING)
def test_a_log_that_ends_anywhere_in_a_line_has_the_whole_rate_or_none(
    wording: tuple[str, str, tuple[int, float]],
) -> None:
    log_format, line, step = wording
    for at in range(len(line) + 1):
        with contextlib.suppress(LineError):
            assert steps(log_format, line[:at]) in ([], [step])
    assert steps(log_format, line + "\n") == [step]


def test_a_log_that_ends_in_the_middle_of_a_rate_says_so() -> None:
    with pytest.raises(LineError, match=r"line 1: the log ends in the middle of this line .* '93'"):
        steps("dllogger", "DLL 2022-06-14 15:40:21.026182 - (0, 200) total_ips : 93")


@given(st.sampled_from(EVERY_WORDING), st.sampled_from(EVERY_WORDING), st.integers(1, 60))
def test_two_ranks_write_unbuffered_into_one_line(
    first: tuple[str, str, tuple[int, float]], other: tuple[str, str, tuple[int, float]], size: int
) -> None:
    """The first rank prints a rate, the other anything; their pieces alternate."""
    log_format, line, step = first
    noise = other[1].replace("0] Batch", "7] Batch").replace("Pass:0", "Pass:7")
    noise = noise.replace("epoch 0", "epoch 7").replace("ips", "total")
    noise = noise.replace(" step: ", " validate step: ").replace("elapsed", "passed")
    pieces = [line[n : n + size] for n in range(0, len(line), size)]
    others = [noise[n : n + size] for n in range(0, len(noise), size)]
    content = "".join(
        f"[1,{rank}]<stdout>:{piece}"
        for pair in itertools.zip_longest(pieces, others, fillvalue="")
        for rank, piece in enumerate(pair)
    )
    if logs.formats()[log_format].marker.decode() in content:
        assert [(one.step, one.samples_per_second) for one in read(log_format, content)[1]] == [
            step
        ]
