"""What datasets.yml computes of its plan."""

from typing import Any

from dlperf_runner.provision import datasets

RUNS: list[dict[str, Any]] = [
    {"hosts": ["a"]},
    {"hosts": ["a", "b"]},
    {"hosts": ["b"], "dataset": "d"},
]


def test_a_node_checks_the_data_sets_that_its_runs_read() -> None:
    assert datasets.of_runs(RUNS, "b") == ["d"]
    assert datasets.of_runs(RUNS, "a") == []


def test_runs_start_whose_nodes_are_all_ready() -> None:
    hosts: dict[str, Any] = {"a": {"bench_ready": True, "bench_facts": {"cpu": 1}}, "b": {}}
    assert datasets.ready_runs(RUNS, ["a", "b"], hosts) == {
        "bench_possible": [0],
        "bench_facts_by_host": {"a": {"cpu": 1}},
    }
    hosts["b"] = {"bench_ready": True, "bench_facts": {"cpu": 2}}
    assert datasets.ready_runs(RUNS, ["a", "b"], hosts)["bench_possible"] == [0, 1, 2]
