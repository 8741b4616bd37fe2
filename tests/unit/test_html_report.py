"""The page of the report: what it says of several campaigns, in two languages, and of odd ones."""

import json
import re
import string
from pathlib import Path

import csv_tables
import openpyxl
import pytest
from command_line import call
from make_logs import campaign_run, gluoncv
from report_examples import TOPOLOGIES, mxnet_campaign, paddle_campaign, tensorflow_campaign
from report_page import PUBLISHED, live_charts, page_of

from dlperf_runner.commands.report import Report, make_report
from dlperf_runner.compare.conditions import FACTORS
from dlperf_runner.core.errors import UserError
from dlperf_runner.core.identity import label
from dlperf_runner.report.labels import LANGUAGES, load_labels
from dlperf_runner.report.xlsx import sheet_name


def test_sheets_have_names_that_spreadsheets_take() -> None:
    used: set[str] = set()
    names = [sheet_name(title, used) for title in ("a/b*c?", "x" * 40, "X" * 40, "'", "")]
    assert names == ["a b c", "x" * 31, "X" * 29 + " 2", "-", "- 2"]


def test_every_file_is_there(several: Report, report_folder: Path) -> None:
    names = {path.relative_to(report_folder).as_posix() for path in several.paths}
    plots = {
        f"plots/{group}-{kind}.{form}"
        for group in ("01-resnet50-fp32-b128", "02-resnet50-fp32-b256", "03-arcface-fp32-b128")
        for kind in ("throughput", "per-device", "speedup")
        for form in ("svg", "png", "pdf")
    }
    data = {f"results.{form}" for form in ("csv", "json", "tex", "xlsx")}
    assert names == {"report.html", "report.md"} | data | plots
    written = {p.relative_to(report_folder).as_posix() for p in report_folder.rglob("*.*")}
    assert written - {"manifest.jsonl"} == names


def test_the_table_has_the_published_numbers_in_the_published_layout(report_folder: Path) -> None:
    table = page_of(report_folder).tables["table-1"]
    assert table[0][:4] == ["node_num", "gpu_num", "samples/s", "speedup"]
    assert [row[:4] for row in table[1:]] == PUBLISHED
    # Order statistics: with five runs the interval is their range (published_runs.csv).
    assert table[1][4] == "384.04 – 385.31"
    assert table[0][6:9] == ["efficiency", "n", "CV"]
    assert table[6][6:8] == ["77.9%", "5"]  # 24.93 / 32


def test_the_answer_is_one_line_per_framework(several: Report, report_folder: Path) -> None:
    heads = [answer.split(":")[0] for answer in several.answers]
    mxnet = "mxnet 1.6.0.post0, resnet50v1b"
    assert heads == [mxnet, "tensorflow, resnet50v1.5", "paddle, arcface"]
    first = several.answers[0]
    assert "9,579.74 samples/s on 32 devices on 4 nodes, 24.93 times 1n1g" in first
    assert "; V100-SXM2-16GB, driver 440.33.01; 2026-11-21 06:39 UTC; fp32" in first.replace(
        ". V", "; V"
    )
    page = page_of(report_folder)
    assert page.texts["h1"] == ["Benchmark report: mxnet, tensorflow, paddle resnet50, arcface"]
    for answer, text in zip(several.answers, page.texts["strong"], strict=True):
        assert answer.startswith(f"{text}.")


