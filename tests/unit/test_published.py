"""Every published number, to its last digit, from logs by the rules of the catalogue."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from make_logs import write
from published_logs import (
    NGC,
    RUNS,
    SOURCES,
    TABLES,
    runs_of,
    table_of,
    topology,
    workload_of,
    write_log,
)

from dlperf_runner.commands.summarize import summarize

ARCFACE = "mxnet-insightface-arcface.md"
# Tables whose single runs nobody published: their logs are made with the table's own number.
NO_RUNS = {
    ("mxnet-resnet50v1b.md", "resnet50v1b", "fp16", "256"): "the report prints fp32's runs only",
    (ARCFACE, "arcface-r100", "fp32", "96"): "it prints batch size 64's only",
    **{(ARCFACE, "arcface-y1", "fp32", batch): "as above" for batch in ("128", "256", "352")},
    ("oneflow-resnet50v1.5.md", "resnet50v1.5", "fp32", "128"): "one run of each, in the table",
    ("oneflow-resnet50v1.5.md", "resnet50v1.5", "fp32", "160"): "one run of each, in the table",
    (NGC, "resnet50v1.5", "fp32", "256"): "one run of each, in the table",
    (NGC, "resnet50v1.5", "amp", "256"): "one run of each, in the table",
}


@pytest.fixture(scope="module", params=SOURCES)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A published report: its name, and what `summarize` makes of its logs."""
    source: str = request.param
    directory = tmp_path_factory.mktemp("logs")
    repeats = workload_of(source).matrices["published"].repeats
    for entry in TABLES:
        if entry["source"] == source:
            for repeat, value in enumerate(runs_of(entry, repeats), start=1):
                write_log(directory, entry, repeat, value)
    # What else lies in such a folder is no log.
    write(directory / "README.txt", ["Logs of a benchmark."])
    write(directory / "run_test.sh", ["#!/bin/sh"])
    result = summarize(directory, directory)
    assert result.problems == []
    with (directory / "summary.csv").open(encoding="utf-8", newline="") as file:
        return source, list(csv.DictReader(file)), result.text


def decimals_of(source: str) -> int:
    return 3 if source == "oneflow-resnet50v1.5.md" else 2


def test_every_number_of_every_table(report: Any) -> None:
    source, cases, _ = report
    found = {
        (
            *(case["precision"], case["batch_size_per_device"]),
            *(case["model"].rpartition("-")[2], f"{case['nodes']}n{case['gpus_per_node']}g"),
        ): case
        for case in cases
    }
    entries = [entry for entry in TABLES if entry["source"] == source]
    assert len(found) == len(cases) == len(entries)
    for entry in entries:
        # The catalogue has one network of PLSC's, and calls its model arcface.
        network = (
            entry["model"].rpartition("-")[2] if source != "paddle-plsc-arcface.md" else "arcface"
        )
        case = found[entry["precision"], entry["batch_size_per_device"], network, topology(entry)]
        median = float(case["samples_per_second_median"])
        assert round(median, decimals_of(source)) == float(entry["samples_per_second"])
        if entry["speedup"]:
            assert round(float(case["speedup"]), 2) == float(entry["speedup"])


def test_printed_table_has_the_published_digits(report: Any) -> None:
    source, _, text = report
    for entry in TABLES:
        if entry["source"] == source:
            value = f"{float(entry['samples_per_second']):.{decimals_of(source)}f}"
            assert f"| {entry['gpus']:>7} | {value:>9} |" in text, value


def test_speedups_of_the_ngc_table_which_prints_none(tmp_path: Path) -> None:
    for entry in TABLES:
        if entry["source"] == NGC:
            write_log(tmp_path, entry, 1, float(entry["samples_per_second"]))
    text = summarize(tmp_path, tmp_path).text
    # 3275.93 / 414.73 = 7.8989; 12671.9 / 414.73 = 30.5546; 9310.31 / 1173.38 = 7.9346;
    # 33317.67 / 1173.38 = 28.3946
    for line in (
        "|        1 |       1 |    414.73 |    1.00 |      100 % | 1 |",
        "|        1 |       8 |   3275.93 |    7.90 |       99 % | 1 |",
        "|        4 |      32 |  12671.90 |   30.55 |       95 % | 1 |",
        "|        1 |       1 |   1173.38 |    1.00 |      100 % | 1 |",
        "|        1 |       8 |   9310.31 |    7.93 |       99 % | 1 |",
        "|        4 |      32 |  33317.67 |   28.39 |       89 % | 1 |",
    ):
        assert line in text


def test_tables_without_published_runs_are_these() -> None:
    """All others follow from their runs; no table contradicts the runs that it was made of."""
    with_runs = {table for table, _ in RUNS}
    assert {table_of(entry) for entry in TABLES} - with_runs == set(NO_RUNS)
    assert len(TABLES) == 55
    assert sum(map(len, RUNS.values())) == 75
