"""What earlier versions wrote is read or converted; what it lacks is unknown and equals nothing."""

import json
import sqlite3
from pathlib import Path

import pytest
from command_line import call
from gpu_campaigns import RATES, V100, campaign, on
from make_logs import write

from dlperf_runner.commands.summarize import summarize
from dlperf_runner.compare.campaigns import read_baseline
from dlperf_runner.core.errors import UserError
from dlperf_runner.history.store import points


def test_a_run_record_without_later_keys(tmp_path: Path) -> None:
    folder = campaign(tmp_path, **on(V100)) / "runs" / "mxnet-resnet50v1b-builtin_fp32_b128_1n1g"
    for path in sorted(folder.glob("*/run.json")):
        record = json.loads(path.read_text())
        del record["parameters"]
        record["outcome"]["hosts"] = {"node1": {"driver": "440.33.01"}}
        path.write_text(json.dumps(record))
    (row,) = summarize(tmp_path).cases
    assert (row["repeats"], row["driver"]) == (5, "440.33.01")
    assert (row["parameters"], row["accelerator"], row["node_gpus"]) == (None, None, None)


def test_a_campaign_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    campaign(tmp_path)
    write(tmp_path / "campaign.json", ['{"schema": 99}'])
    with pytest.raises(UserError, match="a newer version") as raised:
        summarize(tmp_path)
    assert raised.value.found == "99"


OLD_CASE = {
    "framework": "mxnet",
    "framework_version": "1.9.1",
    "workload": "mxnet-resnet50v1b",
    "model": "resnet50v1b",
    "source": "builtin",
    "precision": "fp32",
    "batch_size_per_device": 128,
    "nodes": 1,
    "gpus_per_node": 1,
    "world_size": 1,
    "accelerator": "gpu",
    "driver": "440.33.01",
    "stack": "cuda",
    "container": None,
    "estimator": "mean_of_rates",
}


def old_baseline(path: Path) -> Path:
    """As version 1 wrote it."""
    case = {**OLD_CASE, "samples_per_second": list(RATES)}
    document = {
        "version": 1,
        "name": "old",
        "created": "2026-11-01",
        "campaign": "c",
        "cases": [case],
    }
    return write(path, [json.dumps(document)])


def test_a_baseline_of_version_1_lacks_what_is_unknown(tmp_path: Path) -> None:
    path = old_baseline(tmp_path / "old.json")
    frame = read_baseline(str(path))
    assert frame["value"].tolist() == list(RATES)
    unknown = ("parameters", "total_steps", "warmup_steps", "accelerator", "node_gpus")
    for name in unknown:
        assert frame[name].isna().all(), name
    gate = ("compare", "--baseline", path, campaign(tmp_path / "b"), "--fail-if-slower", "3%")
    message = " ".join(call(*gate, status=2).err.split())
    assert "data (unknown, synthetic)" in message
    assert "accelerator (unknown, V100-SXM2-16GB)" in message
    names = ("parameters", "total_steps", "warmup_steps", "accelerator")
    allowed = [part for name in names for part in ("--allow-different", name)]
    call(*gate, *allowed)


OLD_HISTORY = """
CREATE TABLE campaigns (id INTEGER PRIMARY KEY, name TEXT NOT NULL, created TEXT NOT NULL,
  directory TEXT NOT NULL, recorded TEXT NOT NULL, UNIQUE (name, created));
CREATE TABLE measurements (campaign INTEGER NOT NULL REFERENCES campaigns (id) ON DELETE CASCADE,
  framework TEXT, framework_version TEXT, workload TEXT, model TEXT, source TEXT, precision TEXT,
  accelerator TEXT, driver TEXT, stack TEXT, container TEXT, estimator TEXT, metric TEXT, unit TEXT,
  log_sha256 TEXT, why_invalid TEXT, batch_size_per_device INTEGER, nodes INTEGER,
  gpus_per_node INTEGER, world_size INTEGER, global_batch_size INTEGER, repeat INTEGER,
  valid INTEGER, value REAL);
CREATE TABLE cases (campaign INTEGER NOT NULL REFERENCES campaigns (id) ON DELETE CASCADE,
  case_id TEXT NOT NULL, framework TEXT, framework_version TEXT, workload TEXT, model TEXT,
  source TEXT, precision TEXT, accelerator TEXT, driver TEXT, stack TEXT, container TEXT,
  estimator TEXT, batch_size_per_device INTEGER, nodes INTEGER, gpus_per_node INTEGER,
  world_size INTEGER, repeats INTEGER, samples_per_second_median REAL, samples_per_second_mean REAL,
  samples_per_second_ci_low REAL, samples_per_second_ci_high REAL,
  samples_per_second_ci_coverage REAL, speedup REAL, scaling_efficiency REAL);
CREATE INDEX measurements_of_campaign ON measurements (campaign);
CREATE INDEX cases_of_campaign ON cases (campaign);
CREATE INDEX cases_by_id ON cases (case_id);
PRAGMA application_id = 1684828262;
PRAGMA user_version = 1;
"""


def old_history(path: Path) -> Path:
    """As schema 1 had it, with one campaign."""
    with sqlite3.connect(path) as database:
        database.executescript(OLD_HISTORY)
        database.execute(
            "INSERT INTO campaigns VALUES (1, 'c0', '2026-09-01', '/c0', '2026-09-01')"
        )
        case = {
            "campaign": 1,
            "case_id": "mxnet-resnet50v1b-builtin_fp32_b128_1n1g_gpu_cuda",
            **OLD_CASE,
            "repeats": 5,
            "samples_per_second_median": 384.19,
        }
        run = {"campaign": 1, **OLD_CASE, "repeat": 1, "metric": "samples_per_second", "value": 1.0}
        run["unit"] = "tokens/s"  # whatever the catalogue says now
        for table, row in (("cases", case), ("measurements", run)):
            marks = ", ".join("?" * len(row))
            database.execute(
                f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})",  # noqa: S608
                list(row.values()),
            )
    database.close()
    return path


def test_a_history_of_schema_1_is_read_and_written_on(tmp_path: Path) -> None:
    path = old_history(tmp_path / "history.sqlite")
    before = path.read_bytes()
    (point,) = points(path)
    assert (point["samples_per_second_median"], point["driver"]) == (384.19, "440.33.01")
    assert (point["parameters"], point["total_steps"], point["accelerator"]) == (None, None, None)
    assert point["unit"] == "tokens/s"
    assert path.read_bytes() == before  # reading migrates a copy
    call("summarize", campaign(tmp_path / "c1"), "--history", path)
    old, new = sorted(points(path), key=lambda point: point["created"])
    assert old == point
    assert (new["parameters"], new["accelerator"]) == ("data=synthetic", "V100-SXM2-16GB")
    assert new["case_id"] != old["case_id"]  # an unknown GPU is not a V100
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (4,)
    database.close()
