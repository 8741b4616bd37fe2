"""`summarize` of campaigns: the plan, the records of the runs, and what is not pooled."""

import json
from pathlib import Path

import pytest
from command_line import call
from csv_tables import table
from make_logs import campaign_run, gluoncv, write
from summaries import log_of, problem, summarize

from dlperf_runner.commands.summarize import catalogued


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
        ("{", "invalid JSON: Expecting property name enclosed in double quotes"),
        ("[]", "the file does not contain a JSON object"),
        ("{}", "the run record has an invalid workload"),
        ("\udcff", "the file is not UTF-8"),
        ('{"a":' * 100_000, "invalid JSON"),
        ("9" * 5000, "invalid JSON"),
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
    call("report", tmp_path, "--output-dir", tmp_path / "report", status=2)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
@pytest.mark.parametrize("command", ["summarize", "report", "export"])
def test_number_of_a_record_that_is_not_finite_is_named(
    tmp_path: Path, command: str, number: str
) -> None:
    path = campaign_run(tmp_path, "1n1g", 1, gluoncv(50.0)) / "run.json"
    record = {**json.loads(path.read_text()), "more": {"hosts": [1, {"load": 0.5}]}}
    path.write_text(json.dumps(record).replace("0.5", number))
    options = ["prometheus", "--output", tmp_path / "out"] if command == "export" else []
    said = call(command, *options[:1], tmp_path, *options[1:], status=2)
    assert f"{path}: more.hosts[1].load: a number of the record is not finite" in said.both


@pytest.mark.parametrize("name", ["../r2/rn50_b128_fp32_2.log", "/dev/zero", "", "..", "a\0b"])
def test_record_that_names_a_log_elsewhere(tmp_path: Path, name: str) -> None:
    campaign_run(tmp_path, "1n1g", 1, None, log_name=name)
    assert problem(summarize(tmp_path)).problem == "the run record has an invalid log_name"


def test_version_that_is_none_is_unknown(tmp_path: Path) -> None:
    outcome = {"status": "done", "versions": {"mxnet": None}}
    campaign_run(tmp_path, "1n1g", 1, gluoncv(50.0), outcome=outcome)
    assert "version" not in summarize(tmp_path).text


@pytest.mark.parametrize("nodes", [0, -1, "1", None, True, 1e40])
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
