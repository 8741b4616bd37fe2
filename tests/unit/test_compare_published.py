"""Measured speeds beside published ones: verdicts, and what prevents one."""

import math
from dataclasses import replace
from statistics import stdev

import pytest
from compare_rows import RUNS, V100, compared, published_table, rows
from frame_rows import frame
from make_logs import published

from dlperf_runner.catalog.published_numbers import load_published
from dlperf_runner.compare.conditions import parse_stated, values_agree
from dlperf_runner.compare.published import (
    compare_published,
    published_points,
    ratio_of,
    side_by_side,
)
from dlperf_runner.compare.verdicts import published_verdict
from dlperf_runner.core.case import Topology
from dlperf_runner.core.errors import UserError
from dlperf_runner.core.frame import records
from dlperf_runner.report.case_tables import compared_on_terminal, comparisons
from dlperf_runner.report.compare_text import junit, render_publications, render_published
from dlperf_runner.report.labels import load_labels
from dlperf_runner.report.terminal import Screen
from dlperf_runner.stats.intervals import UNKNOWN, ConfidenceInterval
from dlperf_runner.stats.ratios import published_interval
from dlperf_runner.stats.summary import summarize


def test_the_published_runs_themselves_are_a_reproduction() -> None:
    (case,) = compared(rows(RUNS))
    assert (case["mine"], case["published"], case["repeats"]) == (384.19, 384.19, 5)
    assert (case["verdict"], case["ratio"]) == ("reproduced", 1)
    assert (case["factors"], case["noted"], case["unknown"]) == (None, None, None)
    # The medians of both samples can be any of their values.
    assert 384.04 / 385.31 <= case["ratio_low"] < 1 < case["ratio_high"] <= 385.31 / 384.04
    assert case["ratio_coverage"] == 0.95
    assert case["report"] == "mxnet-resnet50v1b"
    source = "Oneflow-Inc/DLPerf 049501e, MxNet/Classification/RN50v1b/README.md"
    assert case["published_source"] == source


def test_the_page_shows_the_numbers_of_the_terminal() -> None:
    row = {"campaign": None, **compared(rows(RUNS))[0]}
    (page,) = comparisons([row], load_labels())
    terminal = compared_on_terminal([row], 0.03, every=False)
    numbers = {
        "measured": "384.19", "interval of measured": "384.04 – 385.31", "n": "5",
        "published": "384.19", "published n": "5",
        "ratio": "1.000", "interval of ratio": "0.997 – 1.003", "verdict": "reproduced",
    }  # fmt: skip
    assert page.labels == ["node_num", "gpu_num", *numbers]
    assert [cell.text for cell in page.rows[0]] == ["1", "1", *numbers.values()]
    of_rates, of_ratios = ("samples/s", "interval", "n"), ("ratio", "interval", "verdict")
    assert terminal.labels == [*("topology", *of_rates, "published", "n", *of_ratios, "limit 3.0%")]
    narrow = [text.replace(" – ", "-") for text in numbers.values()]
    assert [cell.text for cell in terminal.rows[0]] == ["1n1g", *narrow, "-"]


@pytest.mark.parametrize("runs", [2, 3])
def test_the_output_says_which_runs_its_coverage_is_for(runs: int) -> None:
    table = published_table(rows(RUNS[:runs]))
    told = "contain the true ratio in 95% of comparisons of normally distributed runs, and in fewer"
    text = " ".join(render_published(table, 0.05).split())
    assert (told in text) == (runs > 2)


def test_what_the_catalogue_changes_in_the_published_command_is_named() -> None:
    one, two = "--mca oob_tcp_if_include", "NCCL_SOCKET_IFNAME"
    for nodes, devices, named in ((1, 1, {one}), (2, 8, {one, two})):
        table = published_table(rows(RUNS, nodes=nodes, gpus_per_node=devices))
        declared = table[0]["declared"].removesuffix(" (docs/reproducing/mxnet-resnet50v1b.md)")
        names = set(declared.split(", "))
        # The paths of a site and the spelling of a flag change nothing.
        assert names & {one, two, "--rec-train", "--allow-run-as-root"} == named
        text = render_published(table, 0.05)
        assert "- changed in the published command: --mca oob_tcp_if_include" in text
    assert compared(rows(RUNS, source="builtin"))[0]["declared"] is None


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.95, 1.05, "reproduced"),
        (0.949, 1.05, "undecided"),
        (1.051, 1.4, "faster"),
        (1.05, 1.4, "undecided"),
        (0.7, 0.949, "slower"),
        (0.7, 0.951, "undecided"),
        (math.nan, math.nan, "undecided"),
    ],
)
def test_verdict_by_interval_and_tolerance(low: float, high: float, verdict: str) -> None:
    assert published_verdict(ConfidenceInterval(low, high, 0.95), 0.05) == verdict


