"""What the catalogue holds of others' publications: equal to what was published, and checked."""

import hashlib
import re
import statistics
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from captured import git
from make_logs import PUBLISHED, ROOT, published

from dlperf_runner.catalog.publication import Conditions, PublishedReport
from dlperf_runner.catalog.published_numbers import PublishedNumber, load_published, load_rule
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.core.case import Topology
from dlperf_runner.core.errors import UserError
from tools.check_citations import differences, not_found, numbers_in

# Of the two files as they were handed over with the five reports.
SHA256 = {
    "published.csv": "da9114bbb87e8081db38df9565c55d101cb81f0480c1f611f2008cc47b1c93bb",
    "published_runs.csv": "60170a5aabc03f7fc50082e25104c99bb9a893e33c9a23691222e20b3144c322",
}
FIVE = {
    f"{name}.md": name
    for name in (
        *("mxnet-resnet50v1b", "mxnet-insightface-arcface", "oneflow-resnet50v1.5"),
        *("paddle-plsc-arcface", "tensorflow-ngc-resnet50v1.5"),
    )
}
NUMBERS = load_published()


def found(report: str, precision: str, batch: int, topology: str) -> list[PublishedNumber]:
    return [
        number
        for number in NUMBERS
        if (number.report, number.precision) == (report, precision)
        and (number.batch_size_per_device, str(number.topology)) == (batch, topology)
    ]


@pytest.mark.parametrize("name", SHA256)
def test_the_tables_of_the_five_reports_are_as_they_were_handed_over(name: str) -> None:
    assert hashlib.sha256((PUBLISHED / name).read_bytes()).hexdigest() == SHA256[name]


def test_all_55_rows_are_published_numbers_and_all_75_runs_theirs() -> None:
    rows = published("published")
    assert len(rows) == 55
    counted = 0
    for row in rows:
        nodes, devices = int(row["nodes"]), int(row["gpus"])
        batch = int(row["batch_size_per_device"])
        numbers = found(
            FIVE[row["source"]], row["precision"], batch, f"{nodes}n{devices // nodes}g"
        )
        # Not the data-parallel ArcFace, which another table of the same report has.
        numbers = [n for n in numbers if n.conditions.parallelism != "data"]
        (number,) = [n for n in numbers if n.model == row["model"]]
        assert number.samples_per_second == float(row["samples_per_second"])
        assert number.speedup == (float(row["speedup"]) if row["speedup"] else None)
        memory = row["gpu_memory_mib"]
        assert number.gpu_memory_mib == (float(memory) if memory else None)
        counted += len(number.runs)
    assert counted == 75


def test_published_medians_follow_from_the_published_runs() -> None:
    with_runs = [number for number in NUMBERS if number.runs]
    # 15 of the five reports; 4 of OneFlow 0.1.9, 5 and 4 of TensorFlow 1 and 2, 6 of MXNet and
    # of Paddle; 38 of Lambda.
    assert len(with_runs) == 15 + 4 + 5 + 4 + 6 + 6 + 38
    for number in with_runs:
        # 1358.635 of six runs was printed as 1358.64.
        median = statistics.median(number.runs)
        assert number.samples_per_second == pytest.approx(median, abs=0.005 + 1e-9)
        assert number.conditions.repeats == len(number.runs)


def test_every_number_says_where_it_stands_and_what_it_was_measured_on() -> None:
    for number in NUMBERS:
        assert number.publisher and len(number.date) >= len("2020")
        cited = number.citation
        assert re.fullmatch("[0-9a-f]{40}", cited.commit or "") or cited.no_commit
        assert number.conditions.accelerator is not None
        # Language models read text; a bandwidth reads nothing.
        is_of_images = "resnet50" in number.model or "face" in number.model
        if is_of_images and not number.report.startswith("oneflow-resnet50"):
            assert number.conditions.data is not None
    workloads = load_catalog().workloads
    models: dict[tuple[str, str], set[str]] = {}
    for number in NUMBERS:
        if number.workload in workloads:
            framework = workloads[number.workload].framework
            assert framework.rstrip("23") == number.framework  # of any generation
            key = (number.report, number.workload)
            models.setdefault(key, set()).add(number.workload_model)
        for name in number.other_workloads:
            assert workloads[name].framework == number.framework
            assert number.workload_model in workloads[name].model_names
    assert {name for number in NUMBERS for name in number.other_workloads} == {"nvidia-bert"}
    # A report can have further models.
    for (_, name), published_models in models.items():
        assert published_models & {workloads[name].model, *workloads[name].model_names}
    # Every report that a workload reproduces is there, under its own name.
    assert {w.published for w in workloads.values() if w.published} == set(FIVE)
    for name in FIVE.values():
        assert any(number.report == name for number in NUMBERS)


