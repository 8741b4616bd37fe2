"""The written report: what stands in it, that nothing planted in logs gets out of its place, and
that the same results give the same files."""

from __future__ import annotations

import base64
import csv
import functools
import hashlib
import itertools
import json
import re
import string
import struct
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import openpyxl
import pytest
from make_logs import campaign_run, gluoncv, published_tree
from report_examples import (
    CHINESE,
    FORMULA,
    IMAGE,
    SCRIPT,
    TOPOLOGIES,
    mxnet_campaign,
    paddle_campaign,
    tensorflow_campaign,
)
from typer.testing import CliRunner

from dlperf_runner.cli.main import app
from dlperf_runner.commands.report import Report, make_report
from dlperf_runner.core.errors import UserError
from dlperf_runner.report import pictures
from dlperf_runner.report.charts import COLOURS, Chart, Line, Point, vega_lite
from dlperf_runner.report.document_markdown import code, text
from dlperf_runner.report.figures import thinned
from dlperf_runner.report.labels import LANGUAGES, load_labels
from dlperf_runner.report.pictures import draw
from dlperf_runner.report.xlsx import sheet_name

# The published report: node_num, gpu_num, samples/s, speedup of MXNet ResNet50-v1b.
PUBLISHED = [
    ["1", "1", "384.19", "1.00"],
    ["1", "2", "749.04", "1.95"],
    ["1", "4", "1,494.58", "3.89"],
    ["1", "8", "2,556.03", "6.65"],
    ["2", "16", "4,855.34", "12.64"],
    ["4", "32", "9,579.74", "24.93"],
]
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """What a browser would see: elements with their attributes, texts by element, tables."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.stack: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.texts: dict[str, list[str]] = {}
        self._table = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "table":
            self._table = str(dict(attrs)["id"])
            self.tables[self._table] = []
        if tag == "tr":
            self.tables[self._table].append([])
        if tag in ("td", "th"):
            self.tables[self._table][-1].append("")
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.stack:
            self.texts.setdefault(self.stack[-1], []).append(data)
        if {"td", "th"} & set(self.stack):
            self.tables[self._table][-1][-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Path]:
    root = tmp_path_factory.mktemp("several")
    campaigns = [
        mxnet_campaign(root / "mxnet"),
        tensorflow_campaign(root / "tensorflow"),
        paddle_campaign(root / "paddle"),
    ]
    return make_report(campaigns, root / "report"), root / "report"


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("planted")
    make_report([mxnet_campaign(root / "a campaign", planted=True)], root / "report")
    return root / "report"


def live_charts(directory: Path) -> list[dict[str, Any]]:
    """The specifications of the page's charts, as its script puts them together."""
    html = (directory / "report.html").read_text(encoding="utf-8")
    (data,) = re.findall('<script type="application/json" id="charts">(.*?)</script>', html)
    known = json.loads(data)
    return [{k: known["parts"][n] for k, n in chart.items()} for chart in known["charts"]]


def page_of(directory: Path) -> Page:
    return Page((directory / "report.html").read_text(encoding="utf-8"))


# ---- what stands in it


def test_every_file_is_there(several: tuple[Report, Path]) -> None:
    report, directory = several
    names = {path.relative_to(directory).as_posix() for path in report.paths}
    stems = {
        f"plots/{number:02d}-{group}-{kind}"
        for number, group in enumerate(
            ("resnet50-fp32-b128", "resnet50-fp32-b256", "arcface-fp32-b128"), start=1
        )
        for kind in ("throughput", "speedup")
    }
    plots = {f"{stem}.{form}" for stem in stems for form in ("svg", "png")}
    data = {f"results.{form}" for form in ("csv", "json", "xlsx")}
    assert names == {"report.html", "report.md"} | data | plots
    written = {p.relative_to(directory).as_posix() for p in directory.rglob("*.*")}
    assert written - {"manifest.jsonl"} == names


