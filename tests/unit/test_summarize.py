"""From directories of logs to the published tables, and to errors that lose nothing."""

import json
import re
from pathlib import Path

import pytest
from csv_tables import table
from make_logs import campaign_run, dllogger, gluoncv, published_tree, write
from pandas import DataFrame
from summaries import log_of, summarize

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


# ---- the published tree


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


def test_results_can_be_made_again_beside_the_logs(tmp_path: Path) -> None:
    write(log_of(tmp_path), gluoncv(5.0))
    first = summarize(tmp_path)
    assert [path.parent for path in first.paths] == [tmp_path] * 5
    assert summarize(tmp_path).text == first.text


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
