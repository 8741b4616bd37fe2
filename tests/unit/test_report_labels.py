"""What a report says in each language: conditions in words, the base case, campaigns."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_examples import mxnet_campaign, tensorflow_campaign

from dlperf_runner.commands.report import make_report
from dlperf_runner.compare.conditions import FACTORS
from dlperf_runner.core.identity import label
from dlperf_runner.report.labels import load_labels


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
            "container (none, tensorflow:20.12-tf1-py3 (NGC)), steps (2 of 8, not published)",
            "容器 (无, tensorflow:20.12-tf1-py3 (NGC)), 步数 (2 of 8, 未公布)",
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


def test_the_base_case_is_told_in_absolute_units(tmp_path: Path) -> None:
    campaign = mxnet_campaign(tmp_path / "mxnet")
    for language, expected in (
        ("en", "Speed-up is relative to 1n1g, 384.19 samples/s. The interval"),
        ("zh", "加速比以 1n1g（384.19 samples/s）为基准。中位数"),
    ):
        make_report([campaign], tmp_path / language, language)
        page = (tmp_path / language / "report.html").read_text(encoding="utf-8")
        assert expected in page
    assert "不同的条件: 数据 (合成, 真实)" in page


def test_of_several_campaigns_the_answer_names_the_fastest(tmp_path: Path) -> None:
    campaigns = [mxnet_campaign(tmp_path / "old"), mxnet_campaign(tmp_path / "new")]
    for log in (tmp_path / "new").rglob("*.log"):
        log.write_text(log.read_text().replace("Speed: 9", "Speed: 99"))
    report = make_report([*campaigns, tensorflow_campaign(tmp_path / "tf")], tmp_path / "report")
    mxnet, tensorflow = report.answers
    assert "new, the fastest of 2 campaigns; " in mxnet
    assert "campaigns" not in tensorflow