def test_the_table_has_the_published_numbers_in_the_published_layout(
    several: tuple[Report, Path],
) -> None:
    table = page_of(several[1]).tables["table-1"]
    assert table[0][:4] == ["node_num", "gpu_num", "samples/s", "speedup"]
    assert [row[:4] for row in table[1:]] == PUBLISHED
    # Order statistics: with five runs the interval is their range (published_runs.csv).
    assert table[1][4] == "384.04 – 385.31"
    assert table[0][6:9] == ["efficiency", "n", "CV"]
    assert table[6][6:8] == ["77.9%", "5"]  # 24.93 / 32


def test_the_answer_is_one_line_per_framework(several: tuple[Report, Path]) -> None:
    heads = [answer.split(":")[0] for answer in several[0].answers]
    assert heads == [
        "mxnet 1.6.0.post0, resnet50v1b",
        "tensorflow, resnet50v1.5",
        "paddle, arcface",
    ]
    assert "9,579.74 samples/s on 32 devices on 4 nodes, 24.93 times 1n1g" in several[0].answers[0]
    page = page_of(several[1])
    assert [text + "." for text in page.texts["strong"]] == [
        answer[: len(text) + 1]
        for answer, text in zip(several[0].answers, page.texts["strong"], strict=True)
    ]


def test_frameworks_stand_side_by_side(several: tuple[Report, Path]) -> None:
    table = page_of(several[1]).tables["beside-1"]
    assert table[0][2:] == [
        f"{name} {what}"
        for name in ("mxnet b128", "tensorflow b256")
        for what in ("samples/s", "speedup")
    ]
    assert [row[1] for row in table[1:]] == ["1", "2", "4", "8", "16", "32"]
    assert table[2][2:] == ["749.04", "1.95", "-", "-"]
    assert table[6][2:] == ["9,579.74", "24.93", "12,671.90", "30.55"]


def test_failed_runs_differences_and_commands_are_there(several: tuple[Report, Path]) -> None:
    page = page_of(several[1])
    (lost,) = page.tables["not-counted"][1:]
    assert lost[1:] == ["8", "-", "failed: no route to host"]
    assert page.tables["differences"][1:] == [
        ["mxnet", "kernel", "6.1.0-17", "node1, node2, node3"],
        ["mxnet", "kernel", "6.1.0-18", "node4"],
    ]
    commands = page.texts["code"]
    run = "python -m dlperf_runner run --model resnet50 --batch-size 128 --repeats 5"
    assert commands[0] == run + " --parameter classes=10"
    first = "cd '/opt/dlperf/src/a b' && env NCCL_DEBUG=INFO /opt/dlperf/envs/mxnet/bin/python"
    assert commands[1] == f"# node1\n{first} -u mxnet_resnet50.py --topology 1n1g"


def test_every_measured_case_is_compared_with_what_was_published(
    several: tuple[Report, Path],
) -> None:
    table = page_of(several[1]).tables["published-1"]
    place = table[0].index("published")
    assert [row[place] for row in table[1:]] == [row[2] for row in PUBLISHED]
    ratios = [row[table[0].index("ratio")] for row in table[1:]]
    assert ratios == ["1.000"] * 6


def test_each_chart_draws_its_points_and_says_them_in_words(several: tuple[Report, Path]) -> None:
    page, charts = page_of(several[1]), live_charts(several[1])
    # Two per figure, one per case: 6 + 3 + 2.
    assert len(charts) == 3 * 2 + 11
    boxes = [a for a in page.all("div") if a.get("class") == "plot"]
    assert [box["data-chart"] for box in boxes] == [str(n) for n in range(len(charts))]
    plots = page.all("svg")
    assert len(plots) == 3 * 2
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


