"""How numbers are shown: as published, but never with fewer digits than tell two apart."""

import pytest
from compare_rows import rows
from frame_rows import cases, frame, row

from dlperf_runner.compare.campaigns import compare_campaigns
from dlperf_runner.report import case_tables, numbers
from dlperf_runner.report.compare_text import render_campaigns


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([384.19, 9579.74], 2),
        ([0.155, 0.145], 3),
        ([0.0041], 5),
        ([9579.74, 0.0041], 5),
        ([0.0, None, 5.0], 2),
        ([], 2),
        ([1e-300], 12),
    ],
)
def test_decimals_of_a_column(values: list[float | None], shown: int) -> None:
    assert numbers.decimals(values) == shown


def test_a_rule_may_publish_more_decimals() -> None:
    assert numbers.rate_decimals("oneflow-resnet50v1.5", [384.19]) == 3
    assert numbers.rate_decimals("anything", [384.19]) == 2


def test_words_of_a_comparison() -> None:
    assert [numbers.percent(v) for v in (-0.07, 0.0, -0.0004, 0.000001)] == [
        *("-7.0%", "+0.0%", "-0.04%", "+0.000%")
    ]
    assert [numbers.ratio(v) for v in (1.003, 0.95, 0.0041)] == ["1.003", "0.950", "0.00410"]
    assert [numbers.speedup(v) for v in (24.935, 0.95, 0.0041)] == ["24.93", "0.95", "0.0041"]


def test_slow_cases_are_told_apart() -> None:
    rows = [row(0.155), row(0.145, "1n2g"), row(0.0041, batch_size_per_device=8)]
    printed = case_tables.render(cases(rows), [])
    for value in (" 0.155 |", " 0.145 |", " 0.94 |", " 0.00410 |"):
        assert value in printed


def test_slow_campaigns_are_told_apart_by_the_gate() -> None:
    """0.155 and 0.145 samples/s were `0.15 = 0.15, passed`."""
    near = (-0.0002, -0.0001, 0, 0.0001, 0.0002)
    a, b = (frame(rows([middle + n for n in near])) for middle in (0.155, 0.145))
    (case,) = table = compare_campaigns(a, b, 0.03)
    assert case["limit_verdict"] == "failed"
    words = render_campaigns(table, ("a", "b"), 0.03).split()
    assert {"0.155", "0.145", "-6.5%", "slower"} <= set(words)
    assert compare_campaigns(b, a, 0.03)[0]["limit_verdict"] == "passed"
