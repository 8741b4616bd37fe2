"""From directories of logs and campaigns to tables, and to errors that lose nothing."""

import json
import os
import re
import resource
from pathlib import Path
from typing import BinaryIO

import pytest
from command_line import call
from csv_tables import table
from make_logs import RESNET, campaign_run, dllogger, gluoncv, known_model, published_tree, write
from pandas import DataFrame
from pandas.testing import assert_frame_equal
from peak_memory import peak_of
from summaries import log_of, problem, summarize

from dlperf_runner.commands.summarize import SummaryResult, catalogued
from dlperf_runner.commands.summarize import summarize as summarize_directory
from dlperf_runner.core.errors import UserError
from dlperf_runner.results import load as loading
from dlperf_runner.results.load import load_results


def words(result: SummaryResult) -> str:
    return " ".join(result.text.split())


# The medians that the report prints, the averages of the same runs, and the speed-ups.
PRINTED = {
    "1n1g": (384.59, 128, 384.19, 1.0),
    "1n2g": (749.68, 128, 749.04, 1.95),
    "1n4g": (1496.32, 128, 1494.58, 3.89),
    "1n8g": (2550.74, 128, 2556.03, 6.65),
    "2n8g": (4867.95, 128, 4855.34, 12.64),
    "4n8g": (9594.1, 128, 9579.74, 24.93),
}
KEYS = ("average_speed", "batch_size_per_device", "median_speed", "speedup")


def test_published_runs_give_the_published_result_file(tmp_path: Path) -> None:
    published_tree(tmp_path / "logs", "mxnet-resnet50v1b.md")
    result = summarize(tmp_path / "logs", tmp_path / "out")
    assert result.problems == []
    assert json.loads((tmp_path / "out" / "bz128_result.json").read_text()) == {
        "rn50": {case: dict(zip(KEYS, values, strict=True)) for case, values in PRINTED.items()}
    }
    names = {"summary.csv", "measurements.csv", "summary.json", "summary.md", "bz128_result.json"}
    assert {path.name for path in result.paths} == names
    assert {path.name for path in (tmp_path / "out").iterdir()} == names | {"manifest.jsonl"}


def test_mixed_precisions_and_batch_sizes(tmp_path: Path) -> None:
    for batch, precision, dtype in ((128, "fp32", "float32"), (128, "fp16", "float16"),
                                    (64, "fp32", "float32")):  # fmt: skip
        path = tmp_path / "1n1g" / f"rn50_b{batch}_{precision}_1.log"
        write(path, gluoncv(float(batch), batch=batch, dtype=dtype))
    assert summarize(tmp_path).problems == []
    found = {path.name: json.loads(path.read_text()) for path in tmp_path.glob("*_result.json")}
    assert {name: list(cases) for name, cases in found.items()} == {
        "bz128_result.json": ["rn50_fp16", "rn50"],
        "bz64_result.json": ["rn50"],
    }
    assert found["bz64_result.json"]["rn50"]["1n1g"]["median_speed"] == 64.0


def test_ten_nodes_missing_repeats_and_no_one_device_run(tmp_path: Path) -> None:
    for topology, repeats in (("10n8g", (1, 2, 5)), ("2n8g", (1, 2, 3, 4, 5))):
        for repeat in repeats:
            write(log_of(tmp_path, topology, repeat), gluoncv(100.0 + repeat))
    result = summarize(tmp_path)
    assert result.problems == []
    text = words(result)
    # 102 / 103 = 0.990, of the 16 devices of 2n8g: 0.99 * 16 / 80 = 19.8 %
    assert "| 10 | 80 | 102.00 | 101.00-105.00 | 0.99 | 20 % | 3 |" in text
    assert "no 1-device run: speed-up and efficiency are relative to 2n8g, 16 devices" in text
    assert "mxnet-resnet50v1b fp32 b128: missing repeat 3, 4 of 5 for 10n8g" in text
    found = json.loads((tmp_path / "bz128_result.json").read_text())
    assert list(found["rn50"]) == ["2n8g", "10n8g"]
    assert found["rn50"]["10n8g"]["speedup"] is None
    rows = table(tmp_path / "summary.csv")
    assert [(row["base_case"], row["base_world_size"]) for row in rows] == [("2n8g", "16")] * 2
    document = json.loads((tmp_path / "summary.json").read_text())
    efficiencies = [case["scaling_efficiency"] for case in document["cases"]]
    assert efficiencies == pytest.approx([1.0, 102 / 103 * 16 / 80])


