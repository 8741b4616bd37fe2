"""What only the user or a path states stands beside every verdict, in every format; and the command
that makes a report has all of its options."""

import csv
import json
import re
import shlex
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

import pytest
from command_line import call
from make_logs import gluoncv, write

CONDITIONS = {"accelerator": "V100-SXM2-16GB", "data": "real", "xla": "no", "image_size": "224"}
STATED = [f"--condition={name}={value}" for name, value in CONDITIONS.items()]
BY_CONDITION = (
    "accelerator (V100-SXM2-16GB, --condition), data (real, --condition),"
    " image size (224, --condition)"
)
MODEL = "model (the file name)"
BY_PATH = (
    "topology (the directory name), batch size per device (the directory name),"
    " precision (the file name)"
)
ALL = [f"{MODEL}, {BY_CONDITION}", f"{MODEL}, {BY_PATH}, {BY_CONDITION}"]


@pytest.fixture
def logs(here: Path) -> Path:
    """The published speeds of 1 and 8 devices. The logs of the latter state neither batch size nor
    devices."""
    for topology, rate, more in (
        ("1n1g", 384.19, {"world": 1}),
        ("1n8g", 2556.03, {"batch": None, "world": None}),
    ):
        for repeat in range(1, 6):
            name = f"bz128/{topology}/rn50_fp32_{repeat}.log"
            write(here / "logs" / name, gluoncv(rate + repeat / 100, **more))
    return Path("logs")


def flat(text: str) -> str:
    return " ".join(text.split())


def test_terminal_json_and_junit_of_a_published_comparison(logs: Path) -> None:
    done = call("compare", logs, *STATED, "--junit", "j.xml")
    assert f"- only stated, not in the logs: {ALL[0]} - 1n8g: only stated" in done.text
    assert f"- 1n8g: only stated, not in the logs: {BY_PATH}" in done.text
    assert "2 reproduced." in done.text
    assert "All rest on what was only stated or assumed" in done.text
    cases = call("compare", logs, *STATED, "--json").document["cases"]
    assert [case["stated"] for case in cases] == ALL
    properties = ET.parse("j.xml").findall(".//property[@name='stated']")  # noqa: S314
    assert [item.get("value") for item in properties] == ALL
    # What is taken from the publication is in all of them, too.
    call("compare", logs, STATED[0], "--assume-published", "--junit", "j.xml")
    assumed = ET.parse("j.xml").findall(".//property[@name='assumed']")  # noqa: S314
    assert [item.get("value") for item in assumed] == ["data real, image size 224"] * 2


def test_what_a_mapping_with_an_odd_name_states_is_shown(logs: Path) -> None:
    Path("site (1.yml").write_text("logs: {'**/*.log': {accelerator: V100-SXM2-16GB}}\n")
    text = flat(call("compare", logs, "--mapping", "site (1.yml", status=None).text)
    assert "only stated, not in the logs: model (the file name), accelerator (site (1.yml" in text


def test_two_campaigns_and_a_baseline(logs: Path, here: Path) -> None:
    for repeat in range(1, 6):
        name = f"V100_LOG/1n1g/rn50_b128_fp32_{repeat}.log"
        write(here / "other" / name, gluoncv(390 + repeat / 100, world=1))
    call("compare", "--save-baseline", "before", logs, "--accelerator", "V100")
    of_a = f"{MODEL}, accelerator (--accelerator)"
    with_accelerator = BY_PATH.replace("precision", "accelerator (--accelerator), precision")
    for first, by in (
        (("--baseline", "before"), "the directory name"),
        ((logs, "--accelerator", "V100"), "--accelerator"),
    ):
        done = call("compare", *first, "other")
        of_b = f"{MODEL}, accelerator ({by})"
        assert f"- only stated, not in the logs of a: {of_a} - 1n8g" in done.text
        assert f"- 1n1g: only stated, not in the logs of b: {of_b}" in done.text
        cases = call("compare", *first, "other", "--json").document["cases"]
        assert [(case["stated_a"], case["stated_b"]) for case in cases] == [
            (of_a, of_b),
            (f"{MODEL}, {with_accelerator}", None),
        ]


