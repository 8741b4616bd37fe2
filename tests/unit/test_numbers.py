"""How numbers are shown: as published, but never with fewer digits than tell two apart."""

from pathlib import Path

import pytest
from command_line import call
from frame_rows import cases, row
from make_logs import campaign_run, gluoncv, write

from dlperf_runner.report import case_tables, numbers


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


def slow_campaign(directory: Path, low: float) -> Path:
    """Five runs of 100 measured steps, about half of them 0.01 samples/s faster: a median halfway
    between."""
    write(directory / "campaign.json", ["{}"])
    for repeat, number in enumerate((50, 48, 52, 49, 51), start=1):
        lines = gluoncv(1.0)
        for step in range(1, 101):
            at = next(n for n, x in enumerate(lines) if f"[{20 + step}]\tSpeed" in x)
            rate = low + 0.01 * (step <= number)
            lines[at] = f"INFO:root:Epoch[0] Batch[{20 + step}]\tSpeed: {rate:.2f} samples/sec"
        campaign_run(directory, "1n1g", repeat, lines)
    return directory


def test_slow_campaigns_are_told_apart_by_the_gate(tmp_path: Path) -> None:
    """0.155 and 0.145 samples/s were `0.15 = 0.15, passed`."""
    a, b = slow_campaign(tmp_path / "a", 0.15), slow_campaign(tmp_path / "b", 0.14)
    result = call("compare", a, b, "--fail-if-slower", "3%", status=1)
    assert {"0.155", "0.145", "-6.5%", "slower"} <= set(result.out.split())
    call("compare", b, a, "--fail-if-slower", "3%")
