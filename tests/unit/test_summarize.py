"""From directories of logs to the published tables, and to errors that lose nothing."""

from __future__ import annotations

import csv
import json
import os
import re
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from make_logs import (
    KNOWN,
    RESNET,
    campaign_run,
    dllogger,
    gluoncv,
    published,
    published_tree,
    write,
)
from peak_memory import peak_of

from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.commands.summarize import Known, SummaryResult, catalogued
from dlperf_runner.commands.summarize import summarize as summarize_directory
from dlperf_runner.core.errors import UserError

# The result files as the reports print them, whole.
PRINTED: dict[str, dict[str, Any]] = {
    "mxnet-resnet50v1b.md": {
        "rn50": {
            "1n1g": (384.59, 128, 384.19, 1.0),
            "1n2g": (749.68, 128, 749.04, 1.95),
            "1n4g": (1496.32, 128, 1494.58, 3.89),
            "1n8g": (2550.74, 128, 2556.03, 6.65),
            "2n8g": (4867.95, 128, 4855.34, 12.64),
            "4n8g": (9594.1, 128, 9579.74, 24.93),
        }
    },
    "mxnet-insightface-arcface.md": {
        "r100": {
            "1n1g": (234.32, 64, 233.88, 1.0),
            "1n2g": (450.17, 64, 450.4, 1.93),
            "1n4g": (651.96, 64, 651.44, 2.79),
            "1n8g": (754.8, 64, 756.96, 3.24),
        }
    },
    "paddle-plsc-arcface.md": {
        "r50": {
            "1n1g": (397.98, 128, 397.78, 1.0),
            "1n4g": (1541.03, 128, 1539.66, 3.87),
            "1n8g": (2548.18, 128, 2545.3, 6.4),
            "2n8g": (5956.61, 128, 5953.84, 14.97),
            "4n8g": (11086.97, 128, 11084.53, 27.87),
        }
    },
}
KEYS = ("average_speed", "batch_size_per_device", "median_speed", "speedup")


def summarize(directory: Path, output_dir: Path | None = None) -> SummaryResult:
    return summarize_directory(directory, output_dir or directory, KNOWN)


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def log_of(tree: Path, topology: str = "1n1g", repeat: int = 1) -> Path:
    return tree / "bz128" / topology / f"rn50_b128_fp32_{repeat}.log"


def problem(result: SummaryResult) -> UserError:
    (error,) = result.problems
    return error


# ---- the published tree


@pytest.mark.parametrize("source", PRINTED)
def test_published_runs_give_the_published_result_file(tmp_path: Path, source: str) -> None:
    published_tree(tmp_path / "logs", source)
    result = summarize(tmp_path / "logs", tmp_path / "out")
    assert result.problems == []
    (batch,) = {values[1] for case in PRINTED[source].values() for values in case.values()}
    found = json.loads((tmp_path / "out" / f"bz{batch}_result.json").read_text())
    assert found == {
        model: {topology: dict(zip(KEYS, values, strict=True)) for topology, values in case.items()}
        for model, case in PRINTED[source].items()
    }
    for row in table(tmp_path / "out" / "summary.csv"):
        values = PRINTED[source][next(iter(PRINTED[source]))]
        average, _, median, speedup = values[f"{row['nodes']}n{row['gpus_per_node']}g"]
        assert round(float(row["samples_per_second_median"]), 2) == median
        assert round(float(row["samples_per_second_mean"]), 2) == average
        assert round(float(row["speedup"]), 2) == speedup
        assert int(row["repeats"]) == 5
    names = {"summary.csv", "measurements.csv", "summary.json", "summary.md"}
    assert {path.name for path in result.paths} == names | {f"bz{batch}_result.json"}
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {*(path.name for path in result.paths), "manifest.jsonl"}


def test_every_run_is_measured_as_published(tmp_path: Path) -> None:
    for source in PRINTED:
        published_tree(tmp_path, source)
    summarize(tmp_path)
    found = {
        (row["model"], f"{row['nodes']}n{row['gpus_per_node']}g", row["repeat"]): row["value"]
        for row in table(tmp_path / "measurements.csv")
        if row["metric"] == "samples_per_second"
    }
    assert {key: round(float(value), 2) for key, value in found.items()} == {
        (run["model"], run["topology"], run["repeat"]): float(run["samples_per_second"])
        for run in published("published_runs")
    }