def test_charts_have_the_numbers_of_the_tables(several: tuple[Report, Path]) -> None:
    throughput, speedup, *_ = live_charts(several[1])
    ideal, mxnet, published = throughput["data"]["values"]
    medians = [float(row[2].replace(",", "")) for row in PUBLISHED]
    assert (mxnet["x"], mxnet["y"]) == ([1, 2, 4, 8, 16, 32], medians)
    assert (mxnet["low"][0], mxnet["high"][0]) == (384.04, 385.31)
    assert published["y"] == medians
    assert (ideal["x"], ideal["y"]) == ([1, 32], [384.19, 384.19 * 32])
    by_name = {line["line"]: line for line in speedup["data"]["values"]}
    assert [f"{value:.2f}" for value in by_name["mxnet"]["y"]] == [row[3] for row in PUBLISHED]
    assert by_name["ideal"]["y"] == [1, 32]


def test_axes_have_names_units_and_scales(several: tuple[Report, Path]) -> None:
    throughput, speedup, *_ = live_charts(several[1])
    for chart, name, scale in ((throughput, "samples/s", "log"), (speedup, "Speed-up", "linear")):
        x, y = chart["encoding"]["x"], chart["encoding"]["y"]
        assert (x["axis"]["title"], y["axis"]["title"]) == ("devices", name)
        assert {x["scale"]["type"], y["scale"]["type"]} == {scale}
        assert x["axis"]["values"] == [1, 2, 4, 8, 16, 32]
    assert speedup["encoding"]["y"]["scale"]["domain"][0] == 0


def test_warm_up_is_shaded_up_to_the_window(several: tuple[Report, Path]) -> None:
    charts = [chart for chart in live_charts(several[1]) if chart["layer"][0]["mark"] == "rect"]
    assert len(charts) == 11
    # 20 of 120 iterations.
    assert charts[0]["layer"][0]["data"]["values"] == [{"start": 0, "end": 20}]
    assert charts[0]["encoding"]["x"]["scale"]["domain"] == [0, 120]


# ---- a page that is alone, and safe


def test_the_page_forbids_itself_all_but_its_own_style_and_script(
    several: tuple[Report, Path],
) -> None:
    html = (several[1] / "report.html").read_text(encoding="utf-8")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)
    for tag in ("style", "script"):
        ((content),) = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        # The apostrophes of the policy are escaped in an attribute.
        assert f"{tag}-src &#39;sha256-{digest}&#39;" in policy
    assert policy.startswith("default-src &#39;none&#39;;")
    page = Page(html)
    allowed = {"data:,"}
    for _, attributes in page.elements:
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        assert attributes.get("src") is None
    assert {attributes["href"] for attributes in page.all("link")} == allowed


def test_the_licenses_of_the_script_stand_beside_it(several: tuple[Report, Path]) -> None:
    html = (several[1] / "report.html").read_text(encoding="utf-8")
    ((licenses),) = re.findall("<!--(.*?)-->\n<script>", html, re.DOTALL)
    assert "University of Washington Interactive Data Lab" in licenses
    assert "Redistributions in binary form must reproduce" in licenses


def test_the_page_is_well_formed_and_each_id_is_once(several: tuple[Report, Path]) -> None:
    page = page_of(several[1])
    assert page.stack == []
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        for name in str(attributes.get("aria-labelledby") or "").split():
            assert name in ids
        target = str(attributes.get("href") or "")
        assert not target.startswith("#") or target[1:] in ids
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert len(page.all("caption")) == len(page.all("table"))
    assert all(attributes["scope"] == "col" for attributes in page.all("th"))


def test_what_is_planted_in_records_is_text_on_the_page(planted: Path) -> None:
    html = (planted / "report.html").read_text(encoding="utf-8")
    page = Page(html)
    assert [script.get("type") for script in page.all("script")] == ["application/json", None]
    assert page.all("img") == []
    ((*_, why),) = page.tables["not-counted"][1:]
    assert why == f"failed: {SCRIPT}{IMAGE}{CHINESE}"
    (first, *_), *_ = [row for row in page.tables["nodes-1"][1:] if f"EPYC {SCRIPT}" in row]
    assert first == "node1"
    assert any(FORMULA in text for text in page.texts["span"])


