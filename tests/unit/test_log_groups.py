"""Trees of logs: which are runs of one case, which are copies, and which directories are groups."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import call
from gpu_campaigns import words
from make_logs import dllogger, gluoncv, oneflow, write
from pandas import DataFrame

from dlperf_runner.commands.summarize import summarize

pytestmark = pytest.mark.usefixtures("here")


def ngc_tree(directory: Path) -> Path:
    """As PaddlePaddle/Perf has it, but for the names of the directories."""
    for place, rates in (("OLD_LOG", (415.79, 3207.5)), ("NEW_LOG", (975.37, 7561.0))):
        for devices, rate in zip((1, 8), rates, strict=True):
            lines = dllogger(rate, devices, amp=False, final=rate)
            write(directory / place / f"tf_gpu{devices}_fp32_bs256.txt", lines)
    # No other directory has this case, but it belongs to the group of its neighbours.
    lines = dllogger(1243.0, 1, amp=True, final=1243.0)
    write(directory / "OLD_LOG" / "tf_gpu1_amp_bs256.txt", lines)
    return directory


def test_directories_that_repeat_the_same_runs_are_groups(tmp_path: Path) -> None:
    result = summarize(ngc_tree(tmp_path))
    assert result.problems == []
    columns = ["directory", "precision", "world_size", "samples_per_second_median", "repeats"]
    assert sorted(DataFrame(result.cases)[columns].itertuples(index=False, name=None)) == [
        ("NEW_LOG", "fp32", 1, 975.37, 1),
        ("NEW_LOG", "fp32", 8, 7561.0, 1),
        ("OLD_LOG", "amp", 1, 1243.0, 1),
        ("OLD_LOG", "fp32", 1, 415.79, 1),
        ("OLD_LOG", "fp32", 8, 3207.5, 1),
    ]
    # A speed-up is that of a group.
    assert sorted(DataFrame(result.cases)["speedup"].round(2)) == [1.0, 1.0, 1.0, 7.71, 7.75]
    assert "directory OLD_LOG" in words(result)
    assert "not pooled, because the runs differ in directory (NEW_LOG, OLD_LOG)" in words(result)
    assert "name the directories run1, run2, ..." in words(result)
    # Alone, each is a tree as any other.
    alone = summarize(tmp_path / "OLD_LOG")
    assert DataFrame(alone.cases)["directory"].isna().all()


@pytest.mark.parametrize(
    ("places", "tables"),
    [
        (("2025-05-01/10-22-33", "2025-05-01/10-25-01"), [2]),
        (("20250501-102230", "20250501T102231Z"), [2]),
        (("seed_1", "Seed-7"), [2]),
        (("482110", "482111"), [2]),
        (("slurm-11", "job_12"), [2]),
        (("20250623", "20250624"), [2]),  # of which one is divisible by 1024
        # Sizes, versions, or machines.
        (("50257", "50304"), [1, 1]),
        (("23.02.07", "23.11.10"), [1, 1]),
        (("16384", "32768"), [1, 1]),
        (("8", "16"), [1, 1]),
        (("node00", "node01"), [1, 1]),
    ],
)
def test_directories_of_repeats_are_no_groups(
    tmp_path: Path, places: tuple[str, ...], tables: list[int]
) -> None:
    for place, rate in zip(places, (380.0, 390.0), strict=True):
        write(tmp_path / place / "rn50_b128_fp32_1n1g.log", gluoncv(rate))
    result = summarize(tmp_path)
    assert DataFrame(result.cases)["repeats"].tolist() == tables
    assert "missing repeat" not in words(result)
    assert ("if they are repeats, name the directories" in words(result)) == (len(tables) > 1)


@pytest.mark.parametrize(
    "names",
    [
        ("run1/{}_1.log", "run1/{}_2.log", "run2/{}_1.log", "run2/{}_2.log"),
        ("{}.o4711", "{}.o4712"),  # of PBS, and of Grid Engine
        ("{}.o4711.1", "{}.o4711.2"),
    ],
)
def test_jobs_and_repeats_in_directories_of_repeats_are_numbered(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    for n, name in enumerate(names):
        path = write(tmp_path / name.format("rn50_b128_fp32_1n1g"), gluoncv(380.0 + n))
        path.with_name(path.name.replace("g.o", "g.e")).touch()  # of errors
    result = summarize(tmp_path)
    assert (result.problems, DataFrame(result.cases)["repeats"].tolist()) == ([], [len(names)])


def test_a_number_below_which_most_are_missing_is_no_count_of_repeats(tmp_path: Path) -> None:
    for repeat, is_missed in ((110, False), (4, True)):
        write(tmp_path / f"rn50_b128_fp32_1n1g_{repeat}.log", gluoncv(380.0 + repeat))
        assert ("missing repeat 1, 2, 3 of 4 for" in words(summarize(tmp_path))) == is_missed
    for repeat in (1, 2, 9):
        write(tmp_path / f"other/rn50_b128_fp32_1n1g_{repeat}.log", gluoncv(390.0 + repeat))
    assert "missing repeat 3, 4, 5, 6, 7, 8 of 9" in words(summarize(tmp_path / "other"))


@pytest.mark.parametrize("numbers", [(1, 1), (1, 2)])
def test_directories_named_after_accelerators_say_what_ran(
    tmp_path: Path, numbers: tuple[int, int]
) -> None:
    """As PaddlePaddle/Perf has it: TensorFlow/logs/{V100_LOG,A100_LOG}."""
    for place, rate, repeat in zip(("V100_LOG", "A100_LOG"), (50.0, 150.0), numbers, strict=True):
        write(tmp_path / place / "1n1g" / f"rn50_b128_fp32_{repeat}.log", gluoncv(rate))
    table = DataFrame(summarize(tmp_path).cases)
    found = dict(zip(table["accelerator"], table["samples_per_second_median"], strict=True))
    assert found == {"V100": 50.0, "A100": 150.0}
    write(tmp_path / "V100_LOG" / "1n1g" / "rn50_b128_fp32_a100_3.log", gluoncv(60.0))
    (problem,) = summarize(tmp_path).problems
    assert problem.problem == "the accelerator in the directory V100_LOG contradicts the file name"


def test_an_accelerator_of_a_directory_is_not_silent(tmp_path: Path) -> None:
    """A directory t4 may be a test; above the given one, it says nothing."""
    log = tmp_path / "t4" / "a" / "1n1g" / "rn50_b128_fp32_1.log"
    write(log, gluoncv(50.0))
    note = "the accelerator is from the directory name, not from the log: 1 of 1 runs"
    for given, accelerator in ((tmp_path, "T4"), (log.parents[1], None), (log, None)):
        result = summarize(given)
        assert DataFrame(result.cases)["accelerator"].tolist() == [accelerator]
        assert (note in words(result)) == (accelerator is not None)


def test_converted_copies_of_a_log_are_one_run(tmp_path: Path) -> None:
    """Copies with other ends of lines, a byte order mark or mpirun's tags have other bytes."""
    lines = [
        f"INFO:root:Epoch[0] Batch[{step}]\tSpeed: {50 + step % 37 / 7:.2f} samples/sec"
        for step in range(1, 121)
    ]
    log = "\n".join(lines).encode() + b"\n"
    tagged = b"".join(b"[1,0]<stdout>:" + line + b"\n" for line in log.splitlines())
    forms = (log, log.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + log + b"\n", tagged)
    (tmp_path / "1n1g").mkdir()
    for repeat, content in enumerate(forms, start=1):
        (tmp_path / "1n1g" / f"rn50_b128_fp32_{repeat}.log").write_bytes(content)
    result = summarize(tmp_path)
    assert result.problems == []
    assert DataFrame(result.cases)["repeats"].tolist() == [1]
    assert "1.log (same rates), which is counted once: " in words(result)


