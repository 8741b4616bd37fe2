"""Rows of the frame: one run of a case that tests change as they need."""

from __future__ import annotations

from typing import Any

from dlperf_runner.core.frame import Row


def row(value: float | None, topology: str = "1n1g", repeat: int = 1, **changes: Any) -> Row:
    nodes, devices = (int(number) for number in topology.rstrip("g").split("n"))
    entry = Row(
        framework="mxnet",
        framework_version=None,
        workload="mxnet-resnet50v1b",
        model="resnet50v1b",
        source=None,
        parameters=None,
        precision="fp32",
        nodes=nodes,
        gpus_per_node=devices,
        world_size=nodes * devices,
        batch_size_per_device=128,
        global_batch_size=128 * nodes * devices,
        total_steps=120,
        warmup_steps=20,
        directory=None,
        repeat=repeat,
        metric="samples_per_second",
        value=value,
        unit="samples/s",
        estimator="mean_of_rates",
        accelerator=None,
        node_gpus=None,
        driver=None,
        stack=None,
        container=None,
        log_sha256=None,
        valid=True,
        why_invalid=None,
    )
    return entry._replace(**changes)


def runs(topology: str, *values: float) -> list[Row]:
    """The repeats of a case."""
    return [row(value, topology, repeat) for repeat, value in enumerate(values, start=1)]
