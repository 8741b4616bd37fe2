"""Logs of nccl-tests."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import call
from log_examples import EXAMPLES, Example
from make_logs import write
from nccl_logs import nccl_tests
from read_logs import pieces

from dlperf_runner.logs import LineError
from dlperf_runner.logs.nccl_tests import NcclTests, read

TAG = "[1,0]<stdout>:"
TABLES = [
    example for example in EXAMPLES if example.form == "nccl_tests" and "tables" in example.entry
]


def parsed(lines: list[str]) -> NcclTests:
    (table,) = read(pieces("\n".join(lines) + "\n", None))
    return table


def replaced(old: str, new: str) -> list[str]:
    return [line.replace(old, new) for line in nccl_tests()]


def example(stem: str) -> Example:
    (one,) = (example for example in TABLES if example.path.stem == stem)
    return one


def test_table_by_size() -> None:
    found = parsed(nccl_tests())
    assert [row.size for row in found.rows] == [4**n * 2**20 for n in range(6)]
    last = found.rows[-1]
    # 2^30 bytes in 30 us and 2^30 / 250e9 s; busbw is 2 * 7 / 8 of algbw
    time = 30 + 2**30 / 250_000
    assert last.time_us == pytest.approx(time, abs=0.06)
    assert last.busbw == pytest.approx(2**30 / time / 1000 * 2 * 7 / 8, abs=0.006)
    assert (last.wrong, found.average_busbw, found.is_wrong) == (0, 294.419, False)


@pytest.mark.parametrize("example", TABLES, ids=lambda example: example.name)
def test_tables_of_each_version(example: Example) -> None:
    tables = [
        {
            "collective": table.collective,
            "average": table.average_busbw,
            "is_wrong": table.is_wrong,
            "rows": [
                [r.size, r.redop, r.busbw, r.in_place_busbw, r.wrong, r.in_place_wrong]
                for r in table.rows
            ],
        }
        for table in read([example.data])
    ]
    assert tables == example.entry["tables"]


def test_json_may_list_all_devices_and_has_amounts() -> None:
    document = json.loads(example("json").data)

    def of_json() -> NcclTests:
        (table,) = read([json.dumps(document, separators=(",", ":")).encode()])
        return table

    for devices in (2, 16):
        listed = [{"rank": n * 16 // devices, "hostname": "node1"} for n in range(devices)]
        document["config"]["devices"] = listed
        assert of_json().ranks == 16
    # Of a collective whose least sizes are rounded to 0, several rows have this size.
    document["config"] |= {"minimum_bytes": 1 << 20, "step_factor": 2}
    with pytest.raises(LineError, match="lines of the table are missing"):
        of_json()
    document["results"] += document["results"][-1:] * 9
    average = document["average_bus_bandwidith"]  # as nccl-tests spells it
    average["bandwidith"] = document["results"][-1]["in_place"]["bus_bw"]
    assert of_json().sizes == 11
    document["more"] = ["x" * 100] * 5000
    assert len(read(pieces(json.dumps(document, separators=(",", ":")), 1 << 16))[0].rows) == 11
    for okay in ("true", "false"):
        document["bitwise_mismatches"] = {"count": 0, "okay": okay}
        assert of_json().is_wrong == (okay == "false")
    for bad in (-1, 0, "nan"):
        document["config"]["ngpus"] = bad
        with pytest.raises(LineError, match="is not whole"):
            of_json()


def test_tags_and_columns_by_their_names() -> None:
    whole = parsed(nccl_tests())
    for tag in (TAG, "launcher-1  | ", "node1: ", "(Worker pid=47) ", "2025-06-16 22:09:00 "):
        assert parsed([tag + line for line in nccl_tests()]) == whole
    old = replaced("     sum      -1", "")  # all_gather_perf of old
    assert parsed(old).rows == [replace(row, redop=None) for row in whole.rows]
    # Of the CPU, rccl-tests print the time only.
    times = {"time_us": None, "in_place_time_us": None}
    by_cpu = parsed(replaced("     time", "  cputime"))
    assert by_cpu.rows == [replace(row, **times) for row in whole.rows]


def test_lines_of_nccl_within_a_row_are_left_out() -> None:
    """With NCCL_DEBUG=INFO, ranks share a file whose buffers end anywhere."""
    whole, lines = parsed(nccl_tests()), []
    for line in nccl_tests():
        notices = ["3c67c65d25c4:88:880 [1] NCCL INFO comm", "node1.lan:7:70 [0] NCCL INFO Trees"]
        at = 70 if " sum " in line else 0
        cut = [line[:at] + notices[1], *notices, line[at:]] if at else [line]
        lines += [*notices, *cut]
    assert parsed(lines) == whole


def test_tables_above_one_that_was_cut_off_can_be_kept() -> None:
    text = "\n".join([*nccl_tests(), *nccl_tests()[:-4]]) + "\n"
    with pytest.raises(LineError) as caught:
        read([text.encode()])
    kept = re.search(r"head -n (\d+) LOG", str(caught.value.hint))
    assert kept and read(["".join(text.splitlines(True)[: int(kept[1])]).encode()])


LOG = nccl_tests()
LACKS = "the heading of the table lacks columns"
FAILURE = "node2: Test NCCL failure common.cu:1005 'unhandled system error'"
OSU = ["# OSU MPI-CUDA Bandwidth Test v7.2", "# Size  Bandwidth (MB/s)", "4  2.36"]
IN_PLACE = example("in_place_only").data.decode().splitlines()
CYCLES = example("cycles").data.decode().splitlines()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([*LOG, *LOG[:20]], "no whole table"),
        # As in NVIDIA/nccl-tests#107: two processes of a rank each, line by line.
        ([line for line in LOG for _ in range(2)], "several processes printed tables of their own"),
        # A launcher started it again.
        ([*LOG[:12], FAILURE, *LOG], "the test failed before its table was whole"),
        (replaced("busbw", "bus BW"), LACKS),
        # A heading with one place needs its name.
        ([line for line in IN_PLACE if "in-place" not in line], LACKS),
        # A table of several cycles has all sizes of each.
        ([*CYCLES[:-4], *CYCLES[-3:]], "missing or damaged.*found 5"),
        ([re.sub("type +redop +root", "", line) for line in LOG], "mscclpp-test"),
        (OSU, "OSU"),
        # Numbers that contradict each other.
        (replaced("53.66 ", " 5.66 "), "busbw 5.66 at algbw 30.67, and busbw 425.61 at al"),
        (replaced("     34.2   30.67 ", "      0.0   30.67 "), "1048576 bytes in 0 us at algbw 30"),
        (replaced(": 294.419", ": 29.4419"), "an average of 29.4419 over rows with 294.418"),
    ],
)
def test_what_is_not_one_whole_table_is_refused(lines: list[str], message: str) -> None:
    with pytest.raises(LineError) as refused:
        parsed(lines)
    assert re.search(message, f"{refused.value} {refused.value.hint}")


def test_a_repetition_with_other_bits_is_wrong() -> None:
    average = next(n for n, line in enumerate(LOG) if "Avg bus" in line)
    for place in (average, average + 1):
        mismatch = "# Bitwise mismatches : 5 FAILED"
        assert parsed([*LOG[:place], mismatch, *LOG[place:]]).is_wrong


@pytest.mark.parametrize(
    ("old", "new", "settings"),
    [
        ("graph: 0", "graph: 4", "cuda_graphs=4 "),
        ("agg iters: 1 ", "agg iters: 8 ", "aggregated_iterations=8 "),
        ("# Using dev", "# Blocking Enabled: wait for completion\n# Using dev", "blocking=true "),
    ],
)
def test_options_that_change_rates_make_another_case(
    tmp_path: Path, old: str, new: str, settings: str
) -> None:
    """The largest measured size is 4 GiB, which no step of 4 makes 8 GiB."""
    plain = nccl_tests(largest=2**33)
    lines = [line.replace(old, new) for line in plain]
    assert lines != plain
    for name, each in (("run1", plain), ("run2", lines), ("run3", lines)):
        write(tmp_path / "1n8g" / f"{name}.log", each)
    options = ("--model", "nccl-all-reduce", "--condition", "accelerator=H200-SXM")
    text = " ".join(call("compare", tmp_path, *options, "--condition", "nvls=true").both.split())
    assert f"{settings}message_bytes=4294967296" in text
    assert f"of message bytes (4294967296 {settings.strip()}, 8589934592)" in text
    named = call("compare", tmp_path, status=1).both
    assert "with --model nccl-all-reduce, those" in " ".join(named.split())


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("Group  0 Pid  12345 on      node1 device  7", "Group  1 Pid 1 on node1 device  7", None),
        ("#  Rank  7 Group  0", "#  Rank lost", "bus bandwidth contradicts the number of ranks"),
        (
            "#  Rank  7 Group  0",
            "#  Rank 7 Pid 9 on x device 7 [\n#  Rank  8",
            "contradicts the number of",
        ),
        ("float ", "half", "world size contradicts the file name"),
    ],
)
def test_a_table_whose_rates_are_not_of_all_ranks_is_no_run(
    tmp_path: Path, old: str, new: str, problem: str | None
) -> None:
    """NCCL_TESTS_SPLIT makes several groups of ranks, which the table has room for."""
    folder = "1n4g" if new == "half" else "logs"
    write(tmp_path / folder / "a.log", [line.replace(old, new) for line in nccl_tests()])
    shown = " ".join(call("summarize", tmp_path, status=2 if problem else 0).both.split())
    assert "| 1073741824 | 434.47 |" in shown
    assert (problem or "Each rate is that of one of 2 groups") in shown


def test_memory_that_limits_the_sizes_and_a_least_bandwidth() -> None:
    lines = replaced(f"maxBytes {2**30}", f"maxBytes {2**34}")
    lines = [f"{line} OK" if "Avg" in line else line for line in lines]
    with pytest.raises(LineError, match="missing or damaged"):
        parsed(lines)
    at = next(n for n, line in enumerate(lines) if "maxBytes" in line)
    lines.insert(at + 1, f"# Reducing maxBytes to {2**31} due to memory limitation")
    assert parsed(lines).largest == 2**30


def test_command(tmp_path: Path) -> None:
    path = write(tmp_path / "nccl.log", nccl_tests())
    result = call("bandwidth", path)
    assert "| 1073741824 |" in result.out
    assert "Average over all sizes: 294.419 GB/s." in result.out
    assert call("bandwidth", path, "--json").document["logs"][str(path)]["average_busbw"] == 294.419
    write(path, nccl_tests(wrong="3", end="36 FAILED"))
    assert "The program found wrong results: FAILED." in call("bandwidth", path, status=1).out
    write(path, nccl_tests()[:16])
    assert "lines of the table are missing or damaged" in call("bandwidth", path, status=2).both
