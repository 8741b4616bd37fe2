"""The schema of `launcher_options` in catalog/workloads/."""

from __future__ import annotations

from ..core.case import Topology
from .types import Entry


class LauncherOptions(Entry):
    """Options of mpirun, by the size of a run. None: that run starts without the launcher."""

    one_device: tuple[str, ...] | None = ()
    one_node: tuple[str, ...] = ()
    several_nodes: tuple[str, ...] = ()

    def of(self, topology: Topology) -> tuple[str, ...] | None:
        if topology.world_size == 1:
            return self.one_device
        return self.one_node if topology.nodes == 1 else self.several_nodes