def test_table_as_the_report_prints_it(tmp_path: Path) -> None:
    published_tree(tmp_path, "mxnet-resnet50v1b.md")
    text = summarize(tmp_path).text
    assert "mxnet-resnet50v1b, fp32, batch size 128 per device\n" in text
    assert "| node_num | gpu_num | samples/s |        interval | speedup | efficiency | n |" in text
    assert (
        "|        4 |      32 |   9579.74 | 9568.30-9631.67 |   24.93 |       78 % | 5 |\n" in text
    )
    assert "- the interval of 5 runs is their range and covers 93.75 %" in text
    assert max(map(len, text.splitlines())) <= 80


def test_results_can_be_made_again_beside_the_logs(tmp_path: Path) -> None:
    write(log_of(tmp_path), gluoncv(5.0))
    first = summarize(tmp_path)
    assert [path.parent for path in first.paths] == [tmp_path] * 5
    assert summarize(tmp_path).text == first.text


def test_catalogue_has_what_is_needed(tmp_path: Path) -> None:
    (entry,) = [known for known in catalogued() if known.workload == "mxnet-resnet50v1b"]
    assert replace(entry, rules=(), definition=None) == RESNET
    assert (entry.names, entry.precisions) == (("resnet50", "resnet50v1b"), ("fp32", "fp16"))
    write(log_of(tmp_path), gluoncv(5.0))
    assert summarize_directory(tmp_path, tmp_path / "out").problems == []


def test_mixed_precisions_and_batch_sizes(tmp_path: Path) -> None:
    for precision, dtype, value in (("fp32", "float32", 5.0), ("fp16", "float16", 8.0)):
        path = tmp_path / "1n1g" / f"rn50_b128_{precision}_1.log"
        write(path, gluoncv(value, dtype=dtype))
    write(tmp_path / "1n1g" / "rn50_b64_fp32_1.log", gluoncv(7.0, batch=64))
    result = summarize(tmp_path)
    assert result.problems == []
    found = json.loads((tmp_path / "bz128_result.json").read_text())
    assert {name: case["1n1g"]["median_speed"] for name, case in found.items()} == {
        "rn50": 5.0,
        "rn50_fp16": 8.0,
    }
    assert set(json.loads((tmp_path / "bz64_result.json").read_text())) == {"rn50"}


def test_ten_nodes_missing_repeats_and_no_one_device_run(tmp_path: Path) -> None:
    for topology, repeats in (("10n8g", (1, 2, 5)), ("2n8g", (1, 2, 3, 4, 5))):
        for repeat in repeats:
            write(log_of(tmp_path, topology, repeat), gluoncv(100.0 + repeat))
    result = summarize(tmp_path)
    assert result.problems == []
    text = " ".join(result.text.split())
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


def test_a_log_that_lies_deep_and_one_in_the_directory_itself(tmp_path: Path) -> None:
    write(log_of(tmp_path / "a" / "b" / "c"), gluoncv(5.0))
    assert len(table(_summary(tmp_path))) == 1
    assert len(table(_summary(log_of(tmp_path / "a" / "b" / "c").parent))) == 1


def _summary(directory: Path) -> Path:
    return summarize(directory).paths[0]


def test_a_failed_run_of_which_little_is_known_is_no_case_of_its_own(tmp_path: Path) -> None:
    done = {"status": "done", "hosts": {"node1": {"driver": "440.1"}}, "versions": {"mxnet": "1"}}
    failed = {"status": "failed", "message": "no route to host", "hosts": {}, "versions": {}}
    for repeat in (1, 2, 3, 5):
        campaign_run(tmp_path, "1n1g", repeat, gluoncv(380.0), outcome=done)
        campaign_run(tmp_path, "1n4g", repeat, gluoncv(1380.0), outcome=done)
    campaign_run(tmp_path, "1n1g", 4, None, outcome=failed)
    text = " ".join(summarize(tmp_path).text.split())
    assert "1n1g r4: failed: no route to host" in text
    assert re.findall(r"b128: (missing repeat [^-]*) -", text) == ["missing repeat 4 of 5 for 1n4g"]