def test_what_is_planted_is_text_in_markdown(planted: Path) -> None:
    markdown = (planted / "report.md").read_text(encoding="utf-8")
    assert "<script" not in markdown
    assert "<img" not in markdown
    assert CHINESE in markdown


def test_a_formula_is_text_in_the_spreadsheet_and_in_csv(planted: Path) -> None:
    book = openpyxl.load_workbook(planted / "results.xlsx")
    cells = [cell for sheet in book for row in sheet.iter_rows() for cell in row]
    formulas = [cell for cell in cells if cell.value == FORMULA]
    assert formulas
    assert {(cell.data_type, cell.quotePrefix) for cell in formulas} == {("s", True)}
    assert not [cell for cell in cells if cell.data_type == "f"]
    with (planted / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["accelerator"] for row in rows} == {f"'{FORMULA}"}
    assert json.loads((planted / "results.json").read_bytes())["cases"][0]["accelerator"] == FORMULA


@pytest.mark.parametrize(
    ("plain", "escaped"),
    [
        ("a|b", "a\\|b"),
        ("mean_of_rates", "mean_of_rates"),
        ("_a_ *b* `c`", "\\_a\\_ \\*b\\* \\`c\\`"),
        ("<b> &lt; & co", "&lt;b&gt; &amp;lt; & co"),
        ("[x](javascript:y)", "\\[x\\](javascript:y)"),
        ("two\nlines", "two lines"),
        ("- item", "\\- item"),
        ("# head", "\\# head"),
    ],
)
def test_markdown_escapes(plain: str, escaped: str) -> None:
    assert text(plain) == escaped


def test_a_block_of_code_cannot_be_left() -> None:
    assert code("a\n```\nb") == "````\na\n```\nb\n````"


# ---- the files beside it


def test_the_spreadsheet_has_numbers_with_formats(several: tuple[Report, Path]) -> None:
    book = openpyxl.load_workbook(several[1] / "results.xlsx")
    sheet = book.worksheets[0]
    header = [cell.value for cell in sheet[1]]
    rows = [dict(zip(header, row, strict=True)) for row in sheet.iter_rows(min_row=2)]
    assert len(rows) == len(TOPOLOGIES) + 3 + 2
    median = rows[5]["samples_per_second_median"]
    assert (median.value, median.number_format) == (9579.74, "#,##0.00")
    assert rows[5]["scaling_efficiency"].number_format == "0.0%"
    assert rows[5]["container"].value in (None, "")
    assert sheet.freeze_panes == "A2"


