"""Logs of nccl-tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from command_line import call
from nccl_logs import nccl_tests
from read_logs import pieces

from dlperf_runner.logs import LineError
from dlperf_runner.logs.nccl_tests import NcclTests, as_run, read

TAG = "[1,0]<stdout>:"


def log(wrong: str = "0", end: str = "0 OK") -> list[str]:
    return nccl_tests(wrong=wrong, end=end)


def parsed(lines: list[str], size: int | None = None) -> NcclTests:
    (table,) = read(pieces("\n".join(lines) + "\n", size))
    return table


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
    assert parsed(old).rows == [replace(row, redop=None) for row in parsed(log()).rows]


MORE = {
    "timestamp": (" timestamp", "  2026-01-14 10:11:12"),
    "algorithm": (" algo proto nchannels", "    RING    SIMPLE          32"),
}


@pytest.mark.parametrize("kind", MORE)
def test_more_columns(kind: str) -> None:
    heading, values = MORE[kind]
    lines = [
        line + heading if "count" in line else line + values if "float" in line else line
        for line in log()
    ]
    assert parsed(lines) == parsed(log())


def test_times_of_iterations_stand_in_each_half() -> None:
    lines = []
    for line in log():
        words = line.split()
        if "count" in words:
            half = ["time", "algbw", "busbw", "#wrong", "i_min", "i_max"]
            words = ["#", "size", "count", "type", "redop", "root", *half, *half]
        elif "float" in words:
            words = [*words[:9], "1.5", "2.5", *words[9:], "3.5", "4.5"]
        lines.append(" ".join(words) if words[:1] == ["#"] or "float" in words else line)
    assert parsed(lines) == parsed(log())


def test_several_operations_and_several_tables() -> None:
    rows = [line for line in log() if "float" in line]
    every = [line.replace(" sum ", f" {op} ") for line in rows for op in ("sum", "max")]
    first, last = log().index(rows[0]), log().index(rows[-1])
    both = parsed([*log()[:first], *every, *log()[last + 1 :]])
    assert [(r.size, r.redop) for r in both.rows[:2]] == [(2**20, "sum"), (2**20, "max")]
    gather = [line.replace("all_reduce", "all_gather") for line in log()]
    text = "\n".join([*log(), *gather, ""]).encode()
    assert [table.collective for table in read([text])] == ["all_reduce", "all_gather"]
    with pytest.raises(LineError, match="several tables"):
        as_run([text])
    with pytest.raises(LineError, match="no whole table"):
        read(["\n".join([*log(), *gather[:20], ""]).encode()])


def test_memory_that_limits_the_sizes_and_a_least_bandwidth() -> None:
    lines = [line.replace(f"maxBytes {2**30}", f"maxBytes {2**34}") for line in log()]
    lines = [f"{line} OK" if "Avg" in line else line for line in lines]
    with pytest.raises(LineError, match="missing or damaged"):
        parsed(lines)
    at = next(n for n, line in enumerate(lines) if "maxBytes" in line)
    lines.insert(at + 1, f"# Reducing maxBytes to {2**31} due to memory limitation")
    assert parsed(lines).largest == 2**30


def test_errors_of_old_versions() -> None:
    old = [line.replace("root", "").replace("#wrong", " error") for line in log()]
    old = [line.replace("      -1", "").replace("      0", "  5e-07") for line in old]
    assert [row.wrong for row in parsed(old).rows] == [5e-07] * 6


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
