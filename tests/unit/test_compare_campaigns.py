"""Two campaigns, or a campaign and a saved baseline, case by case."""

import json
import math
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from compare_rows import row, rows
from frame_rows import Row, frame
from refusals import refusal

from dlperf_runner.compare.campaigns import COLUMNS, compare_campaigns, read_baseline, save_baseline
from dlperf_runner.compare.verdicts import together
from dlperf_runner.report.compare_text import junit, render_campaigns
from dlperf_runner.report.terminal import Screen

FIVE = [100.0, 101.0, 102.0, 103.0, 104.0]
NARROW = [100.0, 100.1, 100.2, 100.3, 100.4]


def scaled(factor: float) -> list[float]:
    return [value * factor for value in FIVE]


def compared(
    a: Sequence[Row], b: Sequence[Row], limit: float | None = None
) -> list[dict[str, Any]]:
    table = compare_campaigns(frame(a), frame(b), limit)
    assert all(tuple(row) == COLUMNS for row in table)
    return table


def test_numbers_of_a_case() -> None:
    (case,) = compared(rows(FIVE), rows(scaled(0.9)))
    assert (case["n_a"], case["n_b"], case["a"], case["b"]) == (5, 5, 102, pytest.approx(91.8))
    # The medians of all 25 differences and of all 25 quotients, by brute force.
    differences = sorted(y - x for x in FIVE for y in scaled(0.9))
    quotients = sorted(y / x - 1 for x in FIVE for y in scaled(0.9))
    assert case["difference"] == pytest.approx(differences[12])
    assert case["relative"] == pytest.approx(quotients[12])
    # Of 5 and 5 values the third smallest and largest quotient enclose 96.8 % (Mann-Whitney's
    # U <= 2 has 4 of 252 orders on each side), and U <= 4 has 12: the fifth is a lower bound.
    assert case["coverage"] == pytest.approx(1 - 2 * 4 / 252)
    assert case["relative_low"] == pytest.approx(quotients[2])
    assert case["relative_high"] == pytest.approx(quotients[-3])
    assert case["at_worst"] == pytest.approx(quotients[4])
    # Every b is below every a: 2 of the 252 orders are as extreme.
    assert (case["p_value"], case["effect_size"]) == (pytest.approx(2 / 252), -1)
    assert (case["verdict"], case["environment"], case["limit_verdict"]) == ("slower", None, None)


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        (FIVE, scaled(1.1), "faster"),
        (FIVE, scaled(1.005), "no difference shown"),
        # The most extreme of 3 and 3 values has a p-value of 2 / 20.
        (FIVE[:3], [1.0, 2.0, 3.0], "too few runs"),
        # One against 39 could come to 2 / 40 at least, which is not below 0.05.
        ([100.0 + n for n in range(39)], [1.0], "too few runs"),
    ],
)
def test_verdicts(a: list[float], b: list[float], verdict: str) -> None:
    assert [case["verdict"] for case in compared(rows(a), rows(b))] == [verdict]


def many(factors: Sequence[float]) -> list[Row]:
    """A case for each factor, with 5 runs and a CV of 0.1 %."""
    near = [99.87, 99.95, 100.0, 100.05, 100.13]
    cases = enumerate(factors, start=1)
    return [row for n, f in cases for row in rows([v * f for v in near], gpus_per_node=n)]


def test_twelve_cases_half_as_fast_are_slower() -> None:
    """Their p-value is 2 / 252 each, which no allowance for 12 cases leaves below 0.05."""
    cases = compared(many([1] * 12), many([0.5] * 12), 0.03)
    assert [case["verdict"] for case in cases] == ["slower"] * 12
    assert [case["limit_verdict"] for case in cases] == ["failed"] * 12
    # Up to 6 cases the exact interval of 5 and 5 runs covers enough, beyond it is Student's.
    assert {case["coverage"] for case in cases} == {1 - 0.05 / 12}
    assert compared(many([1] * 6), many([0.5] * 6))[0]["coverage"] == pytest.approx(1 - 2 / 252)