def test_csv_json_and_page_agree(several: tuple[Report, Path]) -> None:
    document = json.loads((several[1] / "results.json").read_bytes())
    with (several[1] / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    medians = [case["samples_per_second_median"] for case in document["cases"]]
    assert [float(row["samples_per_second_median"]) for row in rows] == medians
    assert medians[:6] == [float(row[2].replace(",", "")) for row in PUBLISHED]
    assert document["answers"] == list(several[0].answers)


def test_plots_of_an_older_report_go_and_files_of_others_stay(tmp_path: Path) -> None:
    both = [mxnet_campaign(tmp_path / "mxnet"), paddle_campaign(tmp_path / "paddle")]
    make_report(both, tmp_path / "report")
    (tmp_path / "report" / "plots" / "mine.svg").write_text("")
    report = make_report(both[:1], tmp_path / "report")
    others = {path.name for path in {*(tmp_path / "report").rglob("*.*")} - {*report.paths}}
    assert others == {"mine.svg", "manifest.jsonl"}
    (tmp_path / "report" / "results.json").write_text('{"plots": ["../../x", 3]}')
    make_report(both[:1], tmp_path / "report")


def test_sheets_have_names_that_spreadsheets_take() -> None:
    used: set[str] = set()
    names = [sheet_name(title, used) for title in ("a/b*c?", "x" * 40, "X" * 40, "'", "")]
    assert names == ["a b c", "x" * 31, "X" * 29 + " 2", "-", "- 2"]


def test_pictures_are_pictures(several: tuple[Report, Path]) -> None:
    for path in sorted((several[1] / "plots").glob("*.png")):
        data = path.read_bytes()
        assert data.startswith(b"\x89PNG\r\n\x1a\n")
        assert struct.unpack(">I", data[16:20]) == (720,)
        assert len(data) > 10_000  # a blank one has 3,000
    for path in (several[1] / "plots").glob("*.svg"):
        root = ElementTree.fromstring(path.read_bytes())  # noqa: S314
        assert root.get("width") == "480"
        assert [child.tag.rpartition("}")[2] for child in root[:2]] == ["title", "desc"]


def test_charts_have_only_colours_that_the_dark_page_replaces(several: tuple[Report, Path]) -> None:
    light = {light for light, _ in COLOURS.values()}
    for path in (several[1] / "plots").glob("*.svg"):
        used = set(re.findall(r'(?:fill|stroke)="([^"]+)"', path.read_text("utf-8")))
        assert used - {"none", "transparent"} <= light
    style = page_of(several[1]).texts["style"][0]
    assert all(f'.plot [fill="{colour}"]{{fill:' in style for colour in light)


def test_the_same_results_give_the_same_files(tmp_path: Path) -> None:
    campaign = mxnet_campaign(tmp_path / "mxnet")
    first = make_report([campaign], tmp_path / "a").paths
    make_report([campaign], tmp_path / "b")
    names = [path.relative_to(tmp_path / "a") for path in first]
    assert len(names) == 9
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


# ---- languages


def test_every_language_has_the_same_texts_and_blanks() -> None:
    assert LANGUAGES == ("en", "zh")
    english = load_labels("en").texts
    for language in LANGUAGES:
        texts = load_labels(language).texts
        assert texts.keys() == english.keys()
        for key, value in texts.items():
            assert isinstance(value, str), key
            assert _blanks(value) == _blanks(english[key]), key


def _blanks(value: str) -> set[str | None]:
    return {name for _, name, _, _ in string.Formatter().parse(value) if name is not None}


def test_a_chinese_report_is_in_chinese_with_the_published_columns(tmp_path: Path) -> None:
    make_report([mxnet_campaign(tmp_path / "mxnet")], tmp_path / "report", "zh")
    page = page_of(tmp_path / "report")
    assert page.all("html") == [{"lang": "zh"}]
    assert page.texts["h1"] == ["性能测试报告"]
    assert page.tables["table-1"][0][:4] == ["node_num", "gpu_num", "samples/s", "speedup"]
    headings = "".join(page.texts["h2"])
    assert not re.search("[A-Za-z]", headings)


def test_titles_are_those_of_the_summary(several: tuple[Report, Path]) -> None:
    title = "mxnet-resnet50v1b builtin, fp32, batch size 128 per device, data=synthetic"
    spans = page_of(several[1]).texts["span"]
    hardware = "V100-SXM2-16GB, v100-cuda10.2"
    assert f"{title}, version 1.6.0.post0, {hardware}, driver 440.33.01, mxnet" in spans


@pytest.mark.parametrize("has_letters", [False, True])
def test_without_a_chinese_font_pictures_speak_english(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_letters: bool
) -> None:
    # Another process calls it.
    known = functools.partial(bool, has_letters)
    monkeypatch.setattr("dlperf_runner.commands.report.has_chinese_font", known)
    campaign = mxnet_campaign(tmp_path / "mxnet")
    report = make_report([campaign], tmp_path / "zh", "zh")
    make_report([campaign], tmp_path / "en")
    name = "plots/01-resnet50-fp32-b128-speedup"
    english, chinese = ((tmp_path / at / f"{name}.png").read_bytes() for at in ("en", "zh"))
    assert (chinese == english) is not has_letters
    assert report.notes == (() if has_letters else (load_labels("zh")("png_language"),))
    assert "加速比" in (tmp_path / "zh" / f"{name}.svg").read_text("utf-8")


def test_an_unknown_language_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected one of en, zh"):
        make_report([tmp_path], None, "../en")


# ---- odd results


def test_a_campaign_without_a_counted_run_gives_a_page(tmp_path: Path) -> None:
    failed = {"status": "failed", "message": "the node went away"}
    campaign_run(tmp_path / "c", "1n1g", 1, None, outcome=failed)
    report = make_report([tmp_path / "c"])
    page = page_of(tmp_path / "c" / "report")
    assert report.answers == ()
    assert "No run could be counted." in "".join(page.texts["p"])
    assert page.tables["not-counted"][1][-1] == "failed: the node went away"
    assert page.all("svg") == []


def test_one_case_has_a_table_and_its_series_but_no_scaling_plot(tmp_path: Path) -> None:
    campaign_run(tmp_path / "c", "1n2g", 1, gluoncv(700.0))
    make_report([tmp_path / "c"])
    page = page_of(tmp_path / "c" / "report")
    assert page.tables["table-1"][1][:3] == ["1", "2", "700.00"]
    assert page.all("svg") == []
    assert len(live_charts(tmp_path / "c" / "report")) == 1
    assert not (tmp_path / "c" / "report" / "plots").exists()


def test_a_log_that_cannot_be_believed_is_a_problem_and_told(tmp_path: Path) -> None:
    campaign_run(tmp_path / "c", "1n1g", 1, gluoncv(384.0))
    campaign_run(tmp_path / "c", "1n2g", 1, gluoncv(700.0, batch=64))
    report = make_report([tmp_path / "c"])
    (problem,) = report.problems
    page = page_of(tmp_path / "c" / "report")
    told = str(problem).replace(f"{tmp_path / 'c'}/", "")
    assert told in "".join(page.texts["li"])
    assert told in page.tables["not-counted"][1][-1]


def test_a_report_cannot_be_written_where_a_file_is(tmp_path: Path) -> None:
    campaign_run(tmp_path / "c", "1n1g", 1, gluoncv(384.0))
    (tmp_path / "c" / "report").write_text("mine")
    with pytest.raises(UserError, match="cannot write the result"):
        make_report([tmp_path / "c"])
    assert (tmp_path / "c" / "report").read_text() == "mine"


# ---- charts


def test_a_long_series_is_thinned_and_keeps_what_sticks_out() -> None:
    pairs = [(n, 100.0) for n in range(10_000)]
    pairs[1234] = (1234, 5.0)
    pairs[9876] = (9876, 250.0)
    kept = thinned(pairs, 100)
    assert len(kept) <= 100
    assert {(1234, 5.0), (9876, 250.0)} <= set(kept)
    assert [step for step, _ in kept] == sorted(step for step, _ in kept)
    assert thinned(pairs[:50], 100) == pairs[:50]


def chart(*values: float, log: bool = True) -> Chart:
    points = tuple(Point(2.0**n, value) for n, value in enumerate(values))
    return Chart("a", "b", "x", "y", (Line("line", points),), log=log)


@pytest.mark.parametrize(
    "values",
    [(1.0, 1.0), (1e-9, 1e9), (5.0,), (384.19, 384.2), (0.5, 0.25, 0.1)],
)
@pytest.mark.parametrize("log", [True, False])
def test_any_positive_values_stay_inside_the_picture(values: tuple[float, ...], log: bool) -> None:
    root = ElementTree.fromstring(draw(chart(*values, log=log)).svg)  # noqa: S314
    marks = [g for g in root.iter() if "mark-symbol role-mark" in g.get("class", "")]
    places = [re.findall(r"[-\d.e]+", p.get("transform", "")[10:]) for g in marks for p in g]
    assert len(places) == len(values)
    for x, y in places:
        assert 0 <= float(x) <= 480
        assert -1e-6 <= float(y) <= 250 + 1e-6


@pytest.mark.parametrize("values", [(1.0, 1.0), (384.19, 384.2), (1.0, 1e9), (3.0, 40.0)])
def test_a_logarithmic_axis_has_ticks(values: tuple[float, ...]) -> None:
    axis = vega_lite(chart(*values))["encoding"]["y"]
    low, high = axis["scale"]["domain"]
    assert 1 <= len(axis["axis"]["values"]) <= 20
    assert all(low <= tick <= high for tick in axis["axis"]["values"])


def test_published_points_of_another_accelerator_are_said_to_be(
    several: tuple[Report, Path],
) -> None:
    """975 images/s on an A100 stand above 415 on a V100."""
    page = (several[1] / "report.html").read_text(encoding="utf-8")
    assert "tensorflow, published (A100, V100)</text>" in page
    assert "paddle, published (V100)</text>" in page


def test_text_in_a_picture_is_text() -> None:
    hostile = Line(f'{SCRIPT}"\x00\ud800', (Point(1, 1, hint="<&>"), Point(2, 2)))
    picture = draw(Chart(SCRIPT, "]]>\x00", "x", "y", (hostile,)))
    root = ElementTree.fromstring(picture.svg)  # noqa: S314
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))
    assert SCRIPT in "".join(root.itertext())


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_the_program_of_the_page_is_kept_and_made_anew_where_it_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = pictures.program()
    assert "window.vegaEmbed=" in made
    assert "</script" not in made
    (kept,) = (tmp_path / "dlperf_runner").iterdir()
    assert kept.read_text(encoding="utf-8") == made
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert pictures.program() == made
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert pictures.program() == made


