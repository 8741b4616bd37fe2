"""The page of the report needs nothing else, and nothing planted in logs gets out of its place."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import openpyxl
import pytest
from csv_tables import table
from report_examples import CHINESE, FORMULA, IMAGE, SCRIPT, mxnet_campaign
from report_page import Page, page_of

from dlperf_runner.commands.report import make_report
from dlperf_runner.report.charts import Chart, ChartPoint, Line, draw
from dlperf_runner.report.markdown import code, text


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("planted")
    make_report([mxnet_campaign(root / "a campaign", planted=True)], root / "report")
    return root / "report"


def test_the_page_forbids_itself_all_but_its_own_style_and_script(report_folder: Path) -> None:
    html = (report_folder / "report.html").read_text(encoding="utf-8")
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


def test_the_licenses_of_the_script_stand_beside_it(report_folder: Path) -> None:
    html = (report_folder / "report.html").read_text(encoding="utf-8")
    ((licenses),) = re.findall("<!--(.*?)-->\n<script>", html, re.DOTALL)
    assert "University of Washington Interactive Data Lab" in licenses
    assert "Redistributions in binary form must reproduce" in licenses


def test_the_page_is_well_formed_and_each_id_is_once(report_folder: Path) -> None:
    page = page_of(report_folder)
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
    rows = table(planted / "results.csv")
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


def test_text_in_a_picture_is_text() -> None:
    hostile = Line(f'{SCRIPT}"\x00\ud800', (ChartPoint(1, 1, hint="<&>"), ChartPoint(2, 2)))
    picture = draw(Chart(SCRIPT, "]]>\x00", "x", "y", (hostile,)))
    root = ElementTree.fromstring(picture.svg)  # noqa: S314
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))
    assert SCRIPT in "".join(root.itertext())