def test_the_other_tables_and_the_commands(report_folder: Path) -> None:
    page = page_of(report_folder)
    table = page.tables["beside-1"]
    assert table[0][2:] == [
        f"{name} {what}"
        for name in ("mxnet b128", "tensorflow b256")
        for what in ("samples/s", "speedup")
    ]
    assert [row[1] for row in table[1:]] == ["1", "2", "4", "8", "16", "32"]
    assert table[2][2:] == ["749.04", "1.95", "", ""]
    assert table[6][2:] == ["9,579.74", "24.93", "12,671.90", "30.55"]
    (lost,) = page.tables["not-counted"][1:]
    assert lost[1:] == ["8", "-", "failed: no route to host"]
    assert page.tables["differences"][1:] == [
        ["mxnet", "kernel", "6.1.0-17", "node1, node2, node3"],
        ["mxnet", "kernel", "6.1.0-18", "node4"],
    ]
    run, start = page.texts["code"][:2]
    assert run == "dlperf run --model resnet50 --batch-size 128 --repeats 5 --parameter classes=10"
    first = "cd '/opt/dlperf/src/a b' && env NCCL_DEBUG=INFO /opt/dlperf/envs/mxnet/bin/python"
    assert start == f"# node1\n{first} -u mxnet_resnet50.py --topology 1n1g"
    table = page.tables["published-1"]
    place, ratio = map(table[0].index, ("published", "ratio"))
    assert [row[place] for row in table[1:]] == [row[2] for row in PUBLISHED]
    assert [row[ratio] for row in table[1:]] == ["1.000"] * 6
    # Its publication stands once, below the table.
    assert "publication" not in table[0]
    assert sum(text.startswith("publication: DLPerf, MXNet") for text in page.texts["p"]) == 1


def test_tables_are_there_for_papers(report_folder: Path) -> None:
    text = (report_folder / "results.tex").read_text("utf-8")
    head = r"node\_num & gpu\_num & samples/s & speedup & "
    assert f"\\begin{{tabular}}{{{'r' * 11}}}\n\\toprule\n{head}" in text
    assert "4 & 32 & 9,579.74 & 24.93 & 9,568.30 -- 9,631.67 & " in text
    assert text.count(r"\begin{tabular}") == text.count(r"\bottomrule") >= 6


def test_the_spreadsheet_has_numbers_with_formats(report_folder: Path) -> None:
    book = openpyxl.load_workbook(report_folder / "results.xlsx")
    sheet = book.worksheets[0]
    header = [cell.value for cell in sheet[1]]
    rows = [dict(zip(header, row, strict=True)) for row in sheet.iter_rows(min_row=2)]
    assert len(rows) == len(TOPOLOGIES) + 3 + 2
    median = rows[5]["samples_per_second_median"]
    assert (median.value, median.number_format) == (9579.74, "#,##0.00")
    assert rows[5]["scaling_efficiency"].number_format == "0.0%"
    assert rows[5]["container"].value in (None, "")
    assert sheet.freeze_panes == "A2"


def test_csv_json_and_page_agree(several: Report, report_folder: Path) -> None:
    document = json.loads((report_folder / "results.json").read_bytes())
    rows = csv_tables.table(report_folder / "results.csv")
    medians = [case["samples_per_second_median"] for case in document["cases"]]
    assert [float(row["samples_per_second_median"]) for row in rows] == medians
    assert medians[:6] == [float(row[2].replace(",", "")) for row in PUBLISHED]
    assert document["answers"] == list(several.answers)


def test_plots_of_an_older_report_go_and_files_of_others_stay(tmp_path: Path) -> None:
    both = [mxnet_campaign(tmp_path / "mxnet"), paddle_campaign(tmp_path / "paddle")]
    make_report(both, tmp_path / "report")
    (tmp_path / "report" / "plots" / "mine.svg").write_text("")
    report = make_report(both[:1], tmp_path / "report")
    others = {path.name for path in {*(tmp_path / "report").rglob("*.*")} - {*report.paths}}
    assert others == {"mine.svg", "manifest.jsonl"}
    (tmp_path / "report" / "results.json").write_text('{"plots": ["../../x", 3]}')
    make_report(both[:1], tmp_path / "report")