def test_the_cases_together_hide_no_single_slow_one() -> None:
    cases = compared(many([1] * 12), many([0.95, *[1.0] * 5, *[1.01] * 6]), 0.03)
    assert [case["verdict"] for case in cases[:2]] == ["slower", "no difference shown"]
    assert cases[0]["limit_verdict"] == "failed"
    found = together(cases)
    assert found is not None
    mean = math.expm1((math.log(0.95) + 6 * math.log(1.01)) / 12)
    assert (found.cases, found.verdict) == (12, "faster")
    assert (1 + found.relative_low) * (1 + found.relative_high) == pytest.approx((1 + mean) ** 2)
    # A small change of all is shown by all together, though by no single case.
    cases = compared(many([1] * 12), many([0.998] * 12))
    assert {case["verdict"] for case in cases} <= {"no difference shown", "perhaps slower"}
    found = together(cases)
    assert found is not None and found.verdict == "slower"
    assert together(compared(many([1]), many([1]))) is None


def test_a_case_that_only_alone_is_significant_is_perhaps_slower() -> None:
    slow = rows([95.0, 96.0, 97.0, 98.0, 100.5])
    assert [case["verdict"] for case in compared(rows(FIVE), slow)] == ["slower"]
    others = [row for n in range(2, 13) for row in rows(FIVE, gpus_per_node=n)]
    cases = compared([*rows(FIVE), *others], [*slow, *others])
    assert cases[0]["verdict"] == "perhaps slower"


# ---- which cases are the same


def test_cases_of_one_campaign_only_are_listed() -> None:
    a, b = rows(FIVE, gpus_per_node=2), rows(FIVE, gpus_per_node=4)
    cases = compared([*rows(FIVE), *a], [*rows(FIVE), *b], 0.03)
    assert [case["verdict"] for case in cases] == [
        *("no difference shown", "only in the first", "only in the second")
    ]
    assert [(case["n_a"], case["n_b"]) for case in cases] == [(5, 5), (5, 0), (0, 5)]
    assert [case["a"] for case in cases] == [102, 102, None]
    # What is missing now cannot be decided; what is new has nothing to be slower than.
    assert [case["limit_verdict"] for case in cases] == ["passed", "undecided", None]
    assert cases[1]["why"] == "it was not measured again"


def test_what_the_two_ran_on_is_named_where_it_differs() -> None:
    changes = {"framework_version": "1.9.1", "driver": None, "container": "podman x@sha256:1"}
    (case,) = compared(rows(FIVE), rows(FIVE, **changes))
    assert case["environment"] == (
        "framework version (1.6.0, 1.9.1), driver (440.33.01, unknown),"
        " container (unknown, podman x@sha256:1)"
    )


@pytest.mark.parametrize("change", ["source", "precision", "batch_size_per_device", "model"])
def test_other_cases_are_never_compared(change: str) -> None:
    other = {"batch_size_per_device": 64}.get(change, "fp16")
    cases = compared(rows(FIVE), rows(FIVE, **{change: other}))
    assert [case["verdict"] for case in cases] == ["only in the first", "only in the second"]


def test_with_several_environments_the_same_one_is_the_partner() -> None:
    old, new = rows(FIVE), rows(scaled(2), framework_version="1.9.1")
    cases = compared([*old, *new], [*new, *old])
    assert [case["environment"] for case in cases] == [None, None]
    assert {case["verdict"] for case in cases} == {"no difference shown"}
    # Two that are left on one side are no pair with one on the other: which would it be?
    third = rows(FIVE, framework_version="1.8")
    verdicts = [case["verdict"] for case in compared([*old, *new], third)]
    assert verdicts == ["only in the first", "only in the first", "only in the second"]


def test_cases_that_differ_only_in_their_environment_have_names() -> None:
    """Two rows were called 1n1g, without a word of which is which."""
    gpus = ("V100-SXM2-16GB", "A100-SXM4-40GB")
    a, b = (
        [row for n, gpu in enumerate(gpus, 1) for row in rows(scaled(n * factor), accelerator=gpu)]
        for factor in (1, 1.001)
    )
    cases = compared(a, b)
    names = [f"accelerator {gpu}" for gpu in gpus]
    assert [case["distinction"] for case in cases] == names
    lines = render_campaigns(cases, ("a", "b"), None).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:3]] for line in lines]
    assert [second for first, second in filter(None, cells) if first == "1n1g"] == names
    assert [case.get("name") for case in suite_of(cases)] == [f"fp32 b128 1n1g, {n}" for n in names]


