"""What is measured: frozen values, no behaviour beyond naming themselves."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_TOPOLOGY = re.compile(r"(?P<nodes>[1-9]\d*)n(?P<devices>[1-9]\d*)g")


@dataclass(frozen=True, order=True)
class Topology:
    """Nodes, and devices used on each of them; `2n8g` is two nodes with eight devices each."""

    nodes: int
    gpus_per_node: int

    @property
    def world_size(self) -> int:
        return self.nodes * self.gpus_per_node

    def __str__(self) -> str:
        return f"{self.nodes}n{self.gpus_per_node}g"

    @classmethod
    def parse(cls, text: str) -> Topology:
        match = _TOPOLOGY.fullmatch(text)
        if not match:
            raise ValueError(f"a topology like 2n8g was expected, found {text!r}")
        return cls(int(match["nodes"]), int(match["devices"]))


@dataclass(frozen=True)
class Batch:
    """Samples that one device takes per step, and the precision of the arithmetic."""

    precision: str
    batch_size_per_device: int


@dataclass(frozen=True)
class Window:
    """Steps of a run, and how many of the first ones are warm-up and not measured."""

    total_steps: int
    warmup_steps: int

    @property
    def measured_steps(self) -> int:
        return self.total_steps - self.warmup_steps


@dataclass(frozen=True)
class Case:
    """One configuration to be measured; its repeats are its runs."""

    workload: str
    framework: str
    model: str
    source: str
    batch: Batch
    topology: Topology
    window: Window
    variant: str = ""  # the network, where a workload has several
    container: str = ""  # the engine, where it does not run bare

    @property
    def id(self) -> str:
        batch = self.batch
        name = f"{self.workload}-{self.source}" + (f"-{self.container}" if self.container else "")
        name += f"_{self.variant}" if self.variant else ""
        return f"{name}_{batch.precision}_b{batch.batch_size_per_device}_{self.topology}"


@dataclass(frozen=True)
class Command:
    """What is executed on one host, by the benchmark user: an argv list, never a shell line.
    `cleanup` is executed there before it, and when it has ended, however that was."""

    host: str
    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    cleanup: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """One repeat of a case, with everything that is needed to launch it. The seam document:
    `plan --json` prints it, `bench.yml` loops over it, `run.json` holds it."""

    id: str
    case: str
    repeat: int
    workload: str
    framework: str
    model: str
    source: str
    precision: str
    batch_size_per_device: int
    nodes: int
    gpus_per_node: int
    world_size: int
    total_steps: int
    warmup_steps: int
    stack: str
    accelerator: str
    environment: str
    container: str  # engine and image by digest, as `podman name@sha256:...`; empty: bare
    log_format: str
    log_name: str
    timeout_s: int
    hosts: tuple[str, ...]
    parameters: dict[str, str | int | float]
    commands: tuple[Command, ...]