def test_conditions_of_a_case_and_of_a_table_replace_those_of_the_report() -> None:
    (one,) = found("tensorflow-ngc-resnet50v1.5", "fp32", 256, "1n1g")
    (many,) = found("tensorflow-ngc-resnet50v1.5", "fp32", 256, "4n8g")
    assert (one.conditions.driver, many.conditions.driver) == ("470.83.01", "450.80.02")
    assert (one.conditions.estimator, many.conditions.estimator) == ("mean_of_rates", "final_value")
    # Null takes away what the report has.
    synthetic = [
        n for n in NUMBERS if n.conditions.data == "synthetic" and n.framework == "tensorflow"
    ]
    assert [n.samples_per_second for n in synthetic] == [1236.9, 4610.43, 9265.83]
    assert {n.conditions.input_pipeline for n in synthetic} == {None}
    same = Conditions(driver="1", xla=True).changed_by(Conditions(xla=None))
    assert same == Conditions(driver="1", xla=None)


def test_no_number_stands_there_twice() -> None:
    keys = Counter(
        (n.report, n.model, n.precision, n.batch_size_per_device, n.topology, n.date, n.conditions)
        for n in NUMBERS
    )
    assert max(keys.values()) == 1


def test_the_rule_names_workloads_of_the_catalogue() -> None:
    rule, workloads = load_rule(), load_catalog().workloads
    assert rule.tolerance == 0.05
    runnable = {w.name for w in workloads.values() if w.sources.items() and not w.only_if_named}
    assert set(rule.workloads) == {*runnable, "nvidia-bert"}
    for name, sources in rule.workloads.items():
        for source in sources:
            assert (name in runnable) == (source != "logs")
            assert source == "logs" or workloads[name].sources.named(source) is not None


REPORT = """\
name: some
title: Some report
publisher: Somebody
source: {{title: a paper, no_commit: printed}}
date: "2020"
framework: mxnet
conditions: {{accelerator: V100-SXM2-16GB}}
tables:
  - model: resnet50v1.5
    precision: fp32
    batch_size_per_device: 128
    rows: {{1n1g: {value}}}
{more}"""


CITED = "    source: {{repository: a/b, commit: {}, file: README.md}}\n"


GRID = """\
grid:
  same: {model: resnet50v1.5, driver: "1"}
  columns: [precision, batch_size_per_device, xla, rows, runs]
  tables:
    - [fp32, 64, null, {1n1g: 380.0, 1n2g: 700.0}, null]
    - [amp, null, true, {2n8g: 9000.0}, {2n8g: [9000.0]}]
"""


def write(root: Path, value: str = "384.5", more: str = "", name: str = "some") -> Path:
    (root / f"{name}.yml").write_text(REPORT.format(value=value, more=more), encoding="utf-8")
    return root


def test_a_report_of_ones_own(tmp_path: Path) -> None:
    (number,) = load_published(write(tmp_path))
    assert (number.samples_per_second, number.topology) == (384.5, Topology(1, 1))
    assert number.conditions.driver is None
    assert number.source == "a paper (printed)"


@pytest.mark.parametrize(
    ("value", "more", "message"),
    [
        ("-1", "", "12: tables.0.rows.1n1g: invalid value"),
        ("'384'", "", "12: tables.0.rows.1n1g: invalid value"),
        (".nan", "", "12: tables.0.rows.1n1g: invalid value"),
        ("1", "    runs: {2n8g: [1.0]}\n", "13: tables.0.runs: no row has this"),
        ("1", "    colour: red\n", "13: tables.0.colour: unknown key"),
        ("1", "    conditions: {xla: maybe}\n", "13: tables.0.conditions.xla"),
        ("1", "workload: a b\n", "13: workload: invalid value"),
        ("1", "    source: {title: a page}\n", "13: tables.0.source: the source cannot"),
        ("1", CITED.format("e8ee99f"), "13: tables.0.source.commit: invalid value"),
        ("1", GRID.replace("null]", "]"), "17: grid.tables.0: the row has another length"),
        ("1", GRID.replace("[amp,", "[a b,"), "18: grid.tables.1: precision: invalid value"),
        ("1", GRID.replace("xla,", "colour,"), "18: grid.tables.1: conditions.colour: unknown key"),
    ],
)
def test_mistakes_are_told_with_file_line_and_key(
    tmp_path: Path, value: str, more: str, message: str
) -> None:
    with pytest.raises(UserError, match=re.escape(f"some.yml:{message}")):
        load_published(write(tmp_path, value, more))


