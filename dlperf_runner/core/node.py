"""A benchmark node, as the inventory describes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import UserError

ENVIRONMENTS = "/opt/dlperf/envs"
SOURCES = "/opt/dlperf/src"
SYNTHETIC_DATASETS = "/opt/dlperf/data/synthetic"  # as catalog/datasets.yml has them


# The supported container engines: by SSH, and in a scheduler's jobs.
ENGINES = ("docker", "podman")
# With the end of an image's file. podman has its own storage.
JOB_ENGINES = {"enroot": ".sqsh", "apptainer": ".sif", "singularity": ".sif", "podman": ""}
ANY_ENGINE = "auto"  # in jobs: the one that is there
CONTAINER_CHOICES = tuple(dict.fromkeys((*ENGINES, *JOB_ENGINES, ANY_ENGINE)))
# What carries the messages of MPI between nodes.
MPI_TRANSPORTS = ("tcp", "ucx")


@dataclass(frozen=True)
class Node:
    """A benchmark node, as the inventory describes it (`VARIABLES` in plan/inventory.py).

    `address` is the node's address on `interface`, the network that the benchmark uses.
    `container_images` maps image names to digests; `datasets` has paths and numbers of parts by
    name. `suite` is the node's release, such as noble. `adopted` are parts of the stack in whose
    place the node keeps what it has. `nvlink_domain`: the nodes of one name reach each other by
    NVLink (GB200 NVL72). What the inventory does not say is empty.
    """

    name: str
    address: str
    devices_per_node: int
    accelerator: str
    stack: str
    suite: str = ""
    interface: str = ""
    frameworks: tuple[str, ...] = ()
    user: str = "dlperf"
    matrix: str = "published"
    env: dict[str, str] = field(default_factory=dict)
    mpirun: str = "/usr/bin/mpirun"
    mpirun_args: tuple[str, ...] = ()
    container_engine: str = ""
    container_images: dict[str, str] = field(default_factory=dict)
    registry: str = ""
    container_data: tuple[str, ...] = ()
    container_args: tuple[str, ...] = ()
    datasets: dict[str, dict[str, Any]] = field(default_factory=dict)
    stack_overrides: dict[str, Any] = field(default_factory=dict)
    adopted: tuple[str, ...] = ()
    mpi_transport: str = "tcp"
    nvlink_domain: str = ""


def require_same(
    nodes: Sequence[Node], variable: str, values: Sequence[str], problem: str, hint: str = ""
) -> None:
    """Raise UserError if nodes that must be alike differ in a variable of the inventory."""
    for node, value in zip(nodes, values, strict=True):
        if value != values[0]:
            raise UserError(
                problem,
                where=f"host {node.name}: {variable}",
                expected=f"{values[0]}, as on {nodes[0].name}",
                found=value,
                hint=hint or None,
            )


def nvlink_domains(of_nodes: Mapping[str, str]) -> tuple[str, ...]:
    """The NVLink domains of nodes, from that of each by its name: empty if none has one, else a
    node without one is its own."""
    if not any(of_nodes.values()):
        return ()
    return tuple(dict.fromkeys(domain or name for name, domain in of_nodes.items()))