def test_a_failed_run_of_which_little_is_known_is_no_case_of_its_own(tmp_path: Path) -> None:
    done = {"status": "done", "hosts": {"node1": {"driver": "440.1"}}, "versions": {"mxnet": "1"}}
    failed = {"status": "failed", "message": "no route to host", "hosts": {}, "versions": {}}
    for repeat in (1, 2, 3, 5):
        campaign_run(tmp_path, "1n1g", repeat, gluoncv(380.0), outcome=done)
        campaign_run(tmp_path, "1n4g", repeat, gluoncv(1380.0), outcome=done)
    campaign_run(tmp_path, "1n1g", 4, None, outcome=failed)
    text = words(summarize(tmp_path))
    assert "1n1g r4: failed: no route to host" in text
    assert re.findall(r"b128: (missing repeat [^-]*) -", text) == ["missing repeat 4 of 5 for 1n4g"]


def test_copies_of_a_log_are_one_run(tmp_path: Path) -> None:
    """Five copies of one log are one run, wherever they are."""
    for repeat in range(1, 6):
        write(log_of(tmp_path, repeat=repeat), gluoncv(5.0))
    result = summarize(tmp_path)
    assert result.problems == []
    assert DataFrame(result.cases)["repeats"].tolist() == [1]
    first = log_of(tmp_path, repeat=1).relative_to(tmp_path)
    others = ", ".join(str(log_of(tmp_path, repeat=repeat)) for repeat in range(2, 6))
    told = f"copies of {tmp_path / first} (same SHA-256), which is counted once: {others}"
    assert told in json.loads(result.document)["notes"]
    rows = [row for row in table(tmp_path / "measurements.csv") if row["valid"] == "False"]
    assert [row["repeat"] for row in rows] == ["2", "3", "4", "5"]
    assert {row["why_invalid"] for row in rows} == {f"a copy of {first} (same SHA-256)"}
    assert {row["log_sha256"] for row in rows} == {rows[0]["log_sha256"]} != {""}


@pytest.mark.parametrize("is_parallel", [False, True])
def test_order_of_files_and_number_of_processes_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_parallel: bool
) -> None:
    names = [f"{place}/rn50_b128_fp32_{n}.log" for place in ("10n8g", "2n8g") for n in (2, 10, 1)]
    for place, order in (("a", names), ("b", names[::-1])):
        for name in order:
            write(tmp_path / place / name, gluoncv(384.25 + len(name)))
    first = load_results(tmp_path / "a").frame
    assert first["nodes"].tolist() == sorted(first["nodes"])
    seen: list[int] = []
    if is_parallel:
        monkeypatch.setattr(loading, "MANY_BYTES", 1)
    other = load_results(tmp_path / "b", progress=lambda items, total: seen.append(total) or items)
    assert seen == [6]
    assert_frame_equal(first, other.frame)


def test_flat_folder(tmp_path: Path) -> None:
    for devices, rate in ((1, 1173.38), (8, 9310.31), (32, 33316.67)):
        path = tmp_path / f"tf_gpu{devices}_amp_bs256.txt"
        write(path, dllogger(rate, devices, amp=True, final=rate + 1))
    write(tmp_path / "tf_gpu1_fp32_bs256.txt", dllogger(414.73, 1, amp=False, final=415.73))
    write(tmp_path / "README.txt", ["these are logs"])
    result = summarize(tmp_path)
    assert result.problems == []
    found = json.loads((tmp_path / "bz256_result.json").read_text())
    assert {name: case["median_speed"] for name, case in found["rn50_amp"].items()} == {
        "1n1g": 1173.38,
        "1n8g": 9310.31,
        "4n8g": 33317.67,  # the final value
    }
    assert found["rn50_amp"]["4n8g"]["speedup"] == 28.39
    assert found["rn50"]["1n1g"]["median_speed"] == 414.73
    text = words(result)
    assert "4n8g final_value" in text
    assert "assuming 8 devices per node" in text


# ---- campaigns: the plan, the records of the runs, and what is not pooled


