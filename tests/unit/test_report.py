"""Writers: what is absent stays absent, and a terminal's width is kept."""

from __future__ import annotations

import csv
import io
import json

from frame_rows import Row, cases, frame, row, runs

from dlperf_runner.report import case_tables, markdown, result_files
from dlperf_runner.report.terminal import Screen

NAMES = {("mxnet-resnet50v1b", "resnet50v1b"): "rn50"}


def result_names(*rows: Row) -> list[str]:
    (document,) = result_files.results_by_batch(frame(rows), cases(rows), NAMES).values()
    return sorted(json.loads(document))


def test_long_notes_and_titles_are_wrapped() -> None:
    table = cases([row(5.0, accelerator="A very long name " * 6)])
    printed = case_tables.render(table, ["a note " * 30], Screen(70))
    assert max(map(len, printed.splitlines())) <= 70
    assert "\n- a note a note" in printed
    assert "\n  a note a note" in printed


def test_absent_speedup_is_a_dash_and_null() -> None:
    rows = [row(5.0, "1n2g")]
    table = cases(rows)
    (made,) = case_tables.summary_tables(table)
    names = ["node_num", "gpu_num", "samples/s", "speedup", "efficiency", "n"]
    assert made.labels == names
    (line,) = made.rows
    assert [cell.text for cell in line] == ["1", "2", "5.00", "-", "-", "1"]
    assert json.loads(result_files.summary_json(table, [], []))["cases"][0]["speedup"] is None
    (document,) = result_files.results_by_batch(frame(rows), table, NAMES).values()
    speeds = {"average_speed": 5.0, "median_speed": 5.0, "speedup": None}
    assert json.loads(document) == {"rn50": {"1n2g": {**speeds, "batch_size_per_device": 128}}}


def test_60_columns_stack_interval_and_efficiency() -> None:
    rows = [*runs("1n1g", 384.04, 384.19, 385.31), *runs("4n8g", 9568.3, 9579.74, 9631.67)]
    assert case_tables.render(cases(rows), [], Screen(60)).splitlines()[2:] == [
        "| node_num |       samples/s |    speedup |   |",
        "|  gpu_num |        interval | efficiency | n |",
        "|----------|-----------------|------------|---|",
        "|        1 |          384.19 |       1.00 | 3 |",
        "|        1 |   384.04-385.31 |      100 % |   |",
        "|        4 |         9579.74 |      24.93 | 3 |",
        "|       32 | 9568.30-9631.67 |       78 % |   |",
    ]


def test_container_is_named_with_a_short_digest() -> None:
    image = "podman registry/tensorflow@sha256:" + "0123456789ab" + 52 * "c"
    printed = case_tables.render(cases([row(5.0, container=image)]), [])
    assert "in podman registry/tensorflow@sha256:0123456789ab " in " ".join(printed.split())
    assert "cc" not in printed


def test_short_names_that_would_collide() -> None:
    assert result_names(row(5.0)) == ["rn50"]
    assert result_names(row(5.0), row(5.0, precision="fp16")) == ["rn50", "rn50_fp16"]
    sources = (row(5.0, source="builtin"), row(5.0, source="upstream"))
    assert result_names(*sources) == ["rn50_builtin", "rn50_upstream"]
    assert result_names(row(5.0), row(5.0, workload="other", model="vgg")) == ["rn50", "vgg"]


def test_nothing_counted() -> None:
    table = cases([])
    assert case_tables.render(table, ["a reason"]) == "No run could be counted.\n\n- a reason\n"
    document = markdown.render(table, ["a reason"], ["log:3: bad\n  try again"])
    assert "No run could be counted." in document
    assert "## Not counted\n\n- log:3: bad\n    try again\n" in document
    assert result_files.results_by_batch(frame([]), table, NAMES) == {}
    summary = json.loads(result_files.summary_json(table, [], ["bad"]))
    assert summary == {"cases": [], "notes": [], "problems": ["bad"]}


def test_csv_is_read_back_as_it_was() -> None:
    values = ["plain", 'a "word"', "a,b", "a\nb", "a;b", None, "=1+1", "-x", "", " "]
    numbers = [0.0, -0.0, 1e-7, 1e22, 0.1, 1.0, 2.5, None, -3.0, 5.0]
    text = result_files.csv(
        [{"text": v, "number": n} for v, n in zip(values, numbers, strict=True)]
    )
    read = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    quoted = ["'=1+1" if value == "=1+1" else "'-x" if value == "-x" else value for value in values]
    assert read[0] == ["text", "number"]
    assert [line[0] for line in read[1:]] == [value or "" for value in quoted]
    assert [line[1] for line in read[1:]] == ["" if n is None else str(n) for n in numbers]