# ---- the command


def call(*arguments: str, status: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(app, ["report", *arguments])
    assert result.exit_code == status, result.output
    return result.stdout, result.stderr


def test_the_command_prints_the_answer_and_its_files(tmp_path: Path) -> None:
    campaign = mxnet_campaign(tmp_path / "mxnet")
    out, err = call(str(campaign), status=1)  # one of its runs failed
    answer, *files = out.splitlines()
    assert answer.startswith("mxnet 1.6.0.post0, resnet50v1b: 9,579.74 samples/s")
    assert all(Path(file).is_file() for file in files)
    assert files[0] == str(campaign / "report" / "report.html")
    assert err == ""
    arguments = (str(campaign), "--json", "--output-dir", str(tmp_path / "b"))
    document = json.loads(call(*arguments, status=1)[0])
    assert document["answers"] == [answer]
    assert [Path(file).name for file in document["files"]] == [Path(file).name for file in files]


def test_stated_conditions_decide_what_is_reproduced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What logs do not say is not comparable; once stated, the published speeds are reproduced."""
    monkeypatch.chdir(tmp_path)
    published_tree(tmp_path / "logs", "mxnet-resnet50v1b.md")
    verdicts = []
    stated = ("accelerator=V100-SXM2-16GB", "data=real", "xla=false", "image_size=224")
    for conditions in ([], [f"--condition={item}" for item in stated]):
        call(str(tmp_path / "logs"), *conditions)
        page = page_of(tmp_path / "results" / "logs" / "report")
        place = page.tables["published-1"][0].index("verdict")
        verdicts.append({row[place] for row in page.tables["published-1"][1:]})
    assert verdicts == [{"not comparable"}, {"reproduced"}]


def test_a_problem_is_exit_status_2_and_the_report_is_there(tmp_path: Path) -> None:
    campaign_run(tmp_path / "c", "1n1g", 1, gluoncv(384.0))
    campaign_run(tmp_path / "c", "1n2g", 1, gluoncv(700.0, batch=64))
    _, err = call(str(tmp_path / "c"), status=2)
    assert err.startswith("error: ")
    assert (tmp_path / "c" / "report" / "report.html").is_file()


def test_a_directory_without_logs_is_told(tmp_path: Path) -> None:
    _, err = call(str(tmp_path), status=2)
    assert "no logs found" in err
