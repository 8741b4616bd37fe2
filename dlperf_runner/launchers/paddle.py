"""Paddle's own launcher, started once per node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.errors import UserError
from .program import (
    Program,
    command_on,
    devices_of,
    gloo_of,
    in_run_directory,
    split_interpreter,
)

if TYPE_CHECKING:
    from ..core.case import Command
    from ..core.node import Node

LOGS = "--log_dir=log"


def paddle_launch(program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """Start Paddle 2's `python -m paddle.distributed.launch` once per node.

    It starts one process per device and writes a log for each process. It must therefore run in
    the run's own directory: the benchmark user cannot write to the directory of the source.
    """
    program = in_run_directory(program) if program.cwd else program
    addresses = ",".join(host.address for host in hosts)
    devices = f"--nproc_per_node={program.gpus_per_node}"
    devices = f"--devices={devices_of(program)}" if program.on_gpu else devices
    # Without --host, Paddle resolves the host name to find its own address. If that address is not
    # in --ips, the node silently takes the ranks of the first node.
    return tuple(
        _paddle(program, hosts, host, f"--ips={addresses}", f"--host={host.address}", devices, LOGS)
        for host in hosts
    )


def paddle_launch_1(program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """Start Paddle 1.8's launcher once per node, as in the published runs.

    Paddle 1.8 has no collective operations on the CPU. There, it starts a single process without
    the launcher.
    """
    program = in_run_directory(program) if program.cwd else program
    if not program.on_gpu:
        if len(hosts) * program.gpus_per_node > 1:
            raise UserError(
                "Paddle 1.8 has no collective operations on the CPU",
                expected="1n1g",
                found=f"{len(hosts)}n{program.gpus_per_node}g",
                hint="set --nodes 1 --gpus-per-node 1, or choose --source builtin, "
                "which runs on Paddle 2",
            )
        return (command_on(hosts[0], program, hosts),)
    addresses = ",".join(host.address for host in hosts)
    nodes, gpus = f"--cluster_node_ips={addresses}", f"--selected_gpus={devices_of(program)}"
    return tuple(
        _paddle(program, hosts, host, nodes, f"--node_ip={host.address}", gpus) for host in hosts
    )


def _paddle(program: Program, hosts: tuple[Node, ...], host: Node, *options: str) -> Command:
    interpreter, rest = split_interpreter(program.argv)
    argv = (*interpreter, "-m", "paddle.distributed.launch", *options, *rest)
    return command_on(host, program, hosts, argv, **gloo_of(program, host))


LAUNCHERS = {"paddle_launch": paddle_launch, "paddle_launch_1": paddle_launch_1}
