"""Conditions of measured and published speeds, publications side by side, and the text of both."""

from dataclasses import replace

import pytest
from compare_rows import RUNS, published_table, rows

from dlperf_runner.catalog.published_numbers import load_published
from dlperf_runner.compare.conditions import (
    parse_stated,
    same_product,
    values_agree,
)
from dlperf_runner.compare.published import side_by_side
from dlperf_runner.core.case import Topology
from dlperf_runner.core.errors import UserError
from dlperf_runner.core.identity import short_product
from dlperf_runner.report.compare_text import render_publications, render_published
from dlperf_runner.report.terminal import Screen


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        ("Tesla V100-SXM2-16GB", "V100-SXM2-16GB", True),
        ("V100-SXM2-16GB", "V100-16GB", True),
        ("V100-SXM2-32GB", "V100-16GB", False),
        ("V100-PCIE-16GB", "V100-SXM2-16GB", False),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB", True),
        ("NVIDIA H100 80GB HBM3", "H100-80GB", True),
        ("NVIDIA H200", "H100-80GB", False),
        ("H100-SXM 96GB HBM2e 500W", "H100-SXM5-96GB", True),
        ("NVIDIA B200", "B200-SXM-180GB", True),
        ("H100-SXM5-80GB", "H100-PCIe-80GB", False),
        ("cpu", "V100-16GB", False),
        ("V100-SXM2-16GB+V100-SXM2-32GB", "V100-SXM2-16GB", False),
    ],
)
def test_products(a: str, b: str, equal: bool) -> None:
    assert same_product(a, b) is equal
    assert same_product(b, a) is equal
    assert short_product("Tesla V100-SXM2-16GB") == "V100-SXM2-16GB"


@pytest.mark.parametrize(
    ("factor", "a", "b", "equal"),
    [
        ("cuda", "10.2", "10.2.89", True),
        ("cuda", "10.2", "10.1.243", False),
        ("framework_version", "1.8.5", "1.8.5.post107", True),
        ("framework_version", "1.15.4", "1.15.4+nv", True),
        ("framework_version", "1.6", "1.6.0", False),
        ("steps", "200 warm-up of 500", "20 warm-up of 120", True),
        ("steps", "2 warm-up of 8", "20 warm-up of 120", False),
        ("data", "real", "synthetic", False),
    ],
)
def test_values_that_are_the_same(factor: str, a: str, b: str, equal: bool) -> None:
    assert values_agree(factor, a, b) is equal


def test_stated_conditions() -> None:
    stated = parse_stated(["accelerator=V100-SXM2-16GB", "xla = No", "data=real"])
    assert stated == {"accelerator": "V100-SXM2-16GB", "xla": False, "data": "real"}
    for text in ("data", "data=", "colour=red", "precision=fp16", "xla=perhaps"):
        with pytest.raises(UserError, match="--condition"):
            parse_stated([text])
    assert parse_stated(["xla=no", "xla=false"]) == {"xla": False}
    with pytest.raises(UserError, match="--condition xla: the condition is stated twice"):
        parse_stated(["xla=no", "xla=yes"])


def test_two_numbers_of_ngc_tensorflow_stand_side_by_side() -> None:
    groups = side_by_side(model="resnet50v1.5", framework="tensorflow", precision="fp32")
    (group,) = [group for group in groups if group.topology == "1n1g"]
    values = [number.samples_per_second for number in group.numbers]
    assert {362.44, 414.73} < set(values)
    assert values == sorted(values)
    assert {"accelerator", "batch_size_per_device", "xla"} < set(group.factors)
    pair = [n for n in group.numbers if n.samples_per_second in (362.44, 414.73)]
    (two,) = side_by_side(pair)
    assert two.spread == pytest.approx(414.73 / 362.44 - 1)
    text = render_publications([two])
    assert "tensorflow resnet50v1.5 fp32, 1n1g: 2 numbers, 14% apart\n" in text
    words = " ".join(text.split())
    assert "accelerator V100-SXM2-16GB, batch size per device 128" in words
    assert "accelerator V100-SXM2-32GB, batch size per device 256" in words
    assert "XLA no" in words and "XLA yes" in words


def test_numbers_that_agree_are_shown_on_demand_only() -> None:
    first = load_published()[0]
    close = replace(first, samples_per_second=first.samples_per_second * 1.01)
    assert side_by_side([first, close]) == []
    assert render_publications([]) == "No publications seem to contradict each other.\n"
    (group,) = side_by_side([first, close], every=True)
    assert group.factors == ()
    elsewhere = replace(first, topology=Topology(7, 7))
    assert len(side_by_side([first, elsewhere], every=True)) == 2
    with pytest.raises(UserError, match="no number is published for model lenet"):
        side_by_side(model="lenet")


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_text_fits_and_names_everything(width: int) -> None:
    twice = rows([round(v * 2.2, 2) for v in RUNS], gpus_per_node=2)
    others = (*rows(RUNS, gpus_per_node=3), *rows([9.0], batch_size_per_device=4))
    table = published_table([*rows(RUNS), *twice, *others], limit=0.03)
    text = render_published(table, 0.05, Screen(width), 0.03)
    words = " ".join(text.split())
    assert "1 not comparable, 1 reproduced, 1 faster, 1 not published" in words
    assert "- not comparable because of batch size per device (4, 128)" in words
    assert "- 1n3g: not published: topology (1n3g; published: 1n1g" in words
    assert "Fewer than 3 runs have no interval and are undecided." in words
    assert "Limit 3 %: 0 of 3 cases are slower than allowed; 1 undecided, 2 passed." in words
    assert "MxNet/Classification/RN50v1b/README.md" in words
    # Nothing is cut from a name.
    assert all(len(line) <= max(width, 45) for line in text.splitlines())
    assert "384.19" in text and "384.04-385.31" in text and "0.997-1.003" in text
    assert render_published(table[:0], 0.05) == "No run could be counted.\n"


def test_all_publications_name_theirs_in_each_row_and_say_each_note_once() -> None:
    """The report that is reproduced gives a number for fp32 and one for fp16 of each topology."""
    measured = [*rows(RUNS), *rows([round(v * 1.95, 2) for v in RUNS], gpus_per_node=2)]
    text = render_published(published_table(measured, every=True), 0.05, every=True)
    fp32 = "mxnet-resnet50v1b (precision fp32, batch size per device 128)"
    fp16 = "mxnet-resnet50v1b (precision fp16, batch size per device 256)"
    lines = [line for line in text.splitlines() if line.startswith(("| 1n1g", "| 1n2g"))]
    assert [line.split("|")[2].strip() for line in lines] == [fp32, fp16] * 2
    words = " ".join(text.split())
    of_fp16 = f"- {fp16}: not comparable because of precision (fp32, fp16), batch size per device"
    assert words.count("not comparable because of") == words.count(of_fp16) == 1
    assert words.count("- mxnet-resnet50v1b: DLPerf, MXNet ResNet50-v1b, 2020-10-29 (") == 1
    nearest = render_published(published_table(measured), 0.05)
    assert "publication" not in nearest.splitlines()[2]
