"""Data types of cases and runs: frozen values with no behaviour except their names."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from typing import Any

SCHEMA = 1  # of plan.json and campaign.json
_TOPOLOGY = re.compile(r"(?P<nodes>[1-9]\d*)n(?P<devices>[1-9]\d*)g")


@dataclass(frozen=True, order=True)
class Topology:
    """The number of nodes and of devices used per node: `2n8g` is two nodes, eight devices each."""

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
            raise ValueError(f"invalid topology {text!r}; expected the form 2n8g")
        return cls(int(match["nodes"]), int(match["devices"]))


@dataclass(frozen=True)
class Batch:
    """The number of samples per device and step, and the numerical precision."""

    precision: str
    batch_size_per_device: int


@dataclass(frozen=True)
class Window:
    """The number of steps of a run; the first `warmup_steps` are not measured."""

    total_steps: int
    warmup_steps: int


@dataclass(frozen=True)
class Case:
    """One configuration to measure. Each repeat of it is a run."""

    workload: str
    framework: str
    model: str
    source: str
    batch: Batch
    topology: Topology
    window: Window
    variant: str = ""  # the network, if the workload has several
    container: str = ""  # the container engine; empty: runs without a container
    parameters: tuple[tuple[str, str | int | float], ...] = ()  # those that the cases differ in

    @property
    def id(self) -> str:
        """The name of the case, and of its directory."""
        batch = self.batch
        name = f"{self.workload}-{self.source}" + (f"-{self.container}" if self.container else "")
        name += f"_{self.variant}" if self.variant else ""
        name += "".join(f"_{key}-{_word(value)}" for key, value in self.parameters)
        return f"{name}_{batch.precision}_b{batch.batch_size_per_device}_{self.topology}"


def _word(value: object) -> str:
    """The value in a file name: its digest if it is long or has other characters, as a path has."""
    text = str(value)
    safe = re.fullmatch(r"[A-Za-z0-9.+-]{1,32}", text)
    return text if safe else hashlib.sha256(text.encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Command:
    """A command that the benchmark user runs on one host: an argv list, never a shell line.

    `cleanup` runs on the same host before the command and after it, even if the command fails.
    `inside` and `each_rank` are other forms of it, each with `argv` and `env`: what runs in the
    container, as it would without one; and what mpirun starts, if another launcher may start it in
    its place. They are empty if there is no such form.
    """

    host: str
    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    cleanup: tuple[str, ...] = ()
    inside: dict[str, Any] = field(default_factory=dict)
    each_rank: dict[str, Any] = field(default_factory=dict)

    @property
    def bare(self) -> Command:
        """The command without its container, if it has one."""
        return replace(self, **self.inside)


@dataclass(frozen=True)
class Run:
    """One repeat of a case, with everything needed to launch it: the interface between Python and
    Ansible. `plan --json` prints it, `bench.yml` loops over it, and `run.json` stores it."""

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
    dataset: str  # its name in dlperf_datasets; empty: none of them
    container: str  # engine and image digest (`podman name@sha256:...`); empty: no container
    log_format: str
    log_name: str
    timeout_s: int
    hung_after_s: int  # without a new line in the log, and also for
    hung_after_lines: int  # times the median time between two lines
    first_step_s: int  # without a new line before the log has a rhythm
    hosts: tuple[str, ...]
    nvlink_domains: tuple[str, ...]  # of the hosts; empty if the inventory names none
    parameters: dict[str, str | int | float]
    commands: tuple[Command, ...]