def test_copies_of_a_log_are_one_run(tmp_path: Path) -> None:
    """Five copies of one log are one run."""
    for repeat in range(1, 6):
        write(log_of(tmp_path, repeat=repeat), gluoncv(5.0))
    result = summarize(tmp_path)
    assert result.problems == []
    assert result.table["repeats"].tolist() == [1]
    first = log_of(tmp_path, repeat=1).relative_to(tmp_path)
    others = ", ".join(str(log_of(tmp_path, repeat=repeat)) for repeat in range(2, 6))
    told = f"copies of {tmp_path / first} (same SHA-256), which is counted once: {others}"
    assert told in json.loads(result.document)["notes"]
    rows = [row for row in table(tmp_path / "measurements.csv") if row["valid"] == "False"]
    assert [row["repeat"] for row in rows] == ["2", "3", "4", "5"]
    assert {row["why_invalid"] for row in rows} == {f"a copy of {first} (same SHA-256)"}
    assert {row["log_sha256"] for row in rows} == {rows[0]["log_sha256"]} != {""}


# ---- the flat folder of the NGC report


def dll(rate: float, devices: int, *, amp: bool) -> list[str]:
    return dllogger(rate, devices, amp=amp, final=rate + 1)


def test_flat_folder(tmp_path: Path) -> None:
    for devices, rate in ((1, 1173.38), (8, 9310.31), (32, 33316.67)):
        path = tmp_path / f"tf_gpu{devices}_amp_bs256.txt"
        write(path, dll(rate, devices, amp=True))
    write(tmp_path / "tf_gpu1_fp32_bs256.txt", dll(414.73, 1, amp=False))
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
    text = " ".join(result.text.split())
    assert "4n8g final_value" in text
    assert "assuming 8 devices per node" in text


def test_flat_name_whose_nodes_cannot_be_told(tmp_path: Path) -> None:
    write(tmp_path / "tf_gpu12_amp_bs256.txt", dll(5.0, 12, amp=True))
    assert "cannot determine the number of nodes" in problem(summarize(tmp_path)).problem


# ---- campaigns


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
    text = " ".join(result.text.split())
    assert "mxnet-resnet50v1b builtin, fp32, batch size 128 per device, version 1.9.1, cpu" in text
    assert "| 1 | 1 | 101.00 | 100.00-102.00 | 1.00 | 100 % | 2 |" in text
    assert "| 2 | 4 | 363.60 | - | 3.60 | 90 % | 1 |" in text
    assert "2n2g r2: failed: node2: exit status 1; the log ends with: boom" in text
    assert "1n2g r1: was not run" in text
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


def test_window_of_the_plan_is_that_of_the_rule(tmp_path: Path) -> None:
    lines = gluoncv(50.0, steps=12, warmup=4)
    campaign_run(tmp_path, "1n1g", 1, lines, total_steps=12, warmup_steps=4)
    assert summarize(tmp_path).problems == []
    campaign_run(tmp_path, "1n2g", 1, lines)
    assert problem(summarize(tmp_path)).problem == "the log ends with step 12"


def test_plan_that_the_log_contradicts(tmp_path: Path) -> None:
    campaign_run(tmp_path, "1n1g", 1, gluoncv(50.0))
    campaign_run(tmp_path, "2n2g", 1, gluoncv(50.0, world=2))
    error = problem(summarize(tmp_path))
    assert error.problem == "the world size contradicts the plan"
    assert str(error.where).endswith("2n2g/r1/rn50_b128_fp32_1.log:3")
    assert (error.expected, error.found) == ("4", "2")


REPORTED_V100 = {
    "status": "done",
    "hosts": {"node1": {"driver": "440.33.01", "gpus": ["Tesla V100-SXM2-16GB"]}},
    "versions": {"mxnet": "1.9.1"},
}


