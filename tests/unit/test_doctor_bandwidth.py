"""doctor --bandwidth: which groups of nodes are measured, and which node or link is named."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from make_logs import write
from nccl_logs import nccl_tests
from plan_examples import gpu_nodes
from planned_campaigns import set_outcome

from dlperf_runner.campaign import directory as campaigns
from dlperf_runner.catalog.stack import LeastBusBandwidth
from dlperf_runner.core.node import Node
from dlperf_runner.doctor.bandwidth import (
    GroupBandwidth,
    bandwidth_findings,
    find_slow,
    is_enough,
)
from dlperf_runner.doctor.findings import Finding

LEAST = LeastBusBandwidth(one_node=431, several_nodes=400)
H100 = "h100-cuda12.9"


def nodes(count: int, stack: str = H100, devices: int = 8) -> tuple[Node, ...]:
    accelerator = "cpu" if stack == "cpu" else "NVIDIA H100 80GB HBM3"
    return gpu_nodes(count, devices, stack=stack, accelerator=accelerator, interface="eth0")


def of_group(names: str, busbw: float | None) -> GroupBandwidth:
    return GroupBandwidth(tuple(f"node{name}" for name in names), busbw, "no route")


def findings(
    whole: float | None,
    alone: Mapping[str, float | None],
    pairs: Mapping[str, float | None],
    least: LeastBusBandwidth | None = LEAST,
) -> dict[tuple[str, str], Finding]:
    found = bandwidth_findings(
        of_group("1234", whole),
        [of_group(name, value) for name, value in alone.items()],
        [of_group(names, value) for names, value in pairs.items()],
        least,
        "stack x",
    )
    return {(finding.node, finding.check): finding for finding in found}


def bad(found: Mapping[tuple[str, str], Finding]) -> list[tuple[str, str]]:
    return [key for key, finding in found.items() if finding.status != "ok"]


ALONE = {"1": 470.0, "2": 468.0, "3": 471.0, "4": 469.0}
PAIRS = {"12": 455.0, "23": 450.0, "34": 452.0, "41": 451.0}
WHOLE = ("", "bus bandwidth")


def test_all_together_are_fast_enough() -> None:
    assert is_enough(of_group("1234", 430), LEAST)
    assert not is_enough(of_group("1234", 390), LEAST)
    assert not is_enough(of_group("1", 430), LEAST)  # one node must reach 431
    assert not is_enough(of_group("1234", None), LEAST)
    assert not is_enough(of_group("1234", 430), None)
    assert bad(findings(430, {}, {})) == []


NETWORK, ALONE_3 = "bus bandwidth of its network", ("node3", "bus bandwidth")
LINKS = {names: ("", "bus bandwidth of node{} and node{}".format(*names)) for names in PAIRS}


@pytest.mark.parametrize(
    ("whole", "alone", "pairs", "named"),
    [
        # A node whose NVLink is slow slows its pairs, too: they say nothing of the network.
        (190, {"3": 200.0}, {"23": 190.0, "34": 191.0}, {ALONE_3: "200 GB/s alone"}),
        (
            *(90, {}, {"23": 95.0, "34": 91.0}),
            {("node3", NETWORK): "95 GB/s with node2, 91 GB/s with node4"},
        ),
        (200, {}, {"23": 210.0}, {LINKS["23"]: "210 GB/s between them"}),
        # If all are slow, no node is blamed.
        (
            *(200, {}, dict.fromkeys(PAIRS, 210.0)),
            dict.fromkeys(LINKS.values(), "210 GB/s between them"),
        ),
        # What could not be measured is no speed.
        (None, {"3": None}, {"41": None}, {ALONE_3: "no route", LINKS["41"]: "no route"}),
    ],
)
def test_who_is_named(
    whole: float | None,
    alone: dict[str, float | None],
    pairs: dict[str, float | None],
    named: dict[tuple[str, str], str],
) -> None:
    found = findings(whole, ALONE | alone, PAIRS | pairs)
    assert bad(found) == [WHOLE, *named]
    assert {key: found[key].found for key in named} == named
    assert whole or found[WHOLE].found == "no route"
    if whole == 190:
        slow = found[ALONE_3]
        assert (slow.expected, "nvlink" in slow.hint) == ("431 GB/s or more", True)


@pytest.mark.parametrize(("slow", "is_named"), [(5.0, True), (9.0, False)])
def test_without_a_limit_nodes_are_compared_with_each_other(slow: float, is_named: bool) -> None:
    """80 % of the median of the better half: of 10.2 and 10.1 GB/s."""
    alone = {"1": 10.1, "2": slow, "3": 10.2, "4": 9.5}
    found = findings(4, alone, dict.fromkeys(PAIRS, 3.0), None)
    assert "failed" not in {finding.status for finding in found.values()}
    assert bad(found) == ([("node2", "bus bandwidth")] if is_named else [])
    assert found["node2", "bus bandwidth"].expected == "8.12 GB/s or more"
    assert found[WHOLE].expected == "any, as stack x has no least_bus_bandwidth"


# ---- the campaign


Speed = Callable[[tuple[str, ...]], float | None]


def executed(speed: Speed, asked: list[tuple[str, ...]]) -> Any:
    """In the place of bench.yml: each run that is left gets its log, or fails."""

    def execute(directory: Path, _: object) -> list[str]:
        for run in campaigns.remaining_plan(directory)["runs"]:
            hosts = tuple(run["hosts"])
            asked.append(hosts)
            gbps, ranks = speed(hosts), run["world_size"]
            if gbps is None:
                set_outcome(directory, run, status="failed", message="node3: exit status 1")
                continue
            record = set_outcome(directory, run, status="done")
            size, alg = run["parameters"]["message_bytes"], gbps * ranks / 2 / (ranks - 1)
            log = nccl_tests(alg, ranks=ranks, largest=size, nodes=len(hosts))
            write(record.with_name(run["log_name"]), log)
        return []

    return execute


def measured(
    tmp_path: Path, count: int, speed: Speed, stack: str = H100
) -> tuple[list[Finding], list[tuple[str, ...]]]:
    asked: list[tuple[str, ...]] = []
    execute = executed(speed, asked)
    devices = 2 if stack == "cpu" else 8
    found = find_slow(nodes(count, stack, devices), (), print, tmp_path / "one", execute)
    return found, asked


def test_only_all_nodes_are_measured_if_they_are_fast(tmp_path: Path) -> None:
    found, asked = measured(tmp_path, 3, lambda _: 450.0)
    assert asked == [("node1", "node2", "node3")]
    assert [finding.status for finding in found] == ["ok"]
    assert found[0].found.startswith("449.")
    assert found[0].found.endswith(" GB/s over 3 nodes")


def test_a_slow_cluster_is_searched(tmp_path: Path) -> None:
    """What node3 takes part in is slow, and it fails alone."""
    slow: Speed = lambda hosts: None if hosts == ("node3",) else 150 if "node3" in hosts else 450  # noqa: E731
    found, asked = measured(tmp_path, 3, slow)
    everyone, *groups = asked
    assert everyone == ("node1", "node2", "node3")
    pairs = [("node1", "node2"), ("node2", "node3"), ("node3", "node1")]
    assert groups == [("node1",), ("node2",), ("node3",), *pairs]
    failed = {finding.node: finding for finding in found if finding.status == "failed"}
    assert set(failed) == {"", "node3"}
    assert failed["node3"].found == "node3: exit status 1"
    runs = campaigns.read_plan(tmp_path / "one")["runs"]
    ids = [run["id"].split("_")[-1] for run in runs]
    assert ids == [
        "3n8g/r1",
        *(f"1n8g/r{n}" for n in (1, 2, 3)),
        *(f"2n8g/r{n}" for n in (1, 2, 3)),
    ]


def test_cpu_nodes_are_compared_with_each_other(tmp_path: Path) -> None:
    found, asked = measured(tmp_path, 2, lambda hosts: 1.0 if hosts == ("node2",) else 4.0, "cpu")
    assert asked == [("node1", "node2"), ("node1",), ("node2",)]
    assert [finding.node for finding in found if finding.status == "warning"] == ["node2"]


def test_what_cannot_be_planned_is_a_finding(tmp_path: Path) -> None:
    (found,) = find_slow(nodes(1, "cpu", 1), (), print, tmp_path / "one")
    assert (found.status, "needs at least two devices" in found.found) == ("failed", True)
    (found,) = find_slow(nodes(2, "v100-cuda10.2"), (), print, tmp_path / "two")
    assert "not tried with NCCL 2.7" in found.found
