"""The launcher for MultiWorkerMirroredStrategy of TensorFlow 2: mpirun with the addresses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .mpirun import mpirun
from .program import Program

if TYPE_CHECKING:
    from ..core.case import Command
    from ..core.node import Node


def tensorflow_workers(program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """Start one process per device with mpirun, and tell them the addresses of their nodes, of
    which each makes its TF_CONFIG. No host name is resolved."""
    told = {"TF_WORKER_HOSTS": ",".join(host.address for host in hosts)}
    return mpirun(replace(program, environment={**told, **program.environment}), hosts)


LAUNCHERS = {"tensorflow_workers": tensorflow_workers}
