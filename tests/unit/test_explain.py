"""The command `explain`: what a budget says of planted losses, and what it refuses."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import pytest
from command_line import call
from judged_runs import HEADER, START
from make_logs import campaign_run, dllogger_pytorch, edit, gluoncv, write
from nccl_logs import bandwidth_run, nccl_tests

from dlperf_runner.commands.explain import (
    BudgetItem,
    Observations,
    bus_bandwidths,
    items_of,
    losses,
    what_next,
)
from dlperf_runner.core.frame import ALONE_LONGEST, ALONE_MEAN, INPUT_SHARE
from dlperf_runner.results.load import load_results
from dlperf_runner.stats.ratios import LogRatio, published_ratio, total, without

A100 = "NVIDIA A100-SXM4-80GB"
REPORT = "nvidia-pytorch-resnet50v1.5"
ONE, EIGHT = 2470.0, 16621.0  # images/s, as published
ALONE = "seconds of a step without communication, by rank: "
GOOD = "{time},{device},12565,97,1410,1410,61,287.51,0x0000000000000000,0"
SLOW = "{time},{device},12565,97,1128,1410,61,287.51,0x0000000000000004,0"
HOSTS = {"node1": {"hostname": "node1", "driver": "550.54.15", "gpus": [A100] * 8}}
PYTORCH = {"framework": "pytorch", "stack": "cuda", "accelerator": "gpu"}
IDLE = "{time},{device},12565,0,210,1410,41,60.00,0x0000000000000001,0"


def pytorch_run(
    campaign: Path,
    topology: str,
    repeat: int,
    rate: float,
    *,
    loading: float = 0.0,
    alone: Sequence[float] = (),
    samples: Sequence[str] = (),
    **parameters: object,
) -> None:
    """A run on A100s. `loading`: the share of the time in which it waits for data. `alone`: by
    rank, the share of a step that is computation."""
    world = int(topology[0]) * int(topology[2])
    lines = [
        line.replace(f"train.compute_ips : {rate + 9:.2f}", f"train.compute_ips : {speed:.4f}")
        for speed in [rate / (1 - loading)]
        for line in dllogger_pytorch(rate, world=world)
    ]
    step = 256 * world / rate
    seconds = " ".join(f"{share * step:.6f}" for share in alone)
    folder = campaign_run(
        campaign,
        topology,
        repeat,
        [*lines, f"{ALONE}{seconds}"] if alone else lines,
        **PYTORCH | {"workload": "pytorch-resnet50v1.5", "model": "resnet50v1.5"},
        source="upstream",
        precision="amp",
        batch_size_per_device=256,
        total_steps=100,
        log_format="dllogger_pytorch",
        parameters={"data": "/data/imagenet", **parameters},
        outcome={
            "status": "done",
            "hosts": HOSTS,
            "versions": {"torch": "2.4.0"},
            "gpu_memory_mib": {"node1": {str(n): 12565 for n in range(world)}},
        },
    )
    if samples:
        rows = [
            row.format(time=START + second, device=device)
            for device in range(world)
            for second, row in enumerate(samples)
        ]
        (folder / "telemetry-node1.csv").write_text("\n".join([HEADER, *rows]) + "\n")


def campaign(
    directory: Path, one: float = 1.0, eight: float = 1.0, repeats: int = 4, **of_eight: Any
) -> Path:
    """Runs on one device and on eight, at these fractions of the published speeds. With `one` of 0,
    none on one device. The others are those of `pytorch_run` on eight."""
    write(directory / "campaign.json", ["{}"])
    for repeat in range(1, repeats + 1):
        scatter = 1 + 0.002 * (repeat - 2.5)
        if one:
            pytorch_run(directory, "1n1g", repeat, round(ONE * one * scatter, 2))
        if eight:
            pytorch_run(directory, "1n8g", repeat, round(EIGHT * eight * scatter, 2), **of_eight)
    return directory


def explained(*arguments: object) -> dict[str, Any]:
    (budget,) = call("explain", *arguments, "--to", REPORT, "--json").document["budgets"]
    return {**budget, "items": {item["name"]: item for item in budget["items"]}}


def test_the_parts_of_a_difference_add_up(tmp_path: Path) -> None:
    """2 % slower on one device and 10 % on eight, so scaling loses 0.90 / 0.98."""
    items = explained(campaign(tmp_path, 0.98, 0.90))["items"]
    assert items["difference"]["relative"] == pytest.approx(-0.10, abs=1e-3)
    assert items["smallest topology"]["relative"] == pytest.approx(-0.02, abs=1e-3)
    assert items["scaling"]["relative"] == pytest.approx(0.90 / 0.98 - 1, abs=1e-3)
    parts = [items[name]["log_ratio"] for name in ("smallest topology", "scaling")]
    assert items["difference"]["log_ratio"] == pytest.approx(sum(parts), abs=1e-12)
    for name in ("difference", "smallest topology", "scaling"):
        assert items[name]["low"] < items[name]["relative"] < items[name]["high"]
    # Nothing else is measured, so that all of it is unexplained.
    rest = items["unexplained"]
    ends = [items["difference"]["low"], items["difference"]["high"]]
    assert [rest["low"], rest["high"]] == pytest.approx(ends)


def test_a_slow_loader_explains_a_difference(tmp_path: Path) -> None:
    found = explained(campaign(tmp_path, 1.0, 0.90, loading=0.10))
    items = found["items"]
    assert items["input"]["kind"] == "at most"
    assert items["input"]["relative"] == pytest.approx(-0.10, abs=1e-3)
    assert items["clocks"]["kind"] == "not measured"
    # The loader may be all of it, or be as slow in the publication.
    assert items["unexplained"]["low"] == pytest.approx(items["difference"]["low"])
    assert 0 < items["unexplained"]["high"] < 0.02
    assert items["unexplained"]["detail"] == "the losses above may explain all of what is missing"
    # The larger part is scaling, of which nothing is measured.
    assert found["next"]["item"] == "waiting for the slowest rank"
    assert "--source builtin" in found["next"]["command"]


def test_a_slow_rank_and_communication_are_told_apart(tmp_path: Path) -> None:
    """Seven ranks compute for 80 % of a step and one for 88 %: the mean rank waits for 7 %, and
    12 % are communication, of which 5 % are loading."""
    alone = [0.8] * 3 + [0.88] + [0.8] * 4
    items = explained(campaign(tmp_path, 1.0, 0.9, alone=alone, loading=0.05))["items"]
    names = ("input", "waiting for the slowest rank", "exposed communication")
    relative = [items[name]["relative"] for name in names]
    assert relative == pytest.approx([-0.05, -0.07 / 0.95, -0.07 / 0.88], abs=1e-3)
    assert math.prod(1 + loss for loss in relative) == pytest.approx(1 - 0.19, abs=1e-3)
    assert items["bus bandwidth"]["detail"] == "no --bandwidth given"


def test_a_slow_clock_is_a_bound_and_says_the_time(tmp_path: Path) -> None:
    """1128 of 1410 MHz in half of the busy time; idle samples do not count."""
    samples = [GOOD] * 10 + [SLOW] * 10 + [IDLE] * 20
    items = explained(campaign(tmp_path, 1.0, 0.9, samples=samples))["items"]
    clocks = items["clocks"]
    assert clocks["kind"] == "at most"
    assert clocks["relative"] == pytest.approx(-0.10)
    assert "below the highest clock in 50% of the busy time" in clocks["detail"]
    assert "at the power limit in 50%" in clocks["detail"]
    # A device without telemetry leaves the clocks unknown.
    path = next(tmp_path.glob("runs/*1n8g/r2/telemetry-node1.csv"))
    rows = [row for row in path.read_text().splitlines() if ",7,12565" not in row]
    write(path, rows)
    assert explained(tmp_path)["items"]["clocks"]["kind"] == "not measured"


def test_without_telemetry_and_a_base_the_base_comes_next(tmp_path: Path) -> None:
    found = explained(campaign(tmp_path, 0, 0.9))
    assert found["items"]["scaling"]["detail"] == "the campaign has no runs on 1n1g"
    assert "smallest topology" not in found["items"]
    assert found["next"] == {
        "item": "scaling",
        "reason": "not measured, may be up to 10.0%",
        "command": "dlperf run --workload pytorch-resnet50v1.5 --model resnet50v1.5 --precision amp"
        " --batch-size 256 --source upstream --nodes 1 --gpus-per-node 1 --repeats 5",
    }


def test_the_command_repeats_parameters_that_are_not_the_default(tmp_path: Path) -> None:
    found = explained(campaign(tmp_path, 0, 0.9, launcher="mpirun"))  # the catalogue has torchrun
    assert "--repeats 5 --parameter launcher=mpirun" in found["next"]["command"]


def test_one_device_has_no_scaling(tmp_path: Path) -> None:
    found = explained(campaign(tmp_path, 0.9, 0))
    of_devices = ("clocks", "matrix products", "memory bandwidth")
    assert [*found["items"]] == ["difference", "input", *of_devices, "unexplained"]
    assert found["next"]["item"] == "clocks"


def test_few_runs_have_no_interval_and_more_come_next(tmp_path: Path) -> None:
    found = explained(campaign(tmp_path, 1.0, 0.9, repeats=2))
    assert found["items"]["difference"]["low"] is None
    rest = found["items"]["unexplained"]
    assert (rest["kind"], rest["high"]) == ("not measured", None)
    assert rest["detail"] == "fewer than 3 runs, so no interval"
    assert found["next"]["item"] == "difference"
    assert found["next"]["command"].endswith("--nodes 1 --gpus-per-node 8 --repeats 5")


def test_what_is_not_slower_needs_nothing(tmp_path: Path) -> None:
    called = call("explain", campaign(tmp_path), "--to", REPORT)
    assert "Next: nothing; this is not slower than published." in called.out
    assert " not measured |" in called.out
    assert "- different or unknown: " in called.out


def test_a_bus_that_is_faster_than_published_explains_nothing() -> None:
    run = {"step_time_median": 1.0, ALONE_MEAN: 0.7, ALONE_LONGEST: 0.7}
    faster = losses(Observations(8, LogRatio(-0.3, 0.01, 4), runs=[run], bus=1.2))
    assert faster["bus bandwidth"] == [1.0]


def bandwidths(
    directory: Path, topology: str, gbps: float, product: str = "NVIDIA H100 80GB HBM3"
) -> Path:
    """A campaign that measured this algorithm bandwidth."""
    ranks = 8 * int(topology[0])
    for repeat in (1, 2, 3):
        lines = nccl_tests(gbps, ranks=ranks, nodes=ranks // 8, largest=2**34)
        record = bandwidth_run(directory, topology, repeat, lines) / "run.json"
        edit([record], "NVIDIA H100 80GB HBM3", product)
    write(directory / "campaign.json", ["{}"])
    return directory


def test_a_bus_at_80_percent_of_the_published_bandwidth(tmp_path: Path) -> None:
    """On 8 A100s, 234.89 GB/s are published, and 107.4 GB/s of algorithm bandwidth are 187.9 GB/s
    on the bus of 8 devices. 20 % of a step are communication, so 4 % are the bus."""
    own = campaign(tmp_path / "own", 1.0, 0.9, alone=[0.8] * 8)
    home = bandwidths(tmp_path / "bandwidth", "1n8g", 107.4, A100)
    items = explained(own, "--bandwidth", home)["items"]
    assert items["bus bandwidth"]["relative"] == pytest.approx(-0.04, abs=2e-3)
    assert items["exposed communication"]["relative"] == pytest.approx(0.80 / 0.96 - 1, abs=2e-3)
    assert "of 234.89 GB/s (stas00-nccl-tests" in items["bus bandwidth"]["detail"]
    # A bandwidth of other nodes explains nothing.
    edit(home.rglob("run.json"), '"node1"', '"node9"')
    item = explained(own, "--bandwidth", home)["items"]["bus bandwidth"]
    assert item["kind"] == "not measured"
    assert item["detail"].endswith(", on other nodes: node9")


def test_bandwidths_that_say_nothing(tmp_path: Path) -> None:
    """On another topology than the case, and of another product than published."""
    home = bandwidths(tmp_path / "bandwidth", "2n8g", 254.15)
    ((topology, (ratio, about)),) = bus_bandwidths(load_results(home)).items()
    assert str(topology) == "2n8g"
    assert ratio == pytest.approx(254.15 * 2 * 15 / 16 / 487.09, rel=1e-2)
    assert "of 487.09 GB/s (aws-nccl-tests" in about
    own = campaign(tmp_path / "own", 1.0, 0.9)
    item = explained(own, "--bandwidth", home)["items"]["bus bandwidth"]
    assert (item["kind"], item["detail"]) == ("not measured", "--bandwidth has none on 1n8g")
    other = bandwidths(tmp_path / "other", "2n8g", 254.15, "NVIDIA V100-SXM2-16GB")
    ((ratio, about),) = bus_bandwidths(load_results(other)).values()
    assert ratio is None
    assert "not comparable: accelerator (V100-SXM2-16GB" in about


def hunted(campaign: Path, operation: str, size: int, rate: float) -> Path:
    """A campaign of `doctor --hunt` on A100s; `rate`: steps per second."""
    campaign_run(
        campaign,
        "1n8g",
        1,
        [f"round {number}: {rate:.6g} samples/s" for number in range(1, 6)],
        **PYTORCH | {"workload": "pytorch-nodes", "model": f"nodes-{operation}"},
        batch_size_per_device=1,
        total_steps=5,
        warmup_steps=0,
        log_format="pytorch_nodes",
        parameters={"operation": operation, "rounds": "5", "size": size, "iterations": 400},
        outcome={"status": "done", "hosts": HOSTS, "versions": {"torch": "2.4.0"}},
    )
    return campaign


def test_matrix_products_and_memory_are_compared_with_the_data_sheet(tmp_path: Path) -> None:
    """An A100 of 80 GB has 312 TFLOP/s and 2039 GB/s. At 90 % of its clock, 72 % of the former are
    80 % of what it can do."""
    own = campaign(tmp_path / "own", 1.0, 0.9, samples=[GOOD, SLOW] * 10)
    compute = hunted(tmp_path / "compute", "compute", 8192, 0.72 * 312e12 / (2 * 8192**3))
    memory = hunted(tmp_path / "memory", "memory", 2**32, 0.95 * 2039e9 / 2**33)
    items = explained(own, "--hunt", compute, "--hunt", memory)["items"]
    assert items["clocks"]["relative"] == pytest.approx(-0.1, abs=1e-3)
    assert items["matrix products"]["relative"] == pytest.approx(-0.2, abs=1e-3)
    assert items["memory bandwidth"]["relative"] == pytest.approx(-0.05, abs=1e-3)
    assert "of 312 TFLOP/s (dense bf16, NVIDIA A100 data" in items["matrix products"]["detail"]
    assert "of 2,039 GB/s (NVIDIA A100 data sheet, quoted" in items["memory bandwidth"]["detail"]
    alone = explained(own, "--hunt", memory)["items"]
    assert alone["matrix products"]["kind"] == "not measured"
    edit(memory.rglob("run.json"), '"node1"', '"node9"')
    elsewhere = explained(own, "--hunt", memory)["items"]
    assert elsewhere["memory bandwidth"]["kind"] == "not measured"


def refused(*arguments: object) -> str:
    """The message, with its white space folded."""
    return " ".join(call("explain", *arguments, status=2).err.split())


def test_what_cannot_be_explained_is_refused(tmp_path: Path) -> None:
    own, home = campaign(tmp_path / "own", 0.9, 0), bandwidths(tmp_path / "b", "2n8g", 254.15)
    text = refused(own, "--to", REPORT, "--bandwidth", own)
    assert f"--bandwidth {own}: no run measured a bus bandwidth" in text
    assert "expected runs of nccl-all-reduce" in text
    text = refused(home, "--to", "aws-nccl-tests")
    assert f"{home}: a bandwidth has no parts" in text
    assert f"`dlperf compare {home}` judges it" in text
    text = refused(own, "--to", "nvidia-pytorch-resnet50")
    assert "unknown publication 'nvidia-pytorch-resnet50'" in text
    assert "did you mean nvidia-pytorch-resnet50v1.5?" in text
    text = refused(own, "--to", "\x1b[31m")
    assert "expected one of aws-nccl-tests, " in text and "\x1b" not in text
    for repeat in (1, 2, 3):
        write(tmp_path / "mx" / "1n1g" / f"rn50_b128_fp32_{repeat}.log", gluoncv(380.0))
    text = refused(tmp_path / "mx", "--to", REPORT)
    assert f"the report {REPORT} has no number for a case of these runs" in text
    assert "found resnet50v1b on 1n1g" in text
    assert "publications that have some: mxnet-resnet50v1b" in text
    edit(own.glob("runs/*/*/run.json"), '"done"', '"failed"')
    assert "no valid run" in refused(own, "--to", REPORT)
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "--to", REPORT)


def test_a_contradictory_number_is_explained_all_the_same(tmp_path: Path) -> None:
    """The catalogue says why it cannot be right, and so does the budget."""
    report = "lambda-pytorch-resnet50v1.5-h200-nvl"
    called = call("explain", campaign(tmp_path, 0, 0.9), "--to", report)
    assert "contradictory publication: " in called.text
    assert "the publication has no smaller topology" in called.text


def test_a_damaged_log(tmp_path: Path) -> None:
    home = campaign(tmp_path, 1.0, 0.9)
    log = next(home.glob("runs/*1n8g/r1/*.log"))
    edit([log], "batch_size : 256", "batch_size : 128")
    called = call("explain", home, "--to", REPORT, status=2)
    assert "3 runs" in called.out  # the others are explained
    assert str(log.name) in called.err


@pytest.mark.parametrize("share", [-1.0, 0.0, 1.0, 7.0])
def test_impossible_shares_stay_numbers(share: float) -> None:
    evidence = Observations(1, LogRatio(-0.1, 0.01, 4), runs=[{INPUT_SHARE: share}] * 3)
    items = items_of(evidence)
    assert all(math.isfinite(item.relative) for item in items if item.relative is not None)
    json.dumps([item.relative for item in items], allow_nan=False)


def test_what_comes_next_if_all_is_measured() -> None:
    names = ("difference", "smallest topology", "scaling", "clocks")
    items = [BudgetItem(name, "measured", "", -0.1, -0.12, -0.08, -0.105) for name in names]
    items[2] = BudgetItem("scaling", "measured", "", -0.1, -0.2, 0.0, -0.105)
    after = what_next(items, {"difference": "more"}, 0.05)
    assert after is not None
    assert (after.item, after.command) == ("scaling", "more")
    assert "20.0%" in after.reason


def test_ratios_of_a_sum() -> None:
    """Errors of 0.03 and 0.04 give 0.05; Satterthwaite's degrees of freedom are
    0.05^4 / (0.03^4 / 4 + 0.04^4 / 9)."""
    a, b = LogRatio(-0.1, 0.03, 4), LogRatio(0.2, 0.04, 9)
    both = total([a, b])
    assert (both.value, both.error) == pytest.approx((0.1, 0.05))
    assert both.freedom == pytest.approx(0.05**4 / (0.03**4 / 4 + 0.04**4 / 9))
    assert without(a, b).value == pytest.approx(-0.3)
    assert without(a, b).error == pytest.approx(0.05)
    assert total([]).value == 0


@pytest.mark.parametrize(("size", "repeats"), [(5, 5), (5, 1), (3, 3)])
def test_how_often_the_intervals_are_right(size: int, repeats: int) -> None:
    """Runs that scatter by 1 %: 2 % slower on one device, 8 % lost by scaling, of which waiting for
    data is 5 %. Of 4000 such campaigns, 95.7 to 97.0 % of the intervals of scaling contained it,
    and 95.1 to 96.3 % of those of the rest both of its true ends; here of 200."""
    random = Random(7)  # noqa: S311  not for secrets

    def runs(middle: float, count: int) -> list[float]:
        return [middle * math.exp(random.gauss(0, 0.01)) for _ in range(count)]

    right = {"scaling": 0, "unexplained": 0}
    for _ in range(200):
        one, eight = (median(runs(middle, repeats)) for middle in (100.0, 780.0))
        evidence = Observations(
            8,
            published_ratio(runs(780 * 0.98 * 0.92, size), eight, (), repeats),
            published_ratio(runs(98.0, size), one, (), repeats),
            runs=[{INPUT_SHARE: 1 - 0.95 * rate} for rate in runs(1.0, size)],
        )
        ends = {"scaling": (-0.08, -0.08), "unexplained": (0.98 * 0.92 - 1, 0.98 * 0.92 / 0.95 - 1)}
        for item in items_of(evidence):
            if item.name in ends:
                assert item.low is not None
                assert item.high is not None
                low, high = ends[item.name]
                right[item.name] += item.low <= low and high <= item.high
    assert min(right.values()) >= 0.92 * 200
