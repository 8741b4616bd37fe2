"""Where the time of a step goes: what logs say, what is computed of it, and the report."""

from pathlib import Path
from typing import Any

import pytest
from command_line import call
from csv_tables import table
from make_logs import arcface_torch, dllogger_pytorch, torchtitan, write
from nccl_logs import nccl_tests

from dlperf_runner.stats.summary import step_parts

TEXT = "seconds of a step without communication, by rank: "
KERNELS = "seconds of NCCL kernels in a step, by rank: "
REDUCED = "all-reduce of the gradients alone: 16000000 bytes in 0.020000 s through eth1"


ALONE = "2.000000 2.100000 2.000000 2.300000"
OTHER_ALONE = "2.400000 2.100000 2.000000 2.300000"
NCCL = "0.500000 0.600000 0.700000"
LLAMA = "llama8b_b2_bf16"
CONVNETS = dllogger_pytorch(1000.0, world=4)


def titan(
    alone: str | None, *, nccl: str = "", devices: int = 2, nodes: int = 2, tokens: int = 6400
) -> list[str]:
    lines = torchtitan(tokens, world=devices * nodes, steps=60, every=1, warmup=10)
    stamp = "[titan] 2025-12-01 12:59:59,123 - root - INFO - "
    lines += [f"{stamp}{KERNELS}{nccl}"] if nccl else []
    return [*lines, f"{stamp}{TEXT}{alone}", f"{stamp}Training completed"] if alone else lines


def written(folder: Path, *logs: list[str], place: str = "2n2g", name: str = LLAMA) -> None:
    for repeat, log in enumerate(logs, start=1):
        write(folder / "logs" / place / f"{name}_{repeat}.log", log)


def case_of(folder: Path) -> dict[str, str]:
    """The only case of these logs."""
    call("summarize", folder / "logs", "--output-dir", folder / "out")
    (case,) = table(folder / "out" / "summary.csv")
    return case


def report(folder: Path, *options: str) -> str:
    """The report of these logs in Markdown, its white space folded."""
    call("report", folder / "logs", "--output-dir", folder / "report", *options)
    return " ".join((folder / "report" / "report.md").read_text().split())


def test_times_of_arcface(tmp_path: Path) -> None:
    """A step of 256 samples at 1000 samples/s, of which NCCL takes 0.08 s."""
    parts = (f"{TEXT}0.200000 0.180000", REDUCED, f"{KERNELS}0.080000 0.080000")
    stamp = "Training: 2022-03-01 11:00:00,123-"
    log = [*arcface_torch(1000.0, world=2), *(stamp + text for text in parts)]
    written(tmp_path, log, place="2n1g", name="r50_b128_amp")
    case = case_of(tmp_path)
    assert (case["alone_longest_s"], case["slowest_rank"]) == ("0.2", "0.0")
    assert "steps_without_communication" in (tmp_path / "out" / "measurements.csv").read_text()
    assert float(case["nccl_kernels_s"]) == pytest.approx(0.08)
    assert float(case["all_reduce_bus_bandwidth"]) == pytest.approx(16e6 / 0.02 / 1e9)
    assert (
        "2n1g: of a step of 0.256 s, 74.2% is the computation of the mean rank, 3.9% is waiting"
        " for the slowest rank, and 21.9% is communication that no computation hides."
    ) in report(tmp_path)


CASE: dict[str, Any] = {
    "world_size": 4,
    "step_time_median_s": 2.56,
    "alone_mean_s": 2.1,
    "alone_longest_s": 2.3,
    "slowest_rank": 3.0,
}


@pytest.mark.parametrize(
    ("changes", "shares", "has_straggler"),
    [
        ({}, (2.1, 0.2, 0.26), True),
        # Communication that is hidden is no negative number.
        ({"step_time_median_s": 2.2}, (2.1, 0.1, 0.0), True),
        ({"step_time_median_s": 2.0}, (2.0, 0.0, 0.0), False),
        ({"alone_longest_s": 2.11}, (2.1, 0.01, 0.45), False),
        ({"world_size": 1}, (2.56, 0.0, 0.0), False),  # one device only computes
    ],
)
def test_the_parts_of_a_step_are_the_step(
    changes: dict[str, float], shares: tuple[float, ...], has_straggler: bool
) -> None:
    case = CASE | changes
    parts = step_parts(case)
    assert parts is not None
    assert (parts.computation, parts.waiting, parts.communication) == pytest.approx(shares)
    assert parts.step == case["step_time_median_s"] == pytest.approx(sum(shares))
    assert parts.slowest_rank == (None if case["world_size"] == 1 else 3)
    assert parts.has_straggler is has_straggler
    for name in ("alone_mean_s", "step_time_median_s"):
        assert case["world_size"] == 1 or step_parts(case | {name: None}) is None


