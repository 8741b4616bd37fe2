"""Every published number, to its last digit, from logs by the rules of the catalogue."""

import csv
from typing import Any

import pytest
from make_logs import write
from published_logs import SOURCES, TABLES, topology, write_logs

from dlperf_runner.commands.summarize import summarize


@pytest.fixture(scope="module", params=SOURCES)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A published report: its name, and what `summarize` makes of its logs."""
    source: str = request.param
    directory = write_logs(tmp_path_factory.mktemp("logs"), source)
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
