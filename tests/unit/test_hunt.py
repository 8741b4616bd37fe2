"""doctor --hunt and --same: rounds of disjoint pairs, who is named, and what is said of noise."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from command_line import call
from plan_examples import gpu_nodes, lab_nodes
from planned_campaigns import set_outcome

from dlperf_runner.campaign import directory as campaigns
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.control.rounds import Execution
from dlperf_runner.core.errors import UserError
from dlperf_runner.core.node import Node
from dlperf_runner.doctor import hunt as hunting
from dlperf_runner.doctor.findings import Finding
from dlperf_runner.doctor.hunt import (
    Bits,
    NodeCampaign,
    bits_of,
    excluded,
    hunt_findings,
    hunt_slow,
    same_findings,
)
from dlperf_runner.doctor.search import Round, as_text, circle, over_others, rounds_from, search
from dlperf_runner.plan.cases import not_planned
from dlperf_runner.plan.choice import parse_choice
from dlperf_runner.plan.make import make_plan
from dlperf_runner.report.terminal import PIPE

MARK = "dlperf-nodes: "
QUIET = Execution((), "", lambda _: None)
HOSTS: dict[str, Any] = {}
Speed = Callable[[Sequence[str]], float]


@pytest.mark.parametrize("nodes", range(2, 18))
def test_each_node_meets_each_other_once_and_one_at_a_time(nodes: int) -> None:
    rounds = circle(nodes)
    pairs = [pair for pairs in rounds for pair in pairs]
    assert len(pairs) == len(set(pairs)) == nodes * (nodes - 1) // 2
    for of_round in rounds:
        members = [member for pair in of_round for member in pair]
        assert len(members) == len(set(members)) == nodes - nodes % 2


def test_a_value_is_compared_with_the_others_of_its_round() -> None:
    generator = np.random.default_rng(1)
    for size in range(2, 9):
        values = [float(generator.integers(1, 6)) for _ in range(size)]
        others = [median(map(math.log, values[:n] + values[n + 1 :])) for n in range(size)]
        expected = [math.log(value) - other for value, other in zip(values, others, strict=True)]
        logs = over_others({(str(n),): value for n, value in enumerate(values)})
        assert logs == pytest.approx(expected)
    assert over_others({("alone",): 3.0}).tolist() == [0.0]


def rounds(nodes: int, count: int, slow: Mapping[int, float], cv: float = 0.01) -> list[Round]:
    """Pairs, each as fast as the slower of its nodes."""
    generator = np.random.default_rng(nodes)

    def speed(a: int, b: int) -> float:
        return min(slow.get(a, 1.0), slow.get(b, 1.0)) * generator.normal(1, cv)

    every = rounds_from(nodes, 0, count)
    return [{(f"node{a}", f"node{b}"): speed(a, b) for a, b in pairs} for pairs in every]


QUIET_16 = rounds(16, 10, {3: 0.99}, cv=0.0001)
INTERRUPTED = rounds(16, 10, {3: 0.95})
INTERRUPTED[0][next(iter(INTERRUPTED[0]))] *= 0.3


@pytest.mark.parametrize(
    ("measured", "slower", "slow", "decides"),
    [
        (rounds(64, 5, {7: 0.96}), 0.03, {"node7"}, True),
        # Partners of very slow nodes are not accused, nor are equal nodes.
        (rounds(8, 10, {2: 0.5, 5: 0.6}), 0.03, {"node2", "node5"}, True),
        (rounds(16, 10, {}), 0.03, set(), True),
        # A difference may be sure, and too small to matter.
        (QUIET_16, 0.03, set(), True),
        (QUIET_16, 0.01, {"node3"}, True),
        # One interruption accuses nobody and hides nobody.
        (INTERRUPTED, 0.03, {"node3"}, True),
        (rounds(16, 5, {}, cv=0.2), 0.03, set(), False),
        # Of two pairs in three rounds, some node is always in the slower one in most deals.
        (rounds(4, 3, {1: 0.5}), 0.03, set(), False),
        # Without node1, no round has two pairs: the other three are not compared.
        (rounds(4, 12, {1: 0.5}), 0.03, {"node1"}, True),
    ],
)
def test_who_is_accused(
    measured: list[Round], slower: float, slow: set[str], decides: bool
) -> None:
    verdict = search(measured, slower)
    assert {member.name for member in verdict.slow} == slow
    assert verdict.decides(slower) == decides
    ratios = [member.ratio for member in verdict.members[len(slow) :]]
    assert ratios == sorted(ratios)


def test_the_numbers_of_a_verdict() -> None:
    verdict = search(rounds(64, 5, {7: 0.96}), 0.03)
    assert verdict.slow[0].ratio == pytest.approx(0.96, abs=0.01)
    assert verdict.members[0].p_value <= 0.05 < verdict.members[1].p_value
    assert 0.1 < search(rounds(16, 5, {}, cv=0.2), 0.03).detectable < 0.6
    assert search(rounds(4, 3, {1: 0.5}), 0.03).detectable == 1
    assert search(rounds(4, 12, {1: 0.5}), 0.03).detectable is None


# The way from the plan to the findings, with a stand-in for bench.yml that writes the logs.


class StandIn:
    """Runs the planned runs: each pair or device is as fast as `speed` says."""

    def __init__(self, speed: Speed, nodes: Sequence[Node], devices: int = 1) -> None:
        self.speed, self.nodes, self.devices = speed, nodes, devices
        self.rounds: list[str] = []

    def __call__(self, directory: Path, _: Execution) -> list[str]:
        for run in campaigns.remaining_plan(directory)["runs"]:
            (command, *_) = run["commands"]
            argv = list(command["argv"])
            text = argv[argv.index("--rounds") + 1]
            operation = argv[argv.index("--operation") + 1]
            self.rounds.append(text)
            log = "\n".join(self.lines(operation, text)) + "\n"
            place = campaigns.run_directory(directory, run)
            (place / run["log_name"]).write_text(log)
            set_outcome(directory, run, status="done", hosts=HOSTS)
        return []

    def lines(self, operation: str, text: str) -> list[str]:
        if operation == "collective":
            groups = [
                [[int(end) for end in pair.split("-")] for pair in of_round.split("+")]
                for of_round in text.split(":")
            ]
        else:
            ranks = len(self.nodes) * self.devices
            groups = [[[rank] for rank in range(ranks)]] * int(text)
        return [
            MARK + json.dumps({"round": n, "unit": "GB/s", "values": self.values(of_round)})
            for n, of_round in enumerate(groups, 1)
        ]

    def values(self, groups: Sequence[Sequence[int]]) -> list[Any]:
        return [[places, self.speed([str(place) for place in places])] for places in groups]


def nodes(count: int, devices: int = 1) -> tuple[Node, ...]:
    return lab_nodes(count, devices_per_node=devices, frameworks=("pytorch",))


def hunted(tmp_path: Path, kind: str, count: int, speed: Speed, devices: int = 1) -> Any:
    on = nodes(count, devices)
    stand_in = StandIn(speed, on, devices)
    campaign = NodeCampaign(kind, on, QUIET, None, tmp_path / kind, stand_in)
    return [*hunt_slow(campaign, 0.03)], stand_in


def noisy(factors: Mapping[Any, float], cv: float = 0.005) -> Speed:
    generator = np.random.default_rng(3)

    def speed(places: Sequence[str]) -> float:
        slowest = min(factors.get(place, 1.0) for place in places)
        return 10 * factors.get("-".join(places), slowest) * generator.normal(1, cv)

    return speed


def findings(hunts: Sequence[Any]) -> list[Finding]:
    return [finding for each in hunts for finding in hunt_findings(each)]


def test_a_slow_network_is_named_and_excluded(tmp_path: Path) -> None:
    hunts, stand_in = hunted(tmp_path, "collective", 10, noisy({"6": 0.9}))
    assert stand_in.rounds == [as_text(rounds_from(10, 0, 5))]
    assert excluded(hunts) == ["node7"]
    slow, rest = findings(hunts)
    assert (slow.node, slow.status, slow.check) == ("node7", "failed", "hunt: collective")
    assert slow.found.startswith(("9.", "10."))
    assert "% slower in the median of 5 rounds (p = " in slow.found
    assert rest.status == "ok"
    assert rest.found.startswith("9 of 10 are, after 5 rounds, median ")
    text = hunting.render_hunts(hunts, PIPE)
    assert text.endswith("\n--exclude=node7\n")
    assert "| node7   |" in text
    assert json.loads(json.dumps(asdict(hunts[0])))["is_decided"] is True


def test_a_slow_link_is_measured_again_and_accuses_no_node(tmp_path: Path) -> None:
    hunts, stand_in = hunted(tmp_path, "collective", 10, noisy({"0-9": 0.8}))
    assert excluded(hunts) == []
    assert [each.what for each in hunts] == ["collective", "link"]
    assert stand_in.rounds[-1] == as_text(rounds_from(10, 0, 1) * 10)
    (slow,) = [finding for finding in findings(hunts) if finding.status == "failed"]
    assert slow.node == ""
    assert slow.found.startswith("node1 and node10: ")


def test_a_slow_device_is_named_with_its_node(tmp_path: Path) -> None:
    hunts, _ = hunted(tmp_path, "compute", 4, noisy({"5": 0.93}), devices=2)
    assert excluded(hunts) == ["node3"]
    slow = findings(hunts)[0]
    assert slow.node == "node3"
    assert slow.found.startswith("node3 device 1: ")


def test_more_rounds_until_the_noise_allows_it_and_then_an_end(tmp_path: Path) -> None:
    hunts, stand_in = hunted(tmp_path, "collective", 10, noisy({}, cv=0.02))
    assert len(stand_in.rounds) > 1
    assert stand_in.rounds[1] == as_text(rounds_from(10, 5, 5))
    assert hunts[0].is_decided
    loud, stand_in = hunted(tmp_path / "loud", "collective", 10, noisy({}, cv=0.3))
    assert len(stand_in.rounds) == hunting.MOST_ROUNDS // 5
    assert not loud[0].is_decided
    last = findings(loud)[0]
    assert last.status == "warning"
    assert "the noise allows to find only what is" in last.found


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least 4 nodes"):
        hunted(tmp_path, "collective", 3, noisy({}))
    with pytest.raises(UserError, match="nothing to compare with"):
        hunted(tmp_path, "compute", 1, noisy({}))
    with pytest.raises(UserError, match="expected one of compute, memory, collective"):
        hunting.parse_kinds("compute,disk")


@pytest.mark.parametrize(
    "values",
    [
        *([[[0], speed]] for speed in (0, math.inf, math.nan, 1.0, "fast")),
        *([[[99], 1.0]], [[0, 1.0]], "none", None),
    ],
)
def test_a_foreign_measurement_is_refused(
    tmp_path: Path, values: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StandIn, "values", lambda *_: values)
    with pytest.raises(UserError, match="invalid measurement"):
        hunted(tmp_path, "compute", 4, noisy({}))


def test_a_run_that_failed_is_an_error(tmp_path: Path) -> None:
    on = nodes(4)
    campaign = NodeCampaign("memory", on, QUIET, None, tmp_path / "c", lambda *_: ["no route"])
    with pytest.raises(UserError, match="no route"):
        campaign.lines("5")


# The same bits


def bits(node: str, product: str = "H100", step: int = 51, last: str = "aa") -> Bits:
    """Those of a device whose losses differ from this step on; 51: never."""
    losses = [f"{n:016x}" if n < step - 1 else "f" * 16 for n in range(50)]
    return Bits(node, product, "2.9", tuple(losses), last)


EQUAL = "2 devices of H100, PyTorch 2.9 agree: aa"
ALONE = "node3 is the only A100, PyTorch 2.9: nothing to compare with"


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (
            [bits("node1"), bits("node2 device 1", step=17, last="bb"), bits("node3")],
            [("node2", "failed", "node2 device 1 differs from 2 devices from step 17 on")],
        ),
        (
            [bits("node1"), bits("node2"), bits("node3", last="bb")],
            [("node3", "failed", "node3 differs from 2 devices in the parameters alone")],
        ),
        # Products are compared within themselves.
        (
            [bits("node1"), bits("node2"), bits("node3", "A100", last="cc")],
            [("", "ok", EQUAL), ("", "warning", ALONE)],
        ),
        # Without a majority, nobody is accused alone.
        (
            [bits("node1"), bits("node2", step=3, last="bb")],
            [("", "failed", "aa on node1; bb on node2")],
        ),
    ],
)
def test_devices_with_other_bits(devices: list[Bits], expected: list[tuple[str, str, str]]) -> None:
    assert [(each.node, each.status, each.found) for each in same_findings(devices)] == expected


def test_the_bits_of_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = {"rank": 1, "product": "H100", "torch": "2.9", "losses": ["3f"], "parameters": "aa"}
    monkeypatch.setattr(StandIn, "lines", lambda *_: [MARK + json.dumps(line)])
    on = nodes(2)

    def campaign(name: str) -> NodeCampaign:
        return NodeCampaign("same", on, QUIET, None, tmp_path / name, StandIn(noisy({}), on))

    with pytest.raises(UserError, match="devices are missing in the log"):
        bits_of(campaign("one"))
    both = [MARK + json.dumps({**line, "rank": rank}) for rank in (0, 1)]
    monkeypatch.setattr(StandIn, "lines", lambda *_: both)
    assert bits_of(campaign("both"))[1] == Bits("node2", "H100", "2.9", ("3f",), "aa")
    for wrong in ({**line, "losses": ["zz"]}, {"rank": 1}):
        both[:] = [MARK + json.dumps(wrong)]
        with pytest.raises(UserError, match="expected rank, product, torch, losses and parameters"):
            bits_of(campaign(str(len(wrong))))


@pytest.mark.parametrize("losses", [(), ("7ff8000000000000",) * 50, ("fff0000000000000",)])
def test_equal_losses_that_are_no_numbers_are_no_agreement(losses: tuple[str, ...]) -> None:
    (finding,) = same_findings([Bits(f"node{n}", "H100", "2.9", losses, "aa") for n in (1, 2)])
    assert (finding.status, finding.expected) == ("failed", "finite losses")


def test_nodes_of_different_kinds_are_not_hunted_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow H100 among A100s would be found fast, and devices beyond the fewest not at all."""
    mixed = (*nodes(1, 8), *nodes(2, 4)[1:])
    with pytest.raises(UserError, match="nodes with different numbers of devices"):
        NodeCampaign("compute", mixed, QUIET, None, tmp_path / "c")
    gpus = {"node1": "NVIDIA H100 80GB HBM3", "node2": "NVIDIA A100-SXM4-80GB"}
    hosts = {host: {"gpus": [name]} for host, name in gpus.items()}
    monkeypatch.setattr(f"{__name__}.HOSTS", hosts)
    with pytest.raises(UserError, match="nodes with different products are not compared"):
        hunted(tmp_path, "compute", 2, noisy({}))