def test_fewer_runs_need_to_be_closer() -> None:
    """The same spread is a reproduction with many runs, and undecided with few: of the user, and
    of the publication."""
    values = [96.0, 98.0, 100.0, 102.0, 104.0]
    verdicts = [
        published_verdict(published_interval(own, 100.0, repeats=repeats), 0.05)
        for own in (values[1:4], values, values * 2, values * 20)
        for repeats in (1, 5, 100)
    ]
    assert "".join(verdict[0] for verdict in verdicts) == "uuuuururrurr"


def test_interval_where_the_publication_is_one_number() -> None:
    (number,) = [n for n in load_published() if n.samples_per_second == 833.65]
    assert number.runs == ()
    values = [830.0, 835.0, 840.0, 845.0, 850.0]
    ratio, interval = ratio_of(values, number)
    assert ratio == 840 / 833.65
    # The published median of five varies as much as one's own, which doubles the variance:
    # Student's t of 4 degrees of freedom, and about pi / 2n for the variance of a median.
    spread = stdev([math.log(value) for value in values])
    reach = 2.7764 * spread * math.sqrt(2 * math.pi / (2 * 5 + math.pi - 2))
    assert number.conditions.repeats == 5
    assert math.log(interval.high / ratio) == pytest.approx(reach, rel=1e-4)
    assert interval.low * interval.high == pytest.approx(ratio**2)
    assert interval.coverage == 0.95
    for few in ([840.0], [840.0, 841.0]):  # however close they are
        assert ratio_of(few, number)[1] == UNKNOWN
    # A single published run varies more.
    one = published_interval(values, 833.65, repeats=1)
    assert published_interval(values, 833.65) == one
    assert one.low < interval.low < interval.high < one.high


@pytest.mark.parametrize(
    ("condition", "value", "text"),
    [
        ("accelerator", "cpu", "accelerator (cpu, V100-SXM2-16GB)"),
        ("accelerator", None, "accelerator (unknown, V100-SXM2-16GB)"),
        ("data", "synthetic", "data (synthetic, real)"),
        ("image_size", 64, "image size (64, 224)"),
        ("xla", True, "XLA (yes, no)"),
        ("steps", "2 warm-up of 8", "steps (2 warm-up of 8, 20 warm-up of 120)"),
    ],
)
def test_what_differs_can_prevent_a_verdict(condition: str, value: object, text: str) -> None:
    (case,) = compared(rows(RUNS), {**V100, condition: value})
    # The numbers stand there all the same.
    assert (case["verdict"], case["factors"], case["ratio"]) == ("not comparable", text, 1)


def test_other_conditions_are_named_and_prevent_nothing() -> None:
    changes = {"framework_version": "1.9.1", "driver": "535.161.08", "source": "upstream"}
    libraries = {"cuda": None, "cudnn": "8.1.1", "nccl": "2.7.3-1+cuda10.2"}
    (case,) = compared(rows(RUNS, **changes), {**V100, **libraries})
    assert case["verdict"] == "reproduced"
    assert case["noted"] == (
        "framework version (1.9.1, 1.6.0), driver (535.161.08, 440.33.01), CUDA (unknown, 10.2),"
        " cuDNN (8.1.1, 7.6.5)"
    )


def test_what_is_not_recorded_is_taken_as_published_on_demand_only() -> None:
    (case,) = compare_published(frame(rows(RUNS, accelerator=None)), assume=True)
    assert (case["verdict"], case["factors"]) == ("reproduced", None)
    assert case["assumed"] == (
        "accelerator V100-SXM2-16GB, data real, image size 224, XLA no, steps 20 warm-up of 120"
    )
    # What is known to differ differs all the same.
    (case,) = compared(rows(RUNS), {"accelerator": "cpu"}, assume=True)
    assert case["factors"] == "accelerator (cpu, V100-SXM2-16GB)"


def test_what_the_publication_does_not_say_is_told_and_decides_nothing() -> None:
    changes = {"framework": "oneflow", "workload": "oneflow-resnet50v1.5", "model": "resnet50v1.5"}
    of_019 = [383.81, 384.86, 385.07, 384.91, 383.75, 384.85, 382.31]
    known = {**V100, "steps": "20 warm-up of 200", "input_pipeline": None}
    cases = compared(rows(of_019, **changes), known, every=True)
    # The report that the workload reproduces comes first; the later one does not state its data.
    assert cases[0]["report"] == "oneflow-resnet50v1.5"
    (later,) = (case for case in cases if case["report"] == "oneflow-resnet50v1.5-v0.1.9")
    assert (later["verdict"], later["unknown"]) == ("reproduced", "data, steps")


