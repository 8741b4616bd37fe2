"""The command line of a proof, put into containers by the same function as a benchmark's."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

DOCUMENTATION = """
name: container_command
short_description: A command in a container on the first of some hosts, across all of them by mpirun
options:
  _input: {description: Name of the container., type: str, required: true}
"""


def container_command(
    name: str,
    hosts: Sequence[str],
    reference: str,
    user: str,
    interface: str,
    mpirun: str,
    mpirun_args: Sequence[str],
    argv: Sequence[str],
) -> dict[str, Any]:
    """`argv` twice by mpirun, on two hosts or on one and the same; without mpirun once."""
    sys.path.append(str(Path(__file__).parents[3]))
    from dlperf_runner.inventory import Node

    from dlperf_runner import containers, launchers

    names = list(dict.fromkeys(hosts))
    nodes = tuple(
        Node(
            name=host, address=host, devices_per_node=len(hosts), accelerator="cpu", stack="",
            interface=interface, user=user, mpirun=mpirun, mpirun_args=tuple(mpirun_args),
        )
        for host in names
    )  # fmt: skip
    image = containers.Image("podman", reference, argv[0])
    program = launchers.Program(
        argv=tuple(argv), gpus_per_node=len(hosts) // len(names), on_gpu=False, cwd="/"
    )
    launcher = "mpirun" if mpirun else "single_process"
    (command,) = launchers.launch(launcher, program, containers.inside(nodes, image))
    return asdict(containers.enclose(command, image, nodes, name))


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"container_command": container_command}
