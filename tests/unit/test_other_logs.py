"""Logs of others: which files are logs, and how their names say what ran."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from command_line import call
from make_logs import gluoncv, oneflow, write
from other_logs import GOOD, cases, load, only, speedometer
from peak_memory import peak_of

from dlperf_runner.core import files


@pytest.mark.parametrize("topology", [(1, 1), (1, 4), (4, 8)])
def test_the_log_of_the_oneflow_report_says_what_ran_itself(
    tmp_path: Path, topology: tuple[int, int]
) -> None:
    """Its script calls every log oneflow.log; the program prints its arguments before it trains."""
    nodes, devices = topology
    arguments = [
        f"Running resnet50: num_gpu_per_node = {devices}, num_nodes = {nodes}.",
        *("dtype = float32", "model = resnet50", "use_fp16 = None", "num_epochs = 1"),
        *("batch_size_per_device = 160", "val_batch_size_per_device = 125"),
        *("image_size = 224", "train_data_dir = /path/to/ofrecord/train"),
        "loss_print_every_n_iter = 20",
    ]
    write(tmp_path / "oneflow_temp/oneflow.log", [*arguments, *oneflow(382.324)])
    assert cases(load(tmp_path)) == [
        ("oneflow-resnet50v1.5", "fp32", 160, f"{nodes}n{devices}g", 1)
    ]


def test_what_neither_name_nor_log_says_follows_from_the_program(tmp_path: Path) -> None:
    write(tmp_path / "arcface_y1_b2_train_cpu.log", speedometer("y1"))
    assert cases(load(tmp_path)) == [("mxnet-arcface", "fp32", 2, "1n1g", 1)]


@pytest.mark.parametrize(
    "name",
    ["rn50_b128_fp32_1n1g" + end for end in ("", ".out", ".TXT", ".Log", ".err", ".log.gz", ".gz")]
    + ["resnet50v1b_b128_fp32_1n1g"],
)
@pytest.mark.parametrize("is_given", [True, False])
def test_extensions(tmp_path: Path, name: str, is_given: bool) -> None:
    path = write(tmp_path / "logs" / name, GOOD)
    plain = load(path).frame
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    results = load(path if is_given else path.parent)
    assert cases(results) == [("mxnet-resnet50v1b", "fp32", 128, "1n1g", 1)]
    assert results.frame.equals(plain)  # the digest is that of the expanded log, too


def test_what_is_skipped_is_listed_with_the_reason(here: Path) -> None:
    write(here / "logs" / "1n1g" / "rn50_b128_fp32_1.log", GOOD)
    for end in (".node2", "~"):
        write(here / "logs" / "1n1g" / f"rn50_b128_fp32_1.log{end}", GOOD)
    for name in ("run.py", "LICENSE", "setup.log", ".hidden.log"):
        write(here / "logs" / name, ["nothing here"])
    document = json.loads(call("summarize", "logs", "--json").out)
    assert document["skipped"] == {
        "logs/1n1g/rn50_b128_fp32_1.log.node2": "not the name of a log",
        "logs/1n1g/rn50_b128_fp32_1.log~": "not the name of a log",
        "logs/run.py": "not the name of a log",
        "logs/LICENSE": "no line has a known format",
        "logs/setup.log": "no line has a known format",
    }
    text = call("summarize", "logs").text
    names = "1n1g/rn50_b128_fp32_1.log.node2, 1n1g/rn50_b128_fp32_1.log~, run.py"
    assert f"not read (not the name of a log): {names}" in text
    assert "not read (no line has a known format): LICENSE, setup.log" in text


def test_files_and_directories_together_and_none_twice(tmp_path: Path) -> None:
    one = write(tmp_path / "a" / "4n8g" / "rn50_b128_fp32_1.log", GOOD)
    two = write(tmp_path / "b" / "rn50_b128_fp32_2n8g_1.out", gluoncv(51.0))
    write(tmp_path / "b" / "rn50_b128_fp32_1n8g_1.out", gluoncv(52.0))
    assert [str(run.topology) for run in load(one, two).counted] == ["4n8g", "2n8g"]
    assert len(load(one, tmp_path / "b", two, one.parent).counted) == 3
    # A file that is named is read, whatever its name.
    other = write(tmp_path / "c" / "output.data", GOOD)
    assert load(other, model="rn50", topology="1n2g", precision="fp32").counted
    assert "no line has a known format" in only(load(write(tmp_path / "x.py", ["x"]))).problem


def test_a_bomb_is_refused_in_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rn50_b128_fp32_1n1g.log.gz"
    with gzip.open(path, "wb") as file:
        file.write("\n".join(GOOD).encode() + b"\n")
        for _ in range(300):
            file.write(bytes(2**20))
    program = """
import sys
from pathlib import Path
from dlperf_runner.results.load import load_results
print(*load_results(Path(sys.argv[1])).problems)
"""
    message, peak = peak_of(program, path)
    assert "the compressed file is suspiciously large" in message
    assert peak < 300  # MB, of which most is pandas
    # Far fewer bytes are as many as the file may have.
    monkeypatch.setattr(files, "ALWAYS_EXPANDED", 1000)
    path.write_bytes(gzip.compress("\n".join(GOOD).encode() + b"x" * 5_000_000))
    assert "suspiciously large" in only(load(path)).problem


@pytest.mark.parametrize("cut", [5, 100, -1])
def test_a_damaged_compressed_log_is_told(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "rn50_b128_fp32_1n1g.log.gz"
    path.write_bytes(gzip.compress("\n".join(GOOD).encode())[:cut])
    assert only(load(path)).problem == "the compressed log is damaged"