def test_the_same_results_give_the_same_files(chinese: Report, tmp_path: Path) -> None:
    first = chinese.paths[0].parent
    make_report([first.parent / "mxnet"], tmp_path, "zh")
    names = [path.relative_to(first) for path in chinese.paths]
    assert len(names) == 15
    for name in names:
        one, other = ((place / name).read_bytes() for place in (first, tmp_path))
        if name.suffix == ".pdf":  # the fonts in a PDF have random names, in any order
            assert one.startswith(b"%PDF-") and one.rstrip().endswith(b"%%EOF")
        else:
            assert one == other, name


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


def test_a_chinese_report_is_in_chinese_with_the_published_columns(chinese: Report) -> None:
    page = page_of(chinese.paths[0].parent)
    assert page.all("html") == [{"lang": "zh"}]
    assert page.texts["h1"] == ["性能测试报告：mxnet resnet50"]
    assert page.tables["table-1"][0][:4] == ["node_num", "gpu_num", "samples/s", "speedup"]
    headings = "".join(page.texts["h2"])
    assert not re.search("[A-Za-z]", headings)


def test_an_unknown_language_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected one of en, zh"):
        make_report([tmp_path], None, "../en")


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


def test_the_command_prints_the_answer_and_its_files(tmp_path: Path) -> None:
    campaign = mxnet_campaign(tmp_path / "mxnet")
    printed = call("report", campaign, status=1)  # one of its runs failed
    answer, *files = printed.out.splitlines()
    assert answer.startswith("mxnet 1.6.0.post0, resnet50v1b: 9,579.74 samples/s")
    assert all(Path(file).is_file() for file in files)
    assert files[0] == str(campaign / "report" / "report.html")
    assert printed.err == ""
    arguments = ("report", campaign, "--json", "--output-dir", tmp_path / "b")
    document = call(*arguments, status=1).document
    assert document["answers"] == [answer]
    assert [Path(file).name for file in document["files"]] == [Path(file).name for file in files]


def test_conditions_have_the_names_that_comparisons_give_them() -> None:
    english = load_labels("en")
    assert [english(f"factor_{name}") for name in FACTORS] == [label(name) for name in FACTORS]


@pytest.mark.parametrize(
    ("text", "chinese"),
    [
        (
            "accelerator (unknown, V100-SXM2-16GB), data (synthetic, real), XLA (no, yes)",
            "加速器 (未知, V100-SXM2-16GB), 数据 (合成, 真实), XLA (否, 是)",
        ),
        (
            "container (none, tensorflow:20.12 (NGC)), steps (2 of 8, not published)",
            "容器 (无, tensorflow:20.12 (NGC)), 步数 (2 of 8, 未公布)",
        ),
        ("parallelism, data", "并行方式, 数据"),
        # What a publication or a log says is no word of this program's.
        ("implementation (data, my driver (none))", "实现 (data, my driver (none))"),
        ("", ""),
        (None, None),
    ],
)
def test_conditions_in_words(text: str | None, chinese: str | None) -> None:
    assert load_labels("en").conditions(text) == text
    assert load_labels("zh").conditions(text) == chinese


def test_the_base_case_is_told_in_absolute_units(report_folder: Path, chinese: Report) -> None:
    page = (report_folder / "report.html").read_text(encoding="utf-8")
    assert "Speed-up is relative to 1n1g, 384.19 samples/s. The interval" in page
    page = chinese.paths[0].read_text(encoding="utf-8")
    assert "加速比以 1n1g（384.19 samples/s）为基准。中位数" in page
    assert "不同的条件: 数据 (合成, 真实)" in page


def test_of_several_campaigns_the_answer_names_the_fastest(tmp_path: Path) -> None:
    campaigns = [mxnet_campaign(tmp_path / "old"), mxnet_campaign(tmp_path / "new")]
    for log in (tmp_path / "new").rglob("*.log"):
        log.write_text(log.read_text().replace("Speed: 9", "Speed: 99"))
    report = make_report([*campaigns, tensorflow_campaign(tmp_path / "tf")], tmp_path / "report")
    mxnet, tensorflow = report.answers
    assert "new, the fastest of 2 campaigns; " in mxnet
    assert "campaigns" not in tensorflow
