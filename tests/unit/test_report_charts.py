"""The charts of the report, and the pictures made of them."""

from __future__ import annotations

import functools
import json
import re
import struct
from itertools import product
from pathlib import Path
from unittest.mock import Mock
from xml.etree import ElementTree

import pytest
from make_logs import gluoncv, write
from report_examples import TOPOLOGIES
from report_page import PUBLISHED, live_charts, page_of

from dlperf_runner.commands.report import Report, data_files, make_report
from dlperf_runner.report import charts
from dlperf_runner.report.charts import Chart, ChartPoint, Line, Scale
from dlperf_runner.report.labels import load_labels


def test_each_chart_draws_its_points_and_says_them_in_words(report_folder: Path) -> None:
    page, charts = page_of(report_folder), live_charts(report_folder)
    # Three per figure, one per case: 6 + 3 + 2.
    assert len(charts) == 3 * 3 + 11
    boxes = [a for a in page.all("div") if a.get("class") == "plot"]
    assert [box["data-chart"] for box in boxes] == [str(n) for n in range(len(charts))]
    plots = page.all("svg")
    assert len(plots) == 3 * 3
    assert all(plot["role"] == "img" for plot in plots)
    lines = [line for chart in charts for line in chart["data"]["values"]]
    hints = [hint for line in lines if line["line"] == "mxnet" for hint in line["hint"]]
    assert "mxnet: 24.93 times on 32 devices (24.86 to 25.07)" in hints
    assert sum("samples/s on" in hint for hint in hints) == len(TOPOLOGIES)
    published = [line for line in lines if line["line"] == "mxnet, published (V100)"]
    assert any("9,579.74" in hint for line in published for hint in line["hint"])
    described = "".join(page.texts["desc"])
    assert "9,579.74 samples/s on 32 devices (9,568.30 to 9,631.67)" in described
    assert charts[0]["description"] in described


def test_charts_have_the_numbers_of_the_tables(report_folder: Path) -> None:
    throughput, per_device, speedup, *_ = live_charts(report_folder)
    ideal, mxnet, published = throughput["data"]["values"]
    medians = [float(row[2].replace(",", "")) for row in PUBLISHED]
    assert (mxnet["x"], mxnet["y"]) == ([1, 2, 4, 8, 16, 32], medians)
    assert (mxnet["low"][0], mxnet["high"][0]) == (384.04, 385.31)
    assert published["y"] == medians
    assert (ideal["x"], ideal["y"]) == ([1, 32], [384.19, 384.19 * 32])
    level, each, _ = per_device["data"]["values"]
    assert level["y"] == [384.19, 384.19]
    assert each["y"] == [float(f"{y / x:.7g}") for x, y in zip(mxnet["x"], medians, strict=True)]
    by_name = {line["line"]: line for line in speedup["data"]["values"]}
    assert [f"{value:.2f}" for value in by_name["mxnet"]["y"]] == [row[3] for row in PUBLISHED]
    assert by_name["ideal"]["y"] == [1, 32]


def test_axes_have_names_units_and_scales(report_folder: Path) -> None:
    names = {"samples/s": "log", "samples/s/device": "linear", "Speed-up": "log"}
    for chart, (name, scale) in zip(live_charts(report_folder), names.items(), strict=False):
        x, y = chart["encoding"]["x"], chart["encoding"]["y"]
        assert (x["axis"]["title"], y["axis"]["title"]) == ("devices", name)
        assert (x["scale"]["type"], y["scale"]["type"]) == ("log", scale)
        assert x["axis"]["values"] == [1, 2, 4, 8, 16, 32]
        assert (y["scale"]["domain"][0] == 0) is (scale == "linear")


def test_one_chart_has_all_precisions_and_batch_sizes_of_a_model(tmp_path: Path) -> None:
    for batch, topology in product((64, 128), ("1n1g", "1n2g")):
        path = tmp_path / f"logs/bz{batch}/{topology}/rn50_b{batch}_fp32_1.log"
        write(path, gluoncv(4.0 * batch * int(topology[2]), batch=batch))
    options = {"lang": "en", "conditions": [], "one_chart": True}
    document = json.loads(data_files([tmp_path / "logs"], None, options)["results.json"])
    kinds = ("throughput", "per-device", "speedup")
    assert document["plots"] == [f"01-resnet50-{kind}" for kind in kinds]
    assert document["command"].endswith("--one-chart")


def test_warm_up_is_shaded_up_to_the_window(report_folder: Path) -> None:
    charts = [chart for chart in live_charts(report_folder) if chart["layer"][0]["mark"] == "rect"]
    assert len(charts) == 11
    # 20 of 120 iterations.
    assert charts[0]["layer"][0]["data"]["values"] == [{"start": 0, "end": 20}]
    assert charts[0]["encoding"]["x"]["scale"]["domain"] == [0, 120]