def test_report(tmp_path: Path) -> None:
    written(tmp_path, titan(None, devices=1, nodes=1, tokens=8000), place="1n1g")
    written(tmp_path, titan(ALONE))
    told = (
        "2n2g: of a step of 2.560 s, 82.0% is the computation of the mean rank, 7.8% is"
        " waiting for the slowest rank, and 10.2% is communication that no computation hides."
        " Rank 3, on node 2, was the slowest in each run."
        " On 2n2g, waiting for input was not measured."
    )
    assert told in report(tmp_path)
    (picture,) = (tmp_path / "report").rglob("*-time-*.svg")
    assert "pytorch" in picture.name
    page = report(tmp_path, "--lang", "zh")
    assert "时间花在哪里" in page and "2n2g：每步 2.560 秒" in page


def test_for_how_long_kernels_of_nccl_run(tmp_path: Path) -> None:
    nccl = f"{NCCL} 0.760000"
    written(tmp_path, titan(ALONE, nccl=nccl))
    text = report(tmp_path)
    assert (
        "On 2n2g, kernels of NCCL ran for 25.0% of a step, partly beside computation; waiting for"
        " slower ranks is included."
    ) in text
    assert "NCCL kernels |" in text
    written(tmp_path, titan(None, nccl=nccl))
    text = report(tmp_path, "--lang", "zh")
    assert "在 2n2g 上，NCCL 内核的运行时间占一步的 25.0%，其中一部分与计算同时进行" in text
    assert case_of(tmp_path)["nccl_kernels_s"] == "0.64"


def test_the_all_reduce_alone_stands_beside_that_of_nccl_tests(tmp_path: Path) -> None:
    """16 MB in 0.02 s on 4 devices: 0.8 GB/s times 2 * 3 / 4."""
    written(tmp_path, [*titan(ALONE), REDUCED])
    of_nccl = nccl_tests(1.0, ranks=4, nodes=2, largest=2**24)
    written(tmp_path, of_nccl, name="allreduce_b1_fp32")
    text = report(tmp_path)
    assert (
        "On 2n2g, an all-reduce of the gradients alone has 1.20 GB/s of bus bandwidth (16000000"
        " bytes through eth1). That is 80.0% of what nccl-allreduce measured in this campaign."
    ) in text
    assert "all-reduce (GB/s) | of nccl-allreduce" in text


def test_the_all_reduce_of_one_node_names_no_interface(tmp_path: Path) -> None:
    log = [*titan("2.000000 2.100000", nodes=1), REDUCED.replace(" through eth1", "")]
    written(tmp_path, log, place="1n2g")
    case_of(tmp_path)
    rows = (tmp_path / "out" / "measurements.csv").read_text()
    assert "16000000 bytes through unknown" in rows


def test_waiting_for_input_is_what_the_compute_rate_leaves_out(tmp_path: Path) -> None:
    """1000 images/s in all, 1009 without waiting for data. The warm-up does not count."""
    written(tmp_path, CONVNETS, name="rn50_b256_amp")
    assert (
        "On 2n2g, the program waited for input in 0.9% of the time."
        " On 2n2g, computation and communication were not measured."
    ) in report(tmp_path)
    assert float(case_of(tmp_path)["input_share"]) == pytest.approx(1 - 1000 / 1009)


LACKING = [
    line.replace("train.compute_ips : 1009.00 img/s ", "") if "Iteration: 60 " in line else line
    for line in CONVNETS
]


def test_waiting_for_input_with_a_gap_is_not_known(tmp_path: Path) -> None:
    written(tmp_path, LACKING, name="rn50_b256_amp")
    case = case_of(tmp_path)
    assert case["input_share"] == "" != case["step_time_median_s"]


@pytest.mark.parametrize(
    ("unknown", "known", "logs"),
    [
        *(
            (
                "alone_mean_s slowest_rank",
                "step_time_median_s",
                [titan(f"2.000000 2.100000 {more}")],
            )
            for more in ("2.000000", "2.000000 0.000000", "2.000000 2.3", "nan 2.300000")
        ),
        *(
            ("nccl_kernels_s", "alone_longest_s", [titan(ALONE, nccl=nccl)])
            for nccl in ("0.500000", f"{NCCL} 0.76", f"{NCCL} 0.000000")
        ),
        # Another rank in each run, of which one began an hour later.
        (
            *("slowest_rank", "alone_longest_s"),
            [titan(ALONE), [line.replace(" 12:", " 13:") for line in titan(OTHER_ALONE)]],
        ),
        (
            *("all_reduce_bus_bandwidth", "alone_longest_s"),
            [[*titan(ALONE), REDUCED.replace(" s through eth1", "")]],
        ),
    ],
)
def test_what_is_cut_or_missing_or_differs_is_not_known(
    tmp_path: Path, unknown: str, known: str, logs: list[list[str]]
) -> None:
    written(tmp_path, *logs)
    case = case_of(tmp_path)
    assert {case[column] for column in unknown.split()} == {""}
    assert "" not in (case["step_time_median_s"], case[known])


def test_a_report_without_these_times_has_no_such_part(tmp_path: Path) -> None:
    written(tmp_path, titan(None))
    assert "Where the time goes" not in report(tmp_path)