def test_each_table_names_what_it_is_of() -> None:
    """Two image sizes in both campaigns are two tables, not two rows with the same name."""
    sizes = ("data=synthetic image_size=224", "data=synthetic image_size=64")
    a, b = ([*rows(v, parameters=sizes[0]), *rows(v, parameters=sizes[1])] for v in (FIVE, FIVE))
    words = " ".join(render_campaigns(compared(a, b), ("a", "b"), None).split())
    assert all(f"per device, {size} | topology" in words for size in sizes)


def test_invalid_runs_do_not_count() -> None:
    (case,) = compared(rows(FIVE), [*rows(FIVE), row(None, 6)])
    assert case["n_b"] == 5
    assert compared([row(None)], [row(None)]) == []


# ---- the limit


@pytest.mark.parametrize(
    ("values", "limit", "verdict", "why"),
    [
        (NARROW, 0.03, "passed", ""),
        ([v * 0.9 for v in NARROW], 0.03, "failed", ""),
        ([v * 0.97 for v in NARROW], 0.03, "undecided", "the interval crosses -3.0%; more than 1"),
        (NARROW, 0.0, "undecided", "the interval crosses 0.0%;"),
        ([100.0], 0.03, "too few runs", "5 and 1 runs are too few for a verdict; 4 and 4 are the"),
        (NARROW[:2], 0.03, "too few runs", "5 and 2 runs are too few"),
    ],
)
def test_limit_of_cases(values: list[float], limit: float, verdict: str, why: str) -> None:
    (case,) = compared(rows(NARROW), rows(values), limit)
    assert case["limit_verdict"] == verdict
    assert (case["why"] or "").startswith(why)


# ---- baselines