def test_every_file_of_a_report(logs: Path) -> None:
    done = call("report", logs, *STATED, "--output-dir", "out")
    head = "only stated, not in the logs"
    pages = [flat(Path("out", name).read_text()) for name in ("report.md", "report.html")]
    names = ("model", "accelerator", "data", "image size", "topology")
    listed = ", ".join(rf"{name} \([^()]*\)" for name in names)
    for text in (done.text, *pages):
        assert re.search(f"{head}: {listed}", text)  # in the answer
    for text in pages:
        assert f"{head}: {ALL[0]}" in text
        assert f"{head} (1n8g): {BY_PATH}" in text
    document = json.loads(Path("out/results.json").read_text())
    assert [case["stated"] for case in document["cases"]] == ALL
    published = document["tables"]["published"]
    assert published[0][head] is not None
    assert {row["verdict"] for row in published} == {"reproduced"}
    with Path("out/results.csv").open(newline="") as file:
        assert [row["stated"] for row in csv.DictReader(file)] == ALL
    with zipfile.ZipFile("out/results.xlsx") as book:
        texts = book.read("xl/sharedStrings.xml").decode()
    assert ALL[0] in texts and head in texts
    call("report", logs, *STATED, "--lang", "zh", "--output-dir", "zh")
    text = flat(Path("zh/report.md").read_text())
    assert (
        "仅由用户说明、日志未记录: 模型 (文件名), 加速器 (V100-SXM2-16GB, --condition), 数据 (真实"
        in text
    )
    assert "(1n8g): 拓扑 (目录名), 每卡 batch size (目录名), 精度 (文件名)" in text


def test_a_campaign_of_this_tool_states_nothing(here: Path) -> None:
    from report_examples import mxnet_campaign

    mxnet_campaign(here / "campaign")
    assert "only stated" not in call("compare", "campaign").out
    call("report", "campaign", status=1)
    assert "only stated" not in Path("campaign/report/report.md").read_text()
    call("report", "campaign", "--condition", "data=synthetic", status=1)
    page = Path("campaign/report/report.md").read_text()
    assert "dlperf report results/" in page
    assert "--condition data=synthetic" in page
    call("summarize", "campaign", status=1)
    assert "differs" not in call("summarize", "campaign", "--verify", status=None).out


def test_the_command_of_a_report_makes_the_same_report(here: Path) -> None:
    write(here / "a dir" / "slurm-4711.out", gluoncv(4855.0, batch=None, dtype="float32"))
    options = ("--model", "resnet50v1b", "--topology", "2n8g", "--batch-size", "128")
    more = ("--condition", "steps=20 warm-up of 120", "--accelerator", "V100-SXM2-16GB")
    call("report", "a dir", *options, "--precision", "fp32", *more, "--lang", "zh")
    page = Path("results/a dir/report/report.md")
    first = page.read_text()
    (line,) = [line for line in first.splitlines() if line.startswith("dlperf ")]
    words = shlex.split(line)
    page.unlink()
    call(*words[1:])
    assert page.read_text() == first


def test_the_command_of_a_report_has_mapping_and_catalogue(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(here / "logs" / "one.out", gluoncv(4855.0))
    fields = "model: rn50, topology: 2n8g, batch_size: 128, precision: fp32"
    Path("my mapping.yml").write_text(f'logs:\n  "*.out": {{{fields}}}\n')
    Path("catalog/workloads").mkdir(parents=True)
    call("--catalog", "catalog", "report", "logs", "--mapping", "my mapping.yml")
    command = json.loads(Path("results/logs/report/results.json").read_text())["command"]
    words = shlex.split(command)
    assert words[1:] == [
        *("--catalog", str(here / "catalog"), "report", "logs", "--mapping=my mapping.yml")
    ]
    cases = json.loads(Path("results/logs/report/results.json").read_text())["cases"]
    assert "topology (my mapping.yml, *.out)" in cases[0]["stated"]
