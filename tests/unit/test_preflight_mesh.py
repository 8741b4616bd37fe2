"""Whom nodes call to show that each reaches the others, and what the doctor says of it."""

from collections import Counter

import pytest

from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.core.node import Node
from dlperf_runner.doctor.nodes import diagnose
from dlperf_runner.provision.ssh_mesh import partners

HOSTS = [f"node{number}" for number in range(100)]


def test_every_node_calls_every_other_one_and_no_node_is_called_by_many_at_once() -> None:
    calls = [partners(HOSTS[:64], host, 64, ahead=True) for host in HOSTS[:64]]
    for host, called in zip(HOSTS, calls, strict=False):
        assert {host, *called} == set(HOSTS[:64]) and len(called) == 63
    # Who keeps step with the others is alone where he calls.
    assert all(len(set(at_once)) == 64 for at_once in zip(*calls, strict=True))


def test_in_a_large_cluster_each_node_calls_a_few_and_all_are_called() -> None:
    calls = {host: partners(HOSTS, host, 64, ahead=True) for host in HOSTS}
    assert len(calls["node0"]) == 99
    assert calls["node98"] == ["node99", "node0", "node2", "node6", "node14", "node30", "node62"]
    others = [called for host, called in calls.items() if host != "node0"]
    assert {len(called) for called in others} == {7}
    times = Counter(name for called in others for name in called)
    assert set(times) == set(HOSTS) and set(times.values()) <= {6, 7}


@pytest.mark.parametrize("size", range(1, 10))
def test_any_cluster_has_partners_that_are_others(size: int) -> None:
    for limit in (0, 4, 64):
        for host in HOSTS[:size]:
            called = partners(HOSTS[:size], host, limit, ahead=True)
            assert host not in called and len(set(called)) == len(called)
            assert bool(called) == (size > 1)


def test_it_is_said_how_many_a_node_has_called() -> None:
    def asked(called: int | None) -> str:
        nodes = [Node(name, name, 1, "cpu", "cpu") for name in HOSTS[:4]]
        told = {node.name: {"ssh_mesh": {"failed": None, "called": called}} for node in nodes}
        told["node3"] = {"unreachable": "no route"}
        document = {"ansible_core": "2.19.4", "nodes": told}
        found = diagnose(nodes, dict.fromkeys(HOSTS[:4], load_catalog().stack("cpu")), document)
        (mesh,) = [each for each in found if (each.node, each.check) == ("node1", "ssh mesh")]
        return mesh.expected

    assert asked(2) == asked(None) == "reaches every other node"
    assert asked(1) == "reaches 1 of 2 other nodes"
