"""Logs of nccl-tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import call
from damaged_lines import damaged
from hypothesis import given, settings
from hypothesis import strategies as st
from nccl_logs import nccl_tests
from read_logs import pieces

from dlperf_runner.logs import LineError
from dlperf_runner.logs.nccl_tests import NcclTests, read

TAG = "[1,0]<stdout>:"


def log(wrong: str = "0", end: str = "0 OK") -> list[str]:
    return nccl_tests(wrong=wrong, end=end)


def parsed(lines: list[str], size: int | None = None) -> NcclTests:
    return read(pieces("\n".join(lines) + "\n", size))


def test_table_by_size() -> None:
    found = parsed(log())
    assert [row.size for row in found.rows] == [4**n * 2**20 for n in range(6)]
    last = found.rows[-1]
    # 2^30 bytes in 30 us and 2^30 / 250e9 s; busbw is 2 * 7 / 8 of algbw
    time = 30 + 2**30 / 250_000
    assert last.time_us == pytest.approx(time, abs=0.06)
    assert last.busbw == pytest.approx(2**30 / time / 1000 * 2 * 7 / 8, abs=0.006)
    assert (last.wrong, found.average_busbw, found.is_wrong) == (0, 261.007, False)


def test_unchecked_results_and_mpirun() -> None:
    assert parsed(log("N/A")).rows[0].wrong is None
    assert parsed([TAG + line for line in log()]) == parsed(log())
    old = [line.replace("     sum      -1", "") for line in log()]  # all_gather_perf of old
    assert parsed(old).rows == parsed(log()).rows


@given(st.integers(1, 400))
@settings(max_examples=30, deadline=None)
def test_pieces_do_not_matter(size: int) -> None:
    assert parsed(log(), size) == parsed(log())


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_damaged_table_is_refused_or_the_same(data: st.DataObject) -> None:
    ways = ("lose a line", "double", "wrap a line", "cut")
    try:
        found = read([data.draw(damaged(log(), ways)).encode()])
    except LineError:
        return
    assert found.rows == parsed(log()).rows


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(LineError):
        read([data])


def test_command(tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    path.write_text("\n".join(log()) + "\n")
    result = call("bandwidth", path)
    assert "| 1073741824 |" in result.out
    assert "Average over all sizes: 261.007 GB/s." in result.out
    assert call("bandwidth", path, "--json").document["logs"][str(path)]["average_busbw"] == 261.007
    path.write_text("\n".join(log("3", "36 FAILED")) + "\n")
    call("bandwidth", path, status=1)
    path.write_text("\n".join(log()[:16]))
    assert "lines of the table are missing or damaged" in call("bandwidth", path, status=2).both