def test_runs_on_different_accelerators_are_not_pooled(tmp_path: Path) -> None:
    campaign_run(tmp_path, "1n1g", 1, gluoncv(50.0))
    campaign_run(
        tmp_path, "1n1g", 2, gluoncv(90.0), outcome=REPORTED_V100, stack="v100", accelerator="gpu"
    )
    text = " ".join(summarize(tmp_path).text.split())
    assert "not pooled, because the runs differ in" in text
    assert "accelerator (V100-SXM2-16GB, cpu)" in text
    names = set(json.loads((tmp_path / "bz128_result.json").read_text()))
    assert names == {"rn50_cpu_cpu", "rn50_V100-SXM2-16GB_1_440.33.01_v100"}


@pytest.mark.parametrize(
    ("column", "changes", "values"),
    [
        ("source", {"source": "upstream"}, "builtin, upstream"),
        ("accelerator", {"accelerator": "gpu"}, "unknown, cpu"),
        ("stack", {"stack": "v100-cuda10.2"}, "cpu, v100-cuda10.2"),
        (
            "driver",
            {"outcome": {"status": "done", "hosts": {"node1": {"driver": "440.33.01"}}}},
            "unknown, 440.33.01",
        ),
    ],
)
def test_the_column_that_keeps_runs_apart_is_named(
    tmp_path: Path, column: str, changes: dict[str, Any], values: str
) -> None:
    for repeat in (1, 2):
        outcome = {"status": "done"}
        campaign_run(tmp_path, "1n1g", repeat, gluoncv(50.0 + repeat), outcome=outcome)
        folder = campaign_run(
            tmp_path / "other",
            "1n1g",
            repeat,
            gluoncv(90.0 + repeat),
            **{"outcome": outcome, **changes},
        )
        target = tmp_path / "runs" / f"other-{column}" / f"r{repeat}"
        target.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(target)
    result = summarize(tmp_path)
    text = " ".join(result.text.split())
    assert f"not pooled, because the runs differ in {column} ({values})" in text
    assert sorted(result.table["repeats"]) == [2, 2]


def test_rule_is_that_of_the_matrix_that_the_run_is_of() -> None:
    """TensorFlow's drops five values of thirty as published, and none of the six of smoke."""
    (entry,) = [known for known in catalogued() if known.log_format == "dllogger"]
    assert entry.rule_of(500, 200) == entry.rule
    assert entry.rule.drop_first_values == 5
    smoke = load_catalog().workload(entry.workload).rule_of("smoke")
    window = (smoke.total_steps, smoke.warmup_steps)
    assert entry.rule_of(*window) == smoke
    assert entry.rule_of(*window).drop_first_values == 0
    # Of no matrix: 120 of 300 steps are measured, so 2 of 5 values are dropped.
    assert entry.rule_of(200, 80) == entry.rule.model_copy(
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
    for repeat, container in enumerate((None, "", image), start=1):
        changes = {} if container is None else {"container": container}
        campaign_run(tmp_path, "1n1g", repeat, gluoncv(50.0 + repeat), **changes)
    text = " ".join(summarize(tmp_path).text.split())
    assert f"not pooled, because the runs differ in container (none, {image})" in text
    found = {row["container"]: row["repeats"] for row in table(tmp_path / "summary.csv")}
    assert found == {"": "2", image: "1"}  # none, and an empty text, are a bare run


def test_gpu_memory_of_a_campaign(tmp_path: Path) -> None:
    outcome = {"status": "done", "hosts": {"node1": {"driver": "440.33.01"}}}
    peaks = {"node1": {"0": 12565, "1": 12839}, "node2": {"0": 12987}, "node3": {}}
    campaign_run(tmp_path, "2n2g", 1, gluoncv(90.0), outcome=outcome | {"gpu_memory_mib": peaks})
    for number, nothing in enumerate(({}, None, {"node1": {}}, {"node1": {"0": None}}), start=1):
        memory = outcome | {"gpu_memory_mib": nothing}
        campaign_run(tmp_path, f"1n{number}g", 1, gluoncv(50.0), outcome=memory)
    result = summarize(tmp_path)
    assert (
        "|        2 |       4 |     90.00 |    1.80 |       45 % | 1 |            12987 |"
        in result.text
    )
    rows = [r for r in table(tmp_path / "measurements.csv") if r["metric"] == "gpu_memory_peak"]
    assert [(r["value"], r["unit"], r["nodes"], r["driver"]) for r in rows] == [
        ("12987.0", "MiB", "2", "440.33.01")
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "invalid run record"),
        ("[]", "invalid run record"),
        ("{}", "the run record has an invalid workload"),
        ("\udcff", "invalid run record"),
    ],
)
def test_damaged_record_of_a_run(tmp_path: Path, content: str, message: str) -> None:
    campaign_run(tmp_path, "1n1g", 1, gluoncv(50.0))
    folder = campaign_run(tmp_path, "1n2g", 1, gluoncv(50.0))
    (folder / "run.json").write_text(content, encoding="utf-8", errors="surrogateescape")
    result = summarize(tmp_path)
    assert problem(result).problem == message
    assert "run.json" in str(problem(result).where)
    assert len(table(tmp_path / "summary.csv")) == 1


