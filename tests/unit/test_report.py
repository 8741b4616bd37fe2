"""Writers: what is absent stays absent, and a terminal's width is kept."""

from __future__ import annotations

import json

from frame_rows import row

from dlperf_runner.core.frame import Row, make_frame
from dlperf_runner.report import data, layout, markdown, text
from dlperf_runner.stats.summary import summarize

NAMES = {("mxnet-resnet50v1b", "resnet50v1b"): "rn50"}


def result_names(*rows: Row) -> list[str]:
    frame = make_frame(rows)
    (document,) = data.results_by_batch(frame, summarize(frame), NAMES).values()
    return sorted(json.loads(document))


def test_long_notes_and_titles_are_wrapped() -> None:
    table = summarize(make_frame([row(5.0, accelerator="A very long name " * 6)]))
    printed = text.render(table, ["a note " * 30], width=70)
    assert max(map(len, printed.splitlines())) <= 70
    assert "\n- a note a note" in printed
    assert "\n  a note a note" in printed


def test_absent_speedup_is_a_dash_and_null() -> None:
    frame = make_frame([row(5.0, "1n2g")])
    table = summarize(frame)
    ((_, (header, *rows)),) = layout.groups(table)
    assert header == layout.HEADER
    assert rows == [("1", "2", "5.00", "-", "-", "1")]
    assert json.loads(data.summary(table, [], []))["cases"][0]["speedup"] is None
    (document,) = data.results_by_batch(frame, table, NAMES).values()
    assert json.loads(document) == {
        "rn50": {
            "1n2g": {
                "average_speed": 5.0,
                "batch_size_per_device": 128,
                "median_speed": 5.0,
                "speedup": None,
            }
        }
    }


def memory(mib: float, topology: str = "1n1g") -> Row:
    return row(mib, topology, metric="gpu_memory_peak", unit="MiB", estimator="max_of_samples")


def of_oneflow(rows: list[Row]) -> list[Row]:
    """Its published tables have three decimals."""
    return [row._replace(workload="oneflow-resnet50v1.5") for row in rows]


def test_gpu_memory_has_a_column_where_it_was_measured() -> None:
    """As the OneFlow report tabulates it."""
    rows = [row(383.76), memory(12565.0), row(747.295, "1n2g")]
    table = summarize(make_frame(of_oneflow(rows)))
    assert "GPU memory (MiB)" in text.render(table, [])
    assert (
        "| node_num | gpu_num | samples/s | speedup | efficiency | n | GPU memory (MiB) |\n"
        "| -------- | ------- | --------- | ------- | ---------- | - | ---------------- |\n"
        "| 1        | 1       | 383.760   | 1.00    | 100 %      | 1 | 12565            |\n"
        "| 1        | 2       | 747.295   | 1.95    | 97 %       | 1 | -                |\n"
    ) in markdown.render(table, [], [])
    first, second = json.loads(data.summary(table, [], []))["cases"]
    assert (first["gpu_memory_mib"], second["gpu_memory_mib"]) == (12565.0, None)


def test_no_column_and_no_number_where_no_memory_was_measured() -> None:
    table = summarize(make_frame([row(5.0)]))
    assert "memory" not in text.render(table, [])
    assert json.loads(data.summary(table, [], []))["cases"][0]["gpu_memory_mib"] is None


def repeated(topology: str, *values: float) -> list[Row]:
    return [row(value, topology, repeat=n) for n, value in enumerate(values, start=1)]


def test_median_with_its_interval() -> None:
    rows = [*repeated("1n1g", 100.0, 101.0, 103.0), *repeated("1n2g", 190.5)]
    (rendered,) = (rows for _, rows in layout.groups(summarize(make_frame(rows))))
    assert layout.table_lines(rendered)[2:] == [
        "| 1        | 1       | 101.00    | 100.00-103.00 | 1.00    | 100 %      | 3 |",
        "| 1        | 2       | 190.50    | -             | 1.89    | 94 %       | 1 |",
    ]


def test_columns_that_do_not_fit_are_left_out_and_told() -> None:
    rows = [
        *repeated("1n1g", 11548.451, 11549.451, 11550.451),
        *(memory(12565.0), *repeated("1n2g", 22000.0, 23000.0)),
    ]
    table = summarize(make_frame(of_oneflow(rows)))
    printed = {width: text.render(table, [], width) for width in (100, 90, 72, 60)}
    for width, document in printed.items():
        assert max(map(len, document.splitlines())) <= width
        assert ("GPU memory (MiB) |" in document) == (width > 110)
        assert ("| efficiency |" in document) == (width > 85)
        assert ("| interval " in document) == (width > 70)
        assert "| 11549.451 |" in document
        assert "| speedup | n |" in document or width > 85
    assert "- 60 columns do not hold: GPU memory (MiB), efficiency, interval; summary.csv" in (
        " ".join(printed[60].split())
    )
    assert "do not hold" not in text.render(table, [], 120)


def test_container_is_named_with_a_short_digest() -> None:
    image = "podman registry/tensorflow@sha256:" + "0123456789ab" + 52 * "c"
    printed = text.render(summarize(make_frame([row(5.0, container=image)])), [])
    assert "in podman registry/tensorflow@sha256:0123456789ab " in " ".join(printed.split())
    assert "cc" not in printed


def test_short_names_that_would_collide() -> None:
    assert result_names(row(5.0)) == ["rn50"]
    assert result_names(row(5.0), row(5.0, precision="fp16")) == ["rn50", "rn50_fp16"]
    assert result_names(row(5.0, source="builtin"), row(5.0, source="upstream")) == [
        "rn50_builtin",
        "rn50_upstream",
    ]
    assert result_names(row(5.0), row(5.0, workload="other", model="vgg")) == ["rn50", "vgg"]


def test_nothing_counted() -> None:
    table = summarize(make_frame([]))
    assert text.render(table, ["a reason"]) == "No run could be counted.\n\n- a reason\n"
    document = markdown.render(table, ["a reason"], ["log:3: bad\n  try again"])
    assert "No run could be counted." in document
    assert "## Not counted\n\n- log:3: bad\n    try again\n" in document
    assert data.results_by_batch(make_frame([]), table, NAMES) == {}
    assert json.loads(data.summary(table, [], ["bad"])) == {
        "cases": [],
        "notes": [],
        "problems": ["bad"],
    }


def test_csv_has_nothing_for_what_is_absent() -> None:
    header, line = data.csv(make_frame([row(None, valid=False, why_invalid="a, b")])).splitlines()
    found = dict(zip(header.split(","), line.split(","), strict=False))
    assert (found["value"], found["driver"], found["valid"]) == ("", "", "False")
    assert line.endswith('"a, b"')
