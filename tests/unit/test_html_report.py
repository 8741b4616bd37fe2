"""The written report: what stands in it, that nothing planted in logs gets out of its place, and
that the same results give the same files."""

from __future__ import annotations

import base64
import csv
import hashlib
import itertools
import json
import re
import string
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import openpyxl
import pytest
from make_logs import campaign_run, gluoncv, published_tree
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
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
from dlperf_runner.report import png, svg
from dlperf_runner.report.charts import (
    COLOURS,
    Box,
    Chart,
    Drawing,
    Line,
    Point,
    Shape,
    Text,
    draw,
    text_width,
)
from dlperf_runner.report.document_markdown import code, text
from dlperf_runner.report.figures import thinned
from dlperf_runner.report.labels import LANGUAGES, load_labels
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
    assert names == {p.relative_to(directory).as_posix() for p in directory.rglob("*.*")}


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
    page = page_of(several[1])
    plots = page.all("svg")
    # Two per figure, one per case: 6 + 3 + 2.
    assert len(plots) == 3 * 2 + 11
    assert all(plot["role"] == "img" for plot in plots)
    hints = [text for text in page.texts["title"] if text.startswith("mxnet:")]
    assert "mxnet: 24.93 times on 32 devices (24.86 to 25.07)" in hints
    assert sum("samples/s on" in hint for hint in hints) == len(TOPOLOGIES)
    published = [
        text for text in page.texts["title"] if text.startswith("mxnet, published (V100):")
    ]
    assert any("9,579.74" in text for text in published)
    described = "".join(page.texts["desc"])
    assert "9,579.74 samples/s on 32 devices (9,568.30 to 9,631.67)" in described


def test_warm_up_is_shaded_up_to_the_window(several: tuple[Report, Path]) -> None:
    # 20 of 120 iterations: a sixth of the axis, which is 384 pixels wide.
    shades = [a for a in page_of(several[1]).all("rect") if a["class"] == "f-shade"]
    assert len(shades) == 11
    assert float(str(shades[0]["width"])) == pytest.approx(384 * 20 / 120, abs=0.1)


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
    assert len(page.all("script")) == 1
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
    assert rows[5]["container"].value is None
    assert sheet.freeze_panes == "A2"