def test_a_grid_is_its_tables(tmp_path: Path) -> None:
    _, first, second, third = load_published(write(tmp_path, more=GRID))
    for number, rate in ((first, 380.0), (second, 700.0)):
        assert (number.precision, number.batch_size_per_device) == ("fp32", 64)
        assert (number.samples_per_second, number.runs) == (rate, ())
        assert number.conditions == Conditions(accelerator="V100-SXM2-16GB", driver="1")
    assert (third.precision, third.batch_size_per_device, third.runs) == ("amp", None, (9000.0,))
    assert (third.conditions.xla, third.topology) == (True, Topology(2, 8))


def test_a_citation_is_checked_at_its_commit(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()
    git(clone, "init", "--quiet")
    commits = []
    texts = ("| 1 | 8 | 1,384.50 |\nruns: 1384.4, 1384.6\n", "1384.5\n| 1384.51 | v1384.5 |\n")
    for text in texts:
        (clone / "README.md").write_text(text)
        git(clone, "add", ".")
        git(clone, "commit", "--quiet", "--message", "tables")
        commits.append(git(clone, "rev-parse", "HEAD"))
    found = []
    for index, commit in enumerate([*commits, "f" * 40]):
        root = tmp_path / str(index)
        root.mkdir()
        runs = "    runs: {1n1g: [1384.4, 1384.6]}\n"
        numbers = load_published(write(root, "1384.5", runs + CITED.format(commit)))
        held: Counter[str] = Counter()
        found.append([*differences(numbers, {"a/b": clone}, held), held["a/b"]])
        assert list(differences(numbers, {"c/d": clone}, held)) == []
    assert found[0] == [1]
    case = "some: resnet50v1.5 fp32 b128 1n1g: a/b {}, README.md: {}"
    assert found[1] == [case.format(commits[1][:7], "no [1384.5, 1384.4, 1384.6]"), 0]
    assert found[2] == [case.format("fffffff", "no such file at this commit"), 0]


def test_commas_in_numbers_and_between_them() -> None:
    text = "| 1,384.50 | 8 |\n    123,MI250,2024.01,8,2107.00,a.csv\n"
    assert numbers_in(text) == {Decimal(n) for n in ("1384.50", "8", "123", "2024.01", "2107.00")}


REST = "LearningRate 0.2   Epoch: 0   Global Step: 100   Required: 1 hours"


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        (f"Training: Speed 1384.50 samples/sec   Loss 1.1   {REST}", []),
        ("The speed is 1384.50 samples/sec.", [1384.5]),
        ("Training: Speed 1384.50 samples/sec", [1384.5]),
    ],
)
def test_a_number_may_stand_in_a_log_that_a_page_with_tables_quotes(
    tmp_path: Path, line: str, missing: list[float]
) -> None:
    (number,) = load_published(write(tmp_path, "1384.5", CITED.format("f" * 40)))
    assert not_found(number, f"| devices | 8 |\n\n```\n{line}\n```\n") == missing


def test_a_report_whose_rows_are_not_there(tmp_path: Path) -> None:
    for name in SHA256:
        header = (PUBLISHED / name).read_text(encoding="utf-8").splitlines()[0]
        (tmp_path / name).write_text(header + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"published.csv has no rows for the report other\.md"):
        load_published(write(tmp_path, more="rows_of: other.md\n"))


def test_a_name_that_is_not_the_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="differs from the name of its file"):
        load_published(write(tmp_path, name="other"))


def test_the_documentation_counts_what_there_is() -> None:
    reports = len({number.report for number in NUMBERS})
    text = (ROOT / "docs" / "comparing.md").read_text(encoding="utf-8")
    assert f"{len(NUMBERS)} speeds of {reports} reports" in text
    catalogue = (ROOT / "docs" / "catalogue.md").read_text(encoding="utf-8")
    section = catalogue.split("## published/")[1].split("## workloads/")[0]
    for key in PublishedReport.model_fields:
        assert f"`{key}`" in section
    rule = load_rule()
    words = " ".join(text.split())
    assert f"tolerance, {rule.tolerance:.0%}".replace("%", " %") in words