@pytest.mark.parametrize("nodes", [0, -1, "1", None, True, 1e400])
def test_record_with_a_bad_count(tmp_path: Path, nodes: object) -> None:
    campaign_run(tmp_path, "1n1g", 1, gluoncv(50.0), nodes=nodes)
    error = problem(summarize(tmp_path))
    assert error.problem == "the run record has an invalid nodes"
    assert error.expected == "an integer of at least 1"


def test_done_run_without_its_log(tmp_path: Path) -> None:
    campaign_run(tmp_path, "1n1g", 1, None)
    assert problem(summarize(tmp_path)).problem == "the log cannot be read"


def test_run_of_an_unknown_workload_and_of_another_format(tmp_path: Path) -> None:
    campaign_run(tmp_path, "1n1g", 1, gluoncv(50.0), workload="other")
    campaign_run(tmp_path, "1n2g", 1, gluoncv(50.0), log_format="plsc")
    first, second = summarize(tmp_path).problems
    assert (first.problem, first.found) == ("the workload is not in the catalogue", "other")
    assert (second.expected, second.found) == ("plsc", "gluoncv_horovod")


# ---- damage: each is told, and nothing else is lost


def damaged(lines: list[str], at: int, line: str | None) -> list[str]:
    return [*lines[:at], *([] if line is None else [line]), *lines[at + 1 :]]


GOOD = gluoncv(50.0)
STEP_118 = next(
    n for n, line in enumerate(GOOD) if line.startswith("INFO:root:Epoch[0] Batch[118]\tS")
)


def speed(rate: str) -> str:
    return f"INFO:root:Epoch[0] Batch[118]\tSpeed: {rate} samples/sec"


@pytest.mark.parametrize(
    ("content", "line", "expected", "found"),
    [
        ("", "", "lines with a rate in a known format", "no lines"),
        (
            "nothing to see\nhere\n",
            "",
            "lines with a rate in a known format",
            "2 lines without a rate",
        ),
        ("\n".join(GOOD[:200]), ":200", "step 120 of 120", "66"),
        ("\n".join(damaged(GOOD, STEP_118, None)), ":358", "118", "119"),
        ("\n".join(damaged(GOOD, STEP_118, speed("0"))), ":356", None, "0"),
        ("\n".join(damaged(GOOD, STEP_118, speed("nan"))), ":356", None, "nan"),
        ("\n".join(damaged(GOOD, STEP_118, speed("1e400"))), ":356", None, "1e400"),
        ("\n".join(damaged(GOOD, STEP_118, speed("5.0.0"))), ":356", "a number", "'5.0.0'"),
        ("\n".join(gluoncv(50.0, batch=64)), ":2", "128", "64"),
        ("\n".join(gluoncv(50.0, world=16)), ":3", "2", "16"),
        ("\n".join(gluoncv(50.0, dtype="float16")), ":2", "fp32", "fp16"),
        ("\n".join(gluoncv(50.0, steps=121)), ":365", "120 steps", "step 121"),
        ("\n".join(damaged(GOOD, 40, "\udcff")), ":41", "text", "byte 0xff"),
        ("ÿþ", "", "lines with a rate in a known format", "1 lines without a rate"),
    ],
)
def test_damaged_log(
    tmp_path: Path, content: str, line: str, expected: str | None, found: str
) -> None:
    write(log_of(tmp_path, "1n1g"), gluoncv(30.0))
    bad = log_of(tmp_path, "1n2g")
    bad.parent.mkdir(parents=True)
    bad.write_bytes(content.encode("utf-8", "surrogateescape"))
    result = summarize(tmp_path)
    error = problem(result)
    assert error.where == f"{bad}{line}"
    assert error.found == found
    assert error.expected == (expected or "a number above 0 and below 1e+12")
    (row,) = table(tmp_path / "summary.csv")
    assert (row["world_size"], row["samples_per_second_median"]) == ("1", "30.0")
    invalid = [row for row in table(tmp_path / "measurements.csv") if row["valid"] == "False"]
    # What ran is not known where the log has no format: then there is the error alone.
    known = expected not in ("text", "lines with a rate in a known format")
    told = str(error).replace(f"{tmp_path}/", "")  # the files are the same wherever they lie
    assert [row["why_invalid"] for row in invalid] == ([told] if known else [])
    assert told.split("\n")[0] in (tmp_path / "summary.md").read_text()


