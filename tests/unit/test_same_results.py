"""Recordings of what commands print and write, and their comparison."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from make_logs import ROOT, gluoncv, write

PROGRAM = ROOT / "tests/support/same_results.py"


def called(*arguments: object, status: int = 0) -> str:
    argv = [sys.executable, str(PROGRAM), *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def record(folder: Path, inputs: Path) -> Path:
    """The case of summarize: its tables, its files and its history."""
    called("record", folder, "--inputs", inputs, "--only", "logs/mxnet/summarize")
    return folder


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("same") / "inputs"
    for devices, rate in ((1, 384.25), (8, 2556.0)):
        log = gluoncv(rate, world=devices)
        path = write(folder / f"logs/mxnet/1n{devices}g/rn50_b128_fp32_1.log", log)
        os.utime(path, (1_770_000_000, 1_770_000_000))  # long before any recording
    return folder


@pytest.fixture(scope="module")
def before(inputs: Path) -> Path:
    return record(inputs.parent / "before", inputs)


def test_two_recordings_are_equal(before: Path, inputs: Path, tmp_path: Path) -> None:
    after = record(tmp_path / "after", inputs)
    files = {path.relative_to(after).as_posix() for path in after.rglob("*") if path.is_file()}
    case = "logs/mxnet/summarize"
    assert {f"{case}/1-summarize.txt", f"{case}/files/h.sqlite"} <= files
    assert "384.25" in (after / case / "1-summarize.txt").read_text()
    text = "".join((after / name).read_text() for name in files)
    assert not re.search(re.escape(str(ROOT)) + "|/same-", text)
    assert called("compare", before, after) == f"{len(files)} outputs are equal\n"


def test_changed_and_missing_outputs_are_named(before: Path, tmp_path: Path) -> None:
    after = Path(shutil.copytree(before, tmp_path / "after"))
    case = after / "logs/mxnet/summarize"
    changed, missing = case / "1-summarize.txt", case / "files/out/summary.csv"
    changed.write_text(changed.read_text().replace("2556.00", "2557.00"))
    missing.unlink()
    text = called("compare", before, after, status=1)
    assert f"== {changed.relative_to(after)}\n" in text
    assert re.search(r"^-.*2556\.00.*\n\+.*2557\.00", text, re.MULTILINE)
    assert f"== {missing.relative_to(after)}\nonly in {before}\n" in text
    assert re.search(r"^2 of \d+ outputs differ$", text, re.MULTILINE)


def test_the_same_difference_of_many_outputs_is_shown_once(tmp_path: Path) -> None:
    for number in range(6):
        write(tmp_path / f"before/{number}.txt", [f"{number}", "old"])
        write(tmp_path / f"after/{number}.txt", [f"{number}", "new"])
    text = called("compare", tmp_path / "before", tmp_path / "after", status=1)
    assert "== 0.txt, 1.txt, 2.txt, 3.txt and 2 others\n" in text
    assert text.count("-old\n+new\n") == 1


def test_nothing_is_not_compared(tmp_path: Path, before: Path) -> None:
    assert "without a recording" in called("compare", before, tmp_path, status=2)


def test_a_recording_is_not_changed(inputs: Path, before: Path) -> None:
    again = called("record", before, "--inputs", inputs, status=2)
    assert "is not empty" in again