def test_pictures_are_pictures(report_folder: Path) -> None:
    for path in sorted((report_folder / "plots").glob("*.png")):
        data = path.read_bytes()
        assert data.startswith(b"\x89PNG\r\n\x1a\n")
        assert struct.unpack(">I", data[16:20]) == (720,)
        assert len(data) > 10_000  # a blank one has 3,000
    for path in (report_folder / "plots").glob("*.pdf"):
        assert path.read_bytes().startswith(b"%PDF-")
    for path in (report_folder / "plots").glob("*.svg"):
        root = ElementTree.fromstring(path.read_bytes())  # noqa: S314
        assert root.get("width") == "480"
        assert [child.tag.rpartition("}")[2] for child in root[:2]] == ["title", "desc"]


def test_charts_have_only_colours_that_the_dark_page_replaces(report_folder: Path) -> None:
    light = {light for light, _ in charts.COLOURS.values()}
    for path in (report_folder / "plots").glob("*.svg"):
        used = set(re.findall(r'(?:fill|stroke)="([^"]+)"', path.read_text("utf-8")))
        assert used - {"none", "transparent"} <= light
    style = page_of(report_folder).texts["style"][0]
    assert all(f'.plot [fill="{colour}"]{{fill:' in style for colour in light)


@pytest.mark.parametrize("has_letters", [False, True])
def test_without_a_chinese_font_pictures_speak_english(
    report_folder: Path,
    chinese: Report,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    has_letters: bool,
) -> None:
    # Another process calls it.
    known = functools.partial(bool, has_letters)
    monkeypatch.setattr("dlperf_runner.commands.report.look_different", known)
    campaign = chinese.paths[0].parents[1] / "mxnet"
    report = make_report([campaign], tmp_path / "zh", "zh")
    name = "plots/01-resnet50-fp32-b128-speedup"
    english, other = ((at / f"{name}.png").read_bytes() for at in (report_folder, tmp_path / "zh"))
    assert (other == english) is not has_letters
    assert report.notes == (() if has_letters else (load_labels("zh")("png_language"),))
    assert "加速比" in (tmp_path / "zh" / f"{name}.svg").read_text("utf-8")


def test_letters_are_looked_for_in_the_fonts_of_charts() -> None:
    """Latin letters are in a font that vl-convert has with it; those of no font are all alike."""
    assert charts.look_different("a", "b")
    assert not charts.look_different("a", "a")
    assert not charts.look_different("\U000f0001", "\U000f0002")  # for private use


def test_a_long_series_is_thinned_and_keeps_what_sticks_out() -> None:
    pairs = [(n, 100.0) for n in range(10_000)]
    pairs[1234] = (1234, 5.0)
    pairs[9876] = (9876, 250.0)
    kept = charts.thinned(pairs, 100)
    assert len(kept) <= 100
    assert {(1234, 5.0), (9876, 250.0)} <= set(kept)
    assert [step for step, _ in kept] == sorted(step for step, _ in kept)
    assert charts.thinned(pairs[:50], 100) == pairs[:50]


def chart(*values: float, scale: Scale = "log") -> Chart:
    points = tuple(ChartPoint(2.0**n, value) for n, value in enumerate(values))
    return Chart("a", "b", "x", "y", (Line("line", points),), scale)


@pytest.mark.parametrize(
    "values", [(1.0, 1.0), (1e-9, 1e9), (5.0,), (384.19, 384.2), (0.5, 0.25, 0.1)]
)
@pytest.mark.parametrize("scale", ["log", "log x", "linear"])
def test_any_positive_values_stay_inside_the_picture(
    values: tuple[float, ...], scale: Scale
) -> None:
    drawn = chart(*values, scale=scale)
    root = ElementTree.fromstring(charts.draw(drawn).svg)  # noqa: S314
    marks = [g for g in root.iter() if "mark-symbol role-mark" in g.get("class", "")]
    places = [re.findall(r"[-\d.e]+", p.get("transform", "")[10:]) for g in marks for p in g]
    assert len(places) == len(values)
    for x, y in places:
        assert 0 <= float(x) <= 480
        assert -1e-6 <= float(y) <= 250 + 1e-6
    axis = charts.vega_lite(drawn)["encoding"]["y"]
    low, high = axis["scale"]["domain"]
    if scale == "log":
        assert 1 <= len(axis["axis"]["values"]) <= 20
        assert all(low <= tick <= high for tick in axis["axis"]["values"])


def test_published_points_of_another_accelerator_are_said_to_be(report_folder: Path) -> None:
    """975 images/s on an A100 stand above 415 on a V100."""
    page = (report_folder / "report.html").read_text(encoding="utf-8")
    assert "tensorflow, published (A100, V100)</text>" in page
    assert "paddle, published (V100)</text>" in page


def test_the_program_of_the_page_is_kept_and_made_anew_where_it_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = charts.program()
    assert "window.vegaEmbed=" in made
    assert "</script" not in made
    (kept,) = (tmp_path / "dlperf_runner").iterdir()
    assert kept.read_text(encoding="utf-8") == made
    monkeypatch.setattr("vl_convert.javascript_bundle", lambda _: made)  # which takes two seconds
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert charts.program() == made
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError("no home directory")))
    assert charts.program() == made
