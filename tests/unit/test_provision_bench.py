"""What bench.yml computes of its plan."""

from __future__ import annotations

from typing import Any

from dlperf_runner.provision import bench

RUNS: list[dict[str, Any]] = [
    {"workload": "w", "source": "builtin", "environment": "mxnet", "hosts": ["a"]},
    {"workload": "w", "source": "builtin", "environment": "mxnet", "hosts": ["a", "b"]},
    {"workload": "v", "source": "upstream", "environment": "jax", "hosts": ["b"], "dataset": "d"},
]


def test_each_source_is_prepared_once() -> None:
    assert bench.sources(RUNS) == [
        {"workload": "w", "source": "builtin", "environment": "mxnet"},
        {"workload": "v", "source": "upstream", "environment": "jax"},
    ]


def test_a_node_checks_the_data_sets_that_its_runs_read() -> None:
    assert bench.datasets(RUNS, "b") == ["d"]
    assert bench.datasets(RUNS, "a") == []


def test_runs_start_whose_nodes_are_all_ready() -> None:
    hosts: dict[str, Any] = {"a": {"bench_ready": True, "bench_facts": {"cpu": 1}}, "b": {}}
    assert bench.ready(RUNS, ["a", "b"], hosts) == {
        "bench_possible": [0],
        "bench_facts_by_host": {"a": {"cpu": 1}},
    }
    hosts["b"] = {"bench_ready": True, "bench_facts": {"cpu": 2}}
    assert bench.ready(RUNS, ["a", "b"], hosts)["bench_possible"] == [0, 1, 2]