def test_campaign(tmp_path: Path) -> None:
    campaign_run(tmp_path, "1n1g", 1, gluoncv(100.0, world=1))
    campaign_run(tmp_path, "1n1g", 2, gluoncv(102.0, world=1))
    campaign_run(tmp_path, "2n2g", 1, gluoncv(363.6, world=4))
    failed = {"status": "failed", "message": "node2: exit status 1; the log ends with: boom"}
    campaign_run(tmp_path, "2n2g", 2, None, outcome=failed)
    campaign_run(tmp_path, "1n2g", 1, None, outcome={"status": "planned"})
    campaign_run(tmp_path, "1n2g", 2, ["cut off"], outcome={"status": "running"})
    result = summarize(tmp_path)
    assert result.problems == []
    text = words(result)
    assert "mxnet-resnet50v1b builtin, fp32, batch size 128 per device, version 1.9.1, cpu" in text
    assert "| 1 | 1 | 101.00 | 100.00-102.00 | 1.00 | 100 % | 2 |" in text
    assert "| 2 | 4 | 363.60 | - | 3.60 | 90 % | 1 |" in text
    assert "2n2g r2: failed: node2: exit status 1; the log ends with: boom" in text
    assert "not counted, because they were not run: mxnet-resnet50v1b builtin fp32 b128" in text
    assert "1n2g r2: did not finish" in text
    rows = table(tmp_path / "measurements.csv")
    invalid = [row for row in rows if row["valid"] == "False"]
    assert [(row["value"], row["metric"]) for row in invalid] == [("", "samples_per_second")] * 3
    (done, *_) = [row for row in rows if row["valid"] == "True"]
    assert (done["framework_version"], done["accelerator"], done["stack"]) == (
        "1.9.1",
        "cpu",
        "cpu",
    )
    assert len(done["log_sha256"]) == 64


def test_plan_that_the_log_contradicts(tmp_path: Path) -> None:
    lines = gluoncv(50.0, steps=12, warmup=4)
    campaign_run(tmp_path, "1n1g", 1, lines, total_steps=12, warmup_steps=4)
    assert summarize(tmp_path).problems == []
    campaign_run(tmp_path, "1n2g", 1, lines)
    campaign_run(tmp_path, "2n2g", 1, gluoncv(50.0, world=2))
    short, other = summarize(tmp_path).problems
    assert short.problem == "the log ends with step 12"
    assert other.problem == "the world size contradicts the plan"
    assert str(other.where).endswith("2n2g/r1/rn50_b128_fp32_1.log:3")
    assert (other.expected, other.found) == ("4", "2")


def test_rule_is_that_of_the_matrix_that_the_run_is_of() -> None:
    """TensorFlow's drops five values of thirty as published, and none of the six of smoke."""
    (entry,) = [m for m in catalogued() if m.workload.log_format == "dllogger"]
    assert entry.rule_of(500, 200) == entry.workload.rule
    assert entry.workload.rule.drop_first_values == 5
    smoke = entry.workload.rule_of("smoke")
    window = (smoke.total_steps, smoke.warmup_steps)
    assert entry.rule_of(*window) == smoke
    assert entry.rule_of(*window).drop_first_values == 0
    # Of no matrix: 120 of 300 steps are measured, so 2 of 5 values are dropped.
    assert entry.rule_of(200, 80) == entry.workload.rule.model_copy(
        update={"total_steps": 200, "warmup_steps": 80, "drop_first_values": 2}
    )


def test_logs_of_other_nodes_beside_the_first_are_not_counted_again(tmp_path: Path) -> None:
    folder = campaign_run(tmp_path / "campaign", "2n2g", 1, gluoncv(50.0))
    for log in (*folder.glob("*.log"), write(log_of(tmp_path / "tree"), gluoncv(50.0))):
        write(log.with_name(log.name + ".node2"), gluoncv(70.0))
    for directory in ("campaign", "tree"):
        assert summarize(tmp_path / directory).problems == []
        (row,) = table(tmp_path / directory / "summary.csv")
        assert (row["samples_per_second_median"], row["repeats"]) == ("50.0", "1")


def test_container_and_bare_runs_are_not_pooled(tmp_path: Path) -> None:
    image = "podman image@sha256:" + 64 * "0"
    for repeat, container in enumerate(("", "", image), start=1):
        campaign_run(tmp_path, "1n1g", repeat, gluoncv(50.0 + repeat), container=container)
    told = f"not pooled, because the runs differ in container (none, {image})"
    assert told in words(summarize(tmp_path))
    found = {row["container"]: row["repeats"] for row in table(tmp_path / "summary.csv")}
    assert found == {"": "2", image: "1"}