def test_the_plan_of_gpus_has_the_sizes_of_gpus(tmp_path: Path) -> None:
    on = gpu_nodes(4, 8, stack="h100-cuda12.9", frameworks=("pytorch",), interface="eth0")
    stand_in = StandIn(noisy({}), on, 8)
    campaign = NodeCampaign("memory", on, QUIET, None, tmp_path / "c", stand_in)
    campaign.lines("5")
    (run,) = campaigns.read_records(tmp_path / "c")
    argv = run["commands"][0]["argv"]
    assert argv[argv.index("--size") + 1] == str(2**32)
    assert "--no-cuda" not in argv


def test_the_options_of_the_command() -> None:
    wrong = call("doctor", "--slower", "3%", status=2)
    assert "this option has an effect only with --hunt" in wrong.err
    wrong = call("doctor", "--hunt", "compute", "--bandwidth", status=2)
    assert "no effect with --hunt and --same" in wrong.err


def test_it_is_planned_only_if_it_is_named() -> None:
    on, named = nodes(2, devices=2), parse_choice({"workload": "pytorch-nodes", "matrix": "hunt"})
    assert {run.workload for run in make_plan(named, load_catalog(), on)} == {"pytorch-nodes"}
    on_v100 = gpu_nodes(1, 8, frameworks=("mxnet",))
    assert "pytorch-nodes" not in not_planned(parse_choice({}), load_catalog(), on_v100, ())
