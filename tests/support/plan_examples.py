"""What the tests of the catalogue, the plan and the launchers share: nodes and workloads."""

import shutil
from pathlib import Path
from typing import Any

from dlperf_runner.catalog.reader import CATALOG
from dlperf_runner.core.node import Node
from dlperf_runner.plan.choice import Choice, parse_choice


def choose(**options: object) -> Choice:
    return parse_choice(options)


def gpu_nodes(count: int = 4, devices: int = 8, **changes: Any) -> tuple[Node, ...]:
    """The cluster of the published tests, or one that differs from it: node1 is 10.11.0.2."""
    usual = {"accelerator": "Tesla V100-SXM2-16GB", "stack": "v100", "interface": "ib0"}
    return _nodes(count, {"devices_per_node": devices, **usual, **changes})


def lab_nodes(count: int = 4, **changes: Any) -> tuple[Node, ...]:
    """The embedded lab, or one that differs from it."""
    usual = {"devices_per_node": 2, "accelerator": "cpu", "stack": "cpu", "interface": "eth0"}
    usual |= {"frameworks": ("mxnet",), "matrix": "smoke", "mpirun_args": ("--oversubscribe",)}
    return _nodes(count, {**usual, **changes})


def _nodes(count: int, values: dict[str, Any]) -> tuple[Node, ...]:
    return tuple(
        Node(name=f"node{number}", address=f"10.11.0.{number + 1}", **values)
        for number in range(1, count + 1)
    )


_FRAMEWORK = """\
name: {name}
title: {name}
import_name: {name}
environments:
  cpu: {{python: ">=3.8", requirements: requirements/{name}-cpu.txt}}
  v100: {{python: "==3.7.*", requirements: requirements/{name}-v100.txt}}
# What shipped workloads name, whose frameworks this replaces.
flavors: {{mkl: {{}}, paddle2: {{}}}}
"""

_WORKLOADS = {
    "mxnet-arcface": """\
name: mxnet-arcface
title: MXNet ArcFace (insightface)
framework: mxnet
model: arcface
short_name: r100
log_format: mxnet_speedometer
launcher: single_process
max_nodes: 1
rule:
  total_steps: 121
  warmup_steps: 20
  estimator: mean_of_rates
  log_every: 20
  rates_are_per: node
  round_rates_to: 1
variants:
  r100: {short_name: r100}
  y1: {short_name: y1, parameters: {network: y1}}
parameters: {network: r100, classes: 85742}
sources:
  builtin:
    files: [dlperf_runner/workloads/mxnet_arcface.py]
    argv: ["{python}", -u, mxnet_arcface.py, --network, "{network}", "--devices={gpus_per_node}"]
matrices:
  published:
    topologies: [1n1g, 1n2g, 1n4g, 1n8g]
    batches:
      - {variant: r100, precision: fp32, batch_size_per_device: 64}
      - {variant: r100, precision: fp32, batch_size_per_device: 96}
      - {variant: y1, precision: fp32, batch_size_per_device: 128}
      - {variant: y1, precision: fp32, batch_size_per_device: 256}
      - {variant: y1, precision: fp32, batch_size_per_device: 352}
    repeats: 5
published: mxnet-insightface-arcface.md
""",
    "paddle-arcface": """\
name: paddle-arcface
title: PaddlePaddle ArcFace (PLSC)
framework: paddle
model: arcface
short_name: r50
log_format: plsc
launcher: paddle_launch
rule: {total_steps: 150, warmup_steps: 50, estimator: mean_of_rates}
sources:
  upstream:
    repository: PaddlePaddle/PLSC
    commit: 9bba9c9000000000000000000000000000000000
    directory: demo
    paths: [demo, plsc]
    patches:
      - {file: plsc/entry.py, pattern: 'fluid\\.CUDAPlace\\(', replacement: 'place(', reason: CPU,
         count: 4}
    added_files:
      - {file: demo/stop.py, content: "import os\\n", reason: stops without SIGABRT}
    argv: ["{python}", -u, train.py]
matrices:
  published:
    topologies: [1n1g, 1n4g, 1n8g, 2n8g, 4n8g]
    batches: [{precision: fp32, batch_size_per_device: 128}]
    repeats: 5
""",
    "oneflow-resnet50v1.5": """\
name: oneflow-resnet50v1.5
title: OneFlow ResNet50-v1.5
framework: oneflow
model: resnet50v1.5
families: [resnet50]
short_name: rn50
log_format: oneflow_benchmark
launcher: same_command_everywhere
rule: {total_steps: 200, warmup_steps: 20, estimator: mean_of_rates, log_every: 20}
sources:
  builtin:
    files: [dlperf_runner/workloads/oneflow_resnet50.py]
    argv: ["{python}", of.py, "--num_nodes={nodes}", "--gpu_num_per_node={gpus_per_node}"]
matrices:
  published:
    topologies: [1n1g, 1n2g, 1n4g, 1n8g, 2n8g, 4n8g]
    batches:
      - {precision: fp32, batch_size_per_device: 128}
      - {precision: fp32, batch_size_per_device: 160}
    repeats: 7
""",
    "tensorflow-resnet50v1.5": """\
name: tensorflow-resnet50v1.5
title: TensorFlow ResNet50-v1.5 (NGC)
framework: tensorflow
model: resnet50v1.5
families: [resnet50]
short_name: rn50
log_format: dllogger
launcher: mpirun
rule:
  total_steps: 500
  warmup_steps: 200
  estimator: mean_of_rates
  log_every: 10
  drop_first_values: 5
  final_value_from_world_size: 32
sources:
  builtin:
    files: [dlperf_runner/workloads/tensorflow_resnet50.py]
    argv: ["{python}", main.py, --batch_size, "{batch_size_per_device}"]
    on_precision: {amp: [--use_tf_amp]}
    on_gpu: [--use_xla]
    on_cpu: [--cpu]
matrices:
  published:
    topologies: [1n1g, 1n8g, 4n8g]
    batches:
      - {precision: fp32, batch_size_per_device: 256}
      - {precision: amp, batch_size_per_device: 256}
""",
}


def write_catalog(directory: Path, *workloads: str) -> Path:
    """The shipped catalogue, a stack of GPU nodes, and some or all of the other four published
    workloads as they could be declared."""
    root = directory / "catalog"
    shutil.copytree(CATALOG, root)
    (root / "stacks" / "v100.yml").write_text("name: v100\ntitle: V100\naccelerator: gpu\n")
    for name in ("mxnet", "paddle", "oneflow", "tensorflow"):
        (root / "frameworks" / f"{name}.yml").write_text(_FRAMEWORK.format(name=name))
    for name in workloads or _WORKLOADS:
        (root / "workloads" / f"{name}.yml").write_text(_WORKLOADS[name])
    return root


def cpu_node(framework: str) -> dict[str, Any]:
    """An inventory with one node that has two devices without a GPU."""
    node = {
        "ansible_host": "10.11.0.2",
        "dlperf_devices_per_node": 2,
        "dlperf_accelerator": "cpu",
        "dlperf_stack": "cpu",
        "dlperf_matrix": "smoke",
        "dlperf_frameworks": [framework],
    }
    return {"nodes": {"hosts": {"node1": node}}}
