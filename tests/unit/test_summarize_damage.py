"""Damaged, contradicting and very large logs: each is told, and nothing else is lost."""

import os
import resource
from pathlib import Path
from typing import BinaryIO

import pytest
from make_logs import RESNET, gluoncv, known_model, write
from peak_memory import peak_of
from summaries import log_of, problem, summarize

from dlperf_runner.commands.summarize import summarize as summarize_directory
from dlperf_runner.core.errors import UserError

GOOD = gluoncv(50.0)


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("bz64/1n1g/rn50_b128_fp32_1.log", GOOD, "contradicts the directory bz64"),
        ("bz128/1n1g/rn50_b0_fp32_1.log", GOOD, "the batch size must be at least 1"),
        ("bz128/rn50_b128_fp32_1.log", GOOD, "cannot determine the number of nodes"),
        ("bz128/0n8g/rn50_b128_fp32_1.log", GOOD, "cannot determine the number of nodes"),
        ("bz128/1n1g/train.log", GOOD, "the file name does not identify the run"),
        ("2n8g/rn50_b128_fp32_4n8g_1.log", GOOD, "topology in the file name contradicts"),
    ],
)
def test_name_that_contradicts_or_says_too_little(
    tmp_path: Path, name: str, lines: list[str], message: str
) -> None:
    write(tmp_path / name, lines)
    error = problem(summarize(tmp_path))
    assert message in error.problem
    assert error.where == str(tmp_path / name)


def test_short_name_that_two_workloads_have(tmp_path: Path) -> None:
    other = known_model("mxnet-other", "other", "rn50", "gluoncv_horovod", RESNET.workload.rule)
    write(log_of(tmp_path), GOOD)
    error = problem(summarize_directory(tmp_path, tmp_path, [RESNET, other]))
    assert "several workloads" in error.problem
    assert error.expected == "one of rn50 (mxnet-resnet50v1b), rn50 (mxnet-other)"


@pytest.mark.parametrize("what", ["missing", "empty", "no logs"])
def test_nothing_to_summarise(tmp_path: Path, what: str) -> None:
    directory = tmp_path / what
    if what != "missing":
        directory.mkdir()
    if what == "no logs":
        (directory / "notes.txt").write_text("no log\n")
    with pytest.raises(UserError) as caught:
        summarize(directory)
    assert caught.value.where == str(directory)


def test_no_half_written_file_is_left(tmp_path: Path) -> None:
    write(log_of(tmp_path), GOOD)
    (tmp_path / "summary.json").mkdir()  # cannot be replaced by a file
    assert summarize(tmp_path).unwritten
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


NOISE = "node1:1:1 [0] NCCL INFO Channel 00 : 0 -> 1 via P2P/IPC or so\n" * 1600


def gap(file: BinaryIO, kind: str) -> None:
    """What stands between the lines of a large log."""
    if kind == "one line of 64 MB":
        file.seek(2**26, os.SEEK_CUR)  # a hole, which reads as zeros and takes no space
        file.write(b"\n")
    elif kind == "a progress bar":
        file.write(b"\r".join(b"%d%% done" % n for n in range(10**6)) * 2 + b"\n")
    else:
        tag = "[1,0]<stdout>:" if kind == "lines with tags" else ""
        piece = NOISE.replace("node1", f"{tag}node1").encode()
        for _ in range(200):
            file.write(piece)


@pytest.fixture(scope="module")
def peak_of_small_log(tmp_path_factory: pytest.TempPathFactory) -> float:
    return peak_of_reading(write(log_of(tmp_path_factory.mktemp("small")), GOOD), problems=0)


@pytest.mark.parametrize(
    "kind", ["one line of 64 MB", "a progress bar", "lines", "lines with tags"]
)
def test_large_log_in_little_memory(tmp_path: Path, peak_of_small_log: float, kind: str) -> None:
    """A log of 20 to 64 MB needs no more memory than a small one."""
    big = log_of(tmp_path / "big")
    big.parent.mkdir(parents=True)
    with big.open("wb") as file:
        file.write(("\n".join(GOOD[:5]) + "\n").encode())
        gap(file, kind)
        file.write(("\n".join(GOOD[5:]) + "\n").encode())
    allowed = 12 * resource.getpagesize() / 4096
    assert peak_of_reading(big, problems=0) < peak_of_small_log + allowed


def test_log_of_endless_steps_is_refused_in_little_memory(
    tmp_path: Path, peak_of_small_log: float
) -> None:
    """After the last step of the plan, no more than a piece of the log is read."""
    lines = "".join(f"INFO:root:Epoch[0] Batch[{n}]\tSpeed: 5.0 samples/sec\n" for n in range(9999))
    path = log_of(tmp_path)
    path.parent.mkdir(parents=True)
    with path.open("w") as file:
        file.write("\n".join(GOOD) + "\n")
        for _ in range(100):
            file.write(lines)
    assert peak_of_reading(path, problems=1) < peak_of_small_log + 40


def peak_of_reading(log: Path, problems: int) -> float:
    """The memory that it takes to read a directory of logs, in MB."""
    program = """
import sys
from pathlib import Path
from dlperf_runner.results.load import load_results
print(len(load_results(Path(sys.argv[1])).problems))
"""
    printed, peak = peak_of(program, log.parent)
    assert printed == str(problems)
    return peak