def test_a_baseline_is_the_campaign(tmp_path: Path) -> None:
    """Its cases may have fractions of a sample per device."""
    other = {"gpus_per_node": 8, "batch_size_per_device": 0.5, "source": None}
    form = frame([*rows(FIVE), *rows(scaled(2), **other)])
    path = save_baseline(form, "before", "20261121T064316Z", directory=tmp_path)
    assert path == tmp_path / "before.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["campaign"] == "20261121T064316Z"
    assert document["cases"][0]["samples_per_second"] == FIVE
    kept = read_baseline("before", tmp_path)
    again = compare_campaigns(kept, form, 0.5)
    assert [(case["n_a"], case["n_b"], case["batch_size_per_device"]) for case in again] == [
        *((5, 5, 128), (5, 5, 0.5))
    ]
    assert [(case["limit_verdict"], case["environment"]) for case in again] == [
        ("passed", None)
    ] * 2
    # By its path too, from anywhere.
    assert len(read_baseline(str(path), tmp_path / "elsewhere")) == len(kept) == 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "another version of this program wrote this baseline (expected version 3"),
        ({"version": 4}, "another version of this program wrote this baseline (expected version 3"),
        ({"version": "1"}, "before.json: version: invalid baseline (expected 3, found '1')"),
        ({"logs": None}, "before.json: logs: invalid baseline"),
        ({"cases": []}, "before.json: cases: invalid baseline"),
        ({"case": {"samples_per_second": [-1.0]}}, "cases.0.samples"),
        ({"case": {"samples_per_second": ["1"]}}, "cases.0.samples"),
        ({"case": {"unit": None}}, "cases.0.unit"),
        ({"case": {"batch_size_per_device": 1e308}}, "cases.0.batch_size_per_device"),
        ({"cases": [{"framework": "mxnet"}]}, "cases.0"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_damaged_baseline(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = save_baseline(frame(rows(FIVE)), "before", "a", directory=tmp_path)
    document = json.loads(path.read_text(encoding="utf-8"))
    document["cases"][0] |= change.get("case", {})
    document |= {name: value for name, value in change.items() if name != "case"}
    path.write_text(json.dumps(document), encoding="utf-8")
    assert message in refusal(read_baseline, "before", tmp_path)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b", "missing.json/x"])
def test_names_that_are_none(tmp_path: Path, name: str) -> None:
    told = refusal(save_baseline, frame(rows(FIVE)), name, "a", directory=tmp_path)
    assert "invalid baseline name" in told


def test_a_baseline_that_is_not_there_and_one_of_nothing(tmp_path: Path) -> None:
    save_baseline(frame(rows(FIVE)), "before", "a", directory=tmp_path)
    assert "expected one of before" in refusal(read_baseline, "after", tmp_path)
    assert "creates one" in refusal(read_baseline, "after", tmp_path / "nothing")
    told = refusal(save_baseline, frame([]), "empty", "a", directory=tmp_path)
    assert "the campaign has no valid run" in told


# ---- text and JUnit


@pytest.mark.parametrize("width", [40, 80, 200])
def test_text(width: int) -> None:
    a = [*rows(FIVE), *rows(FIVE, gpus_per_node=2), *rows(FIVE, gpus_per_node=4)]
    b = [*rows(scaled(0.9)), *rows(FIVE[:1], gpus_per_node=2, framework_version="1.9.1")]
    table = compare_campaigns(frame(a), frame(b), 0.03)
    text = render_campaigns(table, ("before", "after"), 0.03, Screen(width))
    words = " ".join(text.split())
    assert words.startswith("a: before b: after mxnet-resnet50v1b upstream, fp32, batch size 128")
    assert "slower" in text and "only in the first" in text and "too few runs" in text
    assert "- 1n2g: differs in framework version (1.6.0, 1.9.1)" in words
    assert "- 1n4g: undecided: it was not measured again" in words
    assert "1 slower, 1 too few runs, 1 only in the first." in words
    assert "In 95 of 100 comparisons, every interval of these 2 cases contains the true" in words
    assert "Limit 3 %: 1 of 3 cases is slower than allowed; 1 too few runs, 1 undecided." in words
    assert "at worst" in words
    assert all(len(line) <= width for line in text.splitlines())
    assert render_campaigns(table[:0], ("a", "b"), None) == "No run could be counted.\n"


NASTY = 'a<b>&"\x00\x1b]]>\ud800é'


def suite_of(cases: list[dict[str, Any]], allow_undecided: bool = False) -> ET.Element:
    root = ET.fromstring(junit(NASTY, cases, allow_undecided).encode())  # noqa: S314  # made here
    (suite,) = root
    assert (root.tag, suite.tag, suite.get("name")) == ("testsuites", "testsuite", 'a<b>&"]]>é')
    return suite


def results_of(suite: ET.Element) -> list[str]:
    return [case[1].tag if len(case) > 1 else "passed" for case in suite]


def test_junit_of_a_comparison() -> None:
    a = [*rows(FIVE), *rows(FIVE, gpus_per_node=2), *rows(FIVE, gpus_per_node=4)]
    b = [*rows(scaled(0.9)), *rows(FIVE, gpus_per_node=2), *rows(FIVE, gpus_per_node=8)]
    cases = compared(a, b, 0.05)
    suite = suite_of([cases[0] | {"distinction": NASTY}, *cases[1:]])
    results = ["failure", "passed", "error", "skipped"]
    assert results_of(suite) == results
    counts = [suite.get(key) for key in ("tests", "failures", "errors", "skipped")]
    assert counts == ["4", "1", "1", "1"]
    # As the schema that CI servers read has it: properties first, then at most one result.
    for case, result in zip(suite, results, strict=True):
        assert set(case.attrib) == {"name", "classname", "time"}
        assert [child.tag for child in case[1:]] == [result] * (result != "passed")
        assert {name for entry in case[0] for name in entry.attrib} == {"name", "value"}
    assert suite[0].get("name") == 'fp32 b128 1n1g, a<b>&"]]>é'
    assert suite[0].get("classname") == "mxnet-resnet50v1b.resnet50v1b.upstream"
    values = {entry.get("name"): entry.get("value") for entry in suite[0][0]}
    assert values["verdict"] == "slower"
    assert suite[0][1].get("message") == (
        "slower by more than 5.0%: -10.0% (-12.6% to -7.3%), 102.00 before and 91.80 now,"
        " n = 5 and 5"
    )
    assert results_of(suite_of(cases, allow_undecided=True))[2] == "skipped"
    # Without a limit none fails.
    assert results_of(suite_of(compared(a, b))) == ["passed"] * 2 + ["skipped"] * 2