@pytest.mark.parametrize(
    ("lines", "repeats", "note"),
    [
        (gluoncv(0.5), 2, "have the same rate in all digits, as copies have: "),
        (oneflow(384.25, times=True), 1, "1.log (same rates), which is counted once: "),
    ],
)
def test_two_steady_runs_are_copies_if_their_times_are_the_same(
    tmp_path: Path, lines: list[str], repeats: int, note: str
) -> None:
    for repeat in (1, 2):
        write(tmp_path / "1n1g" / f"rn50_b128_fp32_{repeat}.log", [*lines, f"run {repeat}"])
    result = summarize(tmp_path)
    assert DataFrame(result.cases)["repeats"].tolist() == [repeats]
    assert note in words(result)


def test_groups_have_the_shortest_path_that_tells_them_apart(tmp_path: Path) -> None:
    for place in ("a/bz128/1n1g", "b/first/1n1g", "b/second/1n1g", "1n1g"):
        for topology in ("1n1g", "1n2g"):
            directory = tmp_path / place.replace("1n1g", topology)
            rate = 300.0 + len(list(tmp_path.rglob("*.log")))
            write(directory / "rn50_b128_fp32_1.log", gluoncv(rate))
    result = summarize(tmp_path)
    assert result.problems == []
    assert sorted(DataFrame(result.cases)["directory"]) == [
        *(".", "."),
        *("a", "a"),
        *("b/first", "b/first"),
        *("b/second", "b/second"),
    ]


def test_logs_that_nothing_tells_apart_are_refused(tmp_path: Path) -> None:
    first = write(tmp_path / "1n1g" / "rn50_b128_fp32.log", gluoncv(380.0))
    second = write(tmp_path / "1n1g" / "rn50_b128_fp32_1.log", gluoncv(390.0))
    write(tmp_path / "1n1g" / "rn50_b128_fp32_2.log", gluoncv(400.0))
    result = summarize(tmp_path)
    assert [problem.where for problem in result.problems] == [str(first), str(second)]
    for problem in result.problems:
        assert "the same repeat of the same case" in problem.problem
        assert problem.found == f"{first}, {second}"
    assert DataFrame(result.cases)["samples_per_second_median"].tolist() == [400.0]
    call("summarize", tmp_path, status=2)


def test_a_log_that_is_named_as_two_cases_is_told(tmp_path: Path) -> None:
    paths = [tmp_path / topology / "rn50_b128_fp32_1.log" for topology in ("1n1g", "1n2g")]
    for path in paths:
        write(path, gluoncv(380.0))
    result = summarize(tmp_path)
    told = "the same log is counted for several cases (same SHA-256): "
    assert told + ", ".join(map(str, paths)) in json.loads(result.document)["notes"]
