"""A node that benchmarks run on, as the inventory describes it."""

from __future__ import annotations

from dataclasses import dataclass, field

# The container engines that a node may have.
ENGINES = ("docker", "podman")


@dataclass(frozen=True)
class Node:
    """A benchmark node as the inventory describes it.

    `address` is the node's address on `interface`, the network that the benchmark uses;
    `interface` is empty where the inventory names none. `env` is exported to every rank.
    `container_images` is digests by the images' names, `registry` the site's own that has them,
    if any, and `container_data` directories that containers see, read-only.
    """

    name: str
    address: str
    devices_per_node: int
    accelerator: str
    stack: str
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