def test_gpu_memory_of_a_campaign(tmp_path: Path) -> None:
    """That of a run is the most of its devices, that of a case the most of its valid runs."""
    outcome = {"status": "done", "hosts": {"node1": {"driver": "440.33.01"}}}
    peaks = {"node1": {"0": 12565, "1": 12839}, "node2": {"0": 12987}, "node3": {}}
    campaign_run(tmp_path, "2n2g", 1, gluoncv(90.0), outcome=outcome | {"gpu_memory_mib": peaks})
    for repeat, status, peak in ((2, "done", 12000), (3, "failed", 99999)):
        memory = {"status": status, "gpu_memory_mib": {"node1": {"0": peak}}}
        campaign_run(tmp_path, "2n2g", repeat, gluoncv(90.0 + repeat), outcome=outcome | memory)
    for number, nothing in enumerate(({}, None, {"node1": {}}, {"node1": {"0": None}}), start=1):
        memory = outcome | {"gpu_memory_mib": nothing}
        campaign_run(tmp_path, f"1n{number}g", 1, gluoncv(50.0), outcome=memory)
    result = summarize(tmp_path)
    assert "GPU memory (MiB)" in words(result)
    assert "| 2 | 4 | 91.00 | 90.00-92.00 | 1.82 | 46 % | 2 | 12987 |" in words(result)
    assert "| 1 | 4 | 50.00 | - | 1.00 | 25 % | 1 | - |" in words(result)
    memories = [case["gpu_memory_mib"] for case in json.loads(result.document)["cases"]]
    assert memories == [None] * 4 + [12987.0]
    rows = [r for r in table(tmp_path / "measurements.csv") if r["metric"] == "gpu_memory_peak"]
    found = [(r["value"], r["unit"], r["nodes"], r["driver"]) for r in rows if r["valid"] == "True"]
    assert found == [(value, "MiB", "2", "440.33.01") for value in ("12987.0", "12000.0")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "invalid JSON: Expecting property name enclosed in double quotes"),
        ("[]", "the file does not contain a JSON object"),
        ("{}", "the run record has an invalid workload"),
        ("\udcff", "the file is not UTF-8"),
        ('{"a":' * 100_000, "invalid JSON"),
        ("9" * 5000, "invalid JSON"),
        ('{"more": [1, {"load": NaN}]}', "a number of the record is not finite"),
        ('{"more": [1, {"load": -Infinity}]}', "a number of the record is not finite"),
        ('{"more": [1, {"load": 1e999}]}', "a number of the record is not finite"),
    ],
)
def test_damaged_record_of_a_run(tmp_path: Path, content: str, message: str) -> None:
    campaign_run(tmp_path, "1n1g", 1, gluoncv(50.0))
    folder = campaign_run(tmp_path, "1n2g", 1, gluoncv(50.0))
    (folder / "run.json").write_text(content, encoding="utf-8", errors="surrogateescape")
    result = summarize(tmp_path)
    assert problem(result).problem == message
    assert "run.json" in str(problem(result).where)
    assert "load" not in content or "run.json: more[1].load" in str(problem(result).where)
    assert len(table(tmp_path / "summary.csv")) == 1
    call("report", tmp_path, "--output-dir", tmp_path / "report", status=2)
    export = ("export", "prometheus", tmp_path, "--output", tmp_path / "out")
    assert message in call(*export, status=2).both


AT_LEAST_1 = "an integer of at least 1"
ELSEWHERE = ("../r2/rn50_b128_fp32_2.log", "/dev/zero", "", "..", "a\0b")


@pytest.mark.parametrize(
    ("changes", "message", "values"),
    [
        *(({"log_name": name}, "the run record has an invalid log_name", ()) for name in ELSEWHERE),
        *(
            ({"nodes": nodes}, "the run record has an invalid nodes", (AT_LEAST_1,))
            for nodes in (0, -1, "1", None, True, 1e40)
        ),
        ({}, "the log cannot be read", ()),
        ({"workload": "other"}, "the workload is not in the catalogue", (None, "other")),
        (
            {"log_format": "plsc"},
            "the log format is not that of the workload",
            ("plsc", "gluoncv_horovod"),
        ),
    ],
)
def test_record_of_a_run_that_cannot_be_read(
    tmp_path: Path, changes: dict[str, object], message: str, values: tuple[str | None, ...]
) -> None:
    lines = None if changes.keys() <= {"log_name"} else gluoncv(50.0)
    campaign_run(tmp_path, "1n1g", 1, lines, **changes)
    error = problem(summarize(tmp_path))
    assert error.problem == message
    for value, of_error in zip(values, (error.expected, error.found), strict=False):
        assert value is None or of_error == value


# ---- damaged, contradicting and very large logs


GOOD = gluoncv(50.0)


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