def test_crlf_and_no_final_newline(tmp_path: Path) -> None:
    path = log_of(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_bytes("\r\n".join(GOOD[:-1]).encode())
    assert summarize(tmp_path).problems == []


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("bz64/1n1g/rn50_b128_fp32_1.log", GOOD, "contradicts the directory bz64"),
        ("bz128/1n1g/rn50_b0_fp32_1.log", GOOD, "the batch size must be at least 1"),
        ("bz128/1n1g/vgg16_b128_fp32_1.log", GOOD, "no workload of the catalogue"),
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


def test_topology_in_the_name(tmp_path: Path) -> None:
    write(tmp_path / "rn50_b128_fp32_12n8g.log", GOOD)
    summarize(tmp_path)
    (row,) = table(tmp_path / "summary.csv")
    assert (row["nodes"], row["world_size"]) == ("12", "96")


def test_short_name_that_two_workloads_have(tmp_path: Path) -> None:
    other = Known("other", "mxnet", "other", "rn50", "gluoncv_horovod", RESNET.rule)
    write(log_of(tmp_path), GOOD)
    error = problem(summarize_directory(tmp_path, tmp_path, [RESNET, other]))
    assert "several workloads" in error.problem
    assert error.expected == "one of rn50 (mxnet-resnet50v1b), rn50 (other)"


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


def test_output_directory_that_cannot_be_made(tmp_path: Path) -> None:
    write(log_of(tmp_path), GOOD)
    result = summarize(tmp_path, log_of(tmp_path) / "out")
    assert result.paths == []
    assert "cannot write the result" in str(result.unwritten)
    text = " ".join(result.text.split())
    assert "| 1 | 1 | 50.00 " in text
    assert f"the results were not written: {log_of(tmp_path)}/out/" in text


def test_no_half_written_file_is_left(tmp_path: Path) -> None:
    write(log_of(tmp_path), GOOD)
    (tmp_path / "summary.json").mkdir()  # cannot be replaced by a file
    assert summarize(tmp_path).unwritten
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


NOISE = "node1:1:1 [0] NCCL INFO Channel 00 : 0 -> 1 via P2P/IPC or so\n" * 1600


def gap(file: BinaryIO, kind: str) -> None:
    """What stands between the lines of a large log."""
    if kind == "one line of 256 MB":
        file.seek(2**28, os.SEEK_CUR)  # a hole, which reads as zeros and takes no space
        file.write(b"\n")
    elif kind == "a progress bar":
        file.write(b"\r".join(b"%d%% done" % n for n in range(10**6)) * 4 + b"\n")
    else:
        tag = "[1,0]<stdout>:" if kind == "lines with tags" else ""
        piece = NOISE.replace("node1", f"{tag}node1").encode()
        for _ in range(400 if not tag else 200):
            file.write(piece)


@pytest.fixture(scope="module")
def peak_of_small_log(tmp_path_factory: pytest.TempPathFactory) -> float:
    return peak_of_reading(write(log_of(tmp_path_factory.mktemp("small")), GOOD), problems=0)


@pytest.mark.parametrize(
    "kind", ["one line of 256 MB", "a progress bar", "lines", "lines with tags"]
)
def test_large_log_in_little_memory(tmp_path: Path, peak_of_small_log: float, kind: str) -> None:
    """A log of 20 to 256 MB needs no more memory than a small one."""
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