def test_the_nearest_publication_is_taken() -> None:
    tensorflow = {"framework": "tensorflow", "framework_version": "1.15.2"}
    tensorflow |= {"workload": "tensorflow-resnet50v1.5", "model": "resnet50v1.5"}
    known = {name: V100[name] for name in ("accelerator", "data", "image_size", "xla")}
    known |= {"input_pipeline": "DALI", "steps": "200 warm-up of 500"}
    three = [362.0, 362.4, 361.7]
    (case,) = compared(rows(three, **tensorflow), known)
    assert (case["report"], case["published"]) == ("dlperf-tensorflow1-resnet50v1.5", 362.44)
    # 300 measured steps are as good as 100.
    assert case["verdict"] == "reproduced"
    known |= {"accelerator": "V100-SXM2-32GB", "xla": True, "input_pipeline": "framework"}
    (case,) = compared(rows(three, **tensorflow, batch_size_per_device=256), known)
    assert (case["report"], case["published"]) == ("tensorflow-ngc-resnet50v1.5", 414.73)
    assert case["verdict"] == "slower"


def test_topologies_and_models_of_which_nothing_is_published() -> None:
    odd, other = {"nodes": 3, "gpus_per_node": 5}, {"workload": "mine", "model": "lenet"}
    cases = compared([*rows(RUNS, **odd), *rows(RUNS, **other)])
    assert {(case["verdict"], case["published"]) for case in cases} == {("not published", None)}
    assert {case["factors"] for case in cases} == {
        "topology (3n5g; published: 1n1g, 1n2g, 1n4g, 1n8g, 2n8g, 4n8g)",
        "no number is published for lenet of mine",
    }


def test_limit() -> None:
    slow = [value * 0.9 for value in RUNS]
    for values, limit, verdict in (
        (RUNS, 0.03, "passed"),
        (slow, 0.1, "undecided"),
        (RUNS[:2], 0.03, "too few runs"),
        (slow, 0.03, "failed"),
    ):
        (judged,) = published_table(rows(values), limit=limit)
        assert judged["limit_verdict"] == verdict
        assert (judged["why"] is not None) == (verdict in ("undecided", "too few runs"))
    text = junit("limit", [judged])
    assert 'message="slower by more than 3.0%: ratio 0.900 (0.89' in text
    assert '), 384.19 published and 345.77 now, n = 5"' in text
    (judged,) = compare_published(frame(rows(RUNS)), limit=0.03)
    assert judged["why"] == "it is not comparable with the publication"


def test_points_for_plots() -> None:
    points = published_points(records(summarize(frame(rows(RUNS)))))
    key = ("resnet50v1b", "fp32")
    entries = [e for e in published("published") if (e["model"], e["precision"]) == key]
    assert [p["value"] for p in points] == [float(e["samples_per_second"]) for e in entries]
    assert [p["speedup"] for p in points] == [float(e["speedup"]) for e in entries]
    assert [p["world_size"] for p in points] == [1, 2, 4, 8, 16, 32]
    assert {p["factors"] for p in points} == {"V100-SXM2-16GB, mxnet 1.6.0, no XLA, real data"}
    assert published_points([]) == []


# ---- conditions, and publications side by side


@pytest.mark.parametrize(
    ("factor", "a", "b", "equal"),
    [
        ("accelerator", "Tesla V100-SXM2-16GB", "V100-SXM2-16GB", True),
        ("accelerator", "V100-SXM2-16GB", "V100-16GB", True),
        ("accelerator", "V100-SXM2-32GB", "V100-16GB", False),
        ("accelerator", "V100-PCIE-16GB", "V100-SXM2-16GB", False),
        ("accelerator", "NVIDIA A100-SXM4-40GB", "A100-40GB", True),
        ("accelerator", "NVIDIA H100 80GB HBM3", "H100-80GB", True),
        ("accelerator", "NVIDIA H200", "H100-80GB", False),
        ("accelerator", "H100-SXM 96GB HBM2e 500W", "H100-SXM5-96GB", True),
        ("accelerator", "NVIDIA B200", "B200-SXM-180GB", True),
        ("accelerator", "NVIDIA H200", "H200-NVL-141GB", False),
        ("accelerator", "H100-SXM5-80GB", "H100-PCIe-80GB", False),
        ("accelerator", "cpu", "V100-16GB", False),
        ("accelerator", "V100-SXM2-16GB+V100-SXM2-32GB", "V100-SXM2-16GB", False),
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
    assert factor == "steps" or values_agree(factor, b, a) is equal


def test_stated_conditions() -> None:
    stated = parse_stated(["accelerator=V100-SXM2-16GB", "xla = No", "data=real", "xla=false"])
    assert stated == {"accelerator": "V100-SXM2-16GB", "xla": False, "data": "real"}
    for text in ("data", "data=", "colour=red", "precision=fp16", "xla=perhaps"):
        with pytest.raises(UserError, match="--condition"):
            parse_stated([text])
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
    words = " ".join(render_publications([two]).split())
    assert "tensorflow resnet50v1.5 fp32, 1n1g: 2 numbers, 14% apart " in words
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


@pytest.mark.parametrize("width", [40, 80, 200])
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