def test_csv_json_and_page_agree(several: tuple[Report, Path]) -> None:
    document = json.loads((several[1] / "results.json").read_bytes())
    with (several[1] / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    medians = [case["samples_per_second_median"] for case in document["cases"]]
    assert [float(row["samples_per_second_median"]) for row in rows] == medians
    assert medians[:6] == [float(row[2].replace(",", "")) for row in PUBLISHED]
    assert document["answers"] == list(several[0].answers)


def test_a_helper_makes_the_same_pictures_and_workbook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = mxnet_campaign(tmp_path / "mxnet")
    files = []
    for few, folder in ((1000, tmp_path / "alone"), (0, tmp_path / "helped")):
        monkeypatch.setattr("dlperf_runner.commands.report._FEW_PICTURES", few)
        monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
        paths = make_report([campaign], folder).paths
        files.append({path.relative_to(folder): path.read_bytes() for path in paths})
    assert files[0] == files[1]
    assert list(files[0]) == list(files[1])


def test_plots_of_an_older_report_go_and_files_of_others_stay(tmp_path: Path) -> None:
    both = [mxnet_campaign(tmp_path / "mxnet"), paddle_campaign(tmp_path / "paddle")]
    make_report(both, tmp_path / "report")
    (tmp_path / "report" / "plots" / "mine.svg").write_text("")
    report = make_report(both[:1], tmp_path / "report")
    (of_others,) = set((tmp_path / "report").rglob("*.*")) - set(report.paths)
    assert of_others.name == "mine.svg"
    (tmp_path / "report" / "results.json").write_text('{"plots": ["../../x", 3]}')
    make_report(both[:1], tmp_path / "report")


def test_sheets_have_names_that_spreadsheets_take() -> None:
    used: set[str] = set()
    names = [sheet_name(title, used) for title in ("a/b*c?", "x" * 40, "X" * 40, "'", "")]
    assert names == ["a b c", "x" * 31, "X" * 29 + " 2", "-", "- 2"]


def test_pictures_are_pictures(several: tuple[Report, Path]) -> None:
    import matplotlib.image

    for path in sorted((several[1] / "plots").glob("*.png")):
        pixels = matplotlib.image.imread(BytesIO(path.read_bytes()))
        assert pixels.shape[1] == 720
        # Lines, marks and letters: neither blank nor black.
        assert 0.01 < (pixels.min(axis=2) < 0.75).mean() < 0.2
    for path in (several[1] / "plots").glob("*.svg"):
        assert ElementTree.fromstring(path.read_bytes()).tag.endswith("svg")  # noqa: S314


def pixels_of(*shapes: Shape, fonts: tuple[str, ...] = ("DejaVu Sans",)) -> Any:
    import matplotlib.image

    picture = png.render(Drawing(200, 40, "", "", shapes), fonts)
    return matplotlib.image.imread(BytesIO(picture))


@pytest.mark.parametrize("colour", COLOURS)
def test_pictures_have_the_colours_of_the_drawing(colour: str) -> None:
    pixels = (pixels_of(Box(10, 10, 20, 20, colour)) * 255).round().astype(int)
    assert bytes(pixels[30, 30, :3].tolist()).hex() == COLOURS[colour][0].removeprefix("#")
    assert pixels[5, 5].min() == 255


def test_letters_that_a_font_lacks_are_of_the_next() -> None:
    text = Text(10, 20, "samples/s × 3")
    # It has signs alone.
    fonts = ("DejaVu Sans Display", "DejaVu Sans")
    assert (pixels_of(text, fonts=fonts) == pixels_of(text)).all()
    assert pixels_of(text).min() < 0.3


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
    title = "mxnet-resnet50v1b builtin, fp32, batch size 128 per device, version 1.6.0.post0, gpu"
    spans = page_of(several[1]).texts["span"]
    assert f"{title}, v100-cuda10.2, driver 440.33.01, mxnet" in spans


def test_without_a_chinese_font_pictures_speak_english(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []
    render = png.render
    monkeypatch.setattr(png, "chinese_font", lambda: None)
    monkeypatch.setattr(
        png, "render", lambda drawing, fonts: drawn.append(drawing.title) or render(drawing, fonts)
    )
    report = make_report([mxnet_campaign(tmp_path / "mxnet")], tmp_path / "report", "zh")
    assert drawn == ["Throughput", "Speed-up"]
    assert report.notes == (load_labels("zh")("png_language"),)
    picture = (tmp_path / "report/plots/01-resnet50-fp32-b128-speedup.svg").read_text("utf-8")
    assert "加速比" in picture


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
    assert len(page.all("svg")) == 1
    assert not (tmp_path / "c" / "report" / "plots").exists()


def test_a_log_that_cannot_be_believed_is_a_problem_and_told(tmp_path: Path) -> None:
    campaign_run(tmp_path / "c", "1n1g", 1, gluoncv(384.0))
    campaign_run(tmp_path / "c", "1n2g", 1, gluoncv(700.0, batch=64))
    report = make_report([tmp_path / "c"])
    (problem,) = report.problems
    page = page_of(tmp_path / "c" / "report")
    assert str(problem) in "".join(page.texts["li"])
    assert str(problem) in page.tables["not-counted"][1][-1]


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
def test_any_positive_values_stay_inside_the_drawing(values: tuple[float, ...], log: bool) -> None:
    drawing = draw(chart(*values, log=log))
    root = ElementTree.fromstring(svg.file(drawing))  # noqa: S314
    numbers = [float(root.get(name, "nan")) for name in ("width", "height")]
    for circle in root.iter("{http://www.w3.org/2000/svg}circle"):
        for name, most in zip(("cx", "cy"), numbers, strict=True):
            assert 0 <= float(circle.get(name, "nan")) <= most


@pytest.mark.parametrize(
    "name",
    [
        "mxnet 20261121T063921Z",
        "mxnet 20261121T063921Z b128 V100-SXM2-16GB",
        "tensorflow, published",
        "100,000",
        "mxnet builtin mmm WWW",
    ],
)
def test_names_of_lines_have_the_room_that_they_take(name: str) -> None:
    """Else a name runs into the mark of the next line in the legend."""
    path = TextPath((0, 0), name, size=13, prop=FontProperties(family="DejaVu Sans"))
    taken = path.get_extents().width
    assert taken - 6 < text_width(name, 13) < 1.1 * taken + 6


def test_large_rates_keep_clear_of_the_name_of_their_axis() -> None:
    drawing = draw(chart(98_000.0, 99_000.0, 100_000.0, log=False))
    (name,) = [shape for shape in drawing.shapes if isinstance(shape, Text) and shape.upright]
    ticks = [s for s in drawing.shapes if isinstance(s, Text) and s.anchor == "end"]
    assert any(tick.text == "100,000" for tick in ticks)
    # Of upright letters of 13 pixels, 3 are below the line that they stand on.
    assert all(tick.x - text_width(tick.text, 13) > name.x + 3 for tick in ticks)


def test_published_points_of_another_accelerator_are_said_to_be(
    several: tuple[Report, Path],
) -> None:
    """975 images/s on an A100 stand above 415 on a V100."""
    page = (several[1] / "report.html").read_text(encoding="utf-8")
    assert "tensorflow, published (A100, V100)</text>" in page
    assert "paddle, published (V100)</text>" in page


def test_text_in_a_drawing_is_text() -> None:
    hostile = Line(f'{SCRIPT}"\x00', (Point(1, 1, hint="<&>"), Point(2, 2)))
    root = ElementTree.fromstring(  # noqa: S314
        svg.file(draw(Chart(SCRIPT, "]]>", "x", "y", (hostile,))))
    )
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))
    assert SCRIPT in "".join(root.itertext())


# ---- the command


def call(*arguments: str, status: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(app, ["report", *arguments])
    assert result.exit_code == status, result.output
    return result.stdout, result.stderr


def test_the_command_prints_the_answer_and_its_files(tmp_path: Path) -> None:
    campaign = mxnet_campaign(tmp_path / "mxnet")
    out, err = call(str(campaign))
    answer, *files = out.splitlines()
    assert answer.startswith("mxnet 1.6.0.post0, resnet50v1b: 9,579.74 samples/s")
    assert all(Path(file).is_file() for file in files)
    assert files[0] == str(campaign / "report" / "report.html")
    assert err == ""
    document = json.loads(call(str(campaign), "--json", "--output-dir", str(tmp_path / "b"))[0])
    assert document["answers"] == [answer]
    assert [Path(file).name for file in document["files"]] == [Path(file).name for file in files]


def test_stated_conditions_decide_what_is_reproduced(tmp_path: Path) -> None:
    """What logs do not say is not comparable; once stated, the published speeds are reproduced."""
    published_tree(tmp_path / "logs", "mxnet-resnet50v1b.md")
    verdicts = []
    stated = ("accelerator=V100-SXM2-16GB", "data=real", "xla=false", "image_size=224")
    for conditions in ([], [f"--condition={item}" for item in stated]):
        call(str(tmp_path / "logs"), *conditions)
        page = page_of(tmp_path / "logs" / "report")
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
    assert "there are no logs here" in err
