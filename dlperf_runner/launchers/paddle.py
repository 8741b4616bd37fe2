"""Paddle's own launcher, once per node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.case import Command
from ..core.errors import UserError
from .program import Program, devices_of, environment_of, in_run_directory, split_interpreter

if TYPE_CHECKING:
    from ..core.node import Node


def paddle_launch(program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """`python -m paddle.distributed.launch` of Paddle 2 once per node, which starts one process per
    device.

    It keeps a log of each process: in the run's own directory, where it is started for that,
    because the sources' is not the benchmark user's to write.
    """
    program = in_run_directory(program) if program.cwd else program
    addresses = ",".join(host.address for host in hosts)
    commands = []
    for host in hosts:
        # Without --host, Paddle looks its address up by host name; where that gives another
        # one than in --ips, the node takes the ranks of the first, and says nothing.
        options = [f"--ips={addresses}", f"--host={host.address}"]
        gloo = {}
        if program.on_gpu:
            options.append(f"--devices={devices_of(program)}")
        else:
            options.append(f"--nproc_per_node={program.gpus_per_node}")
            # Gloo would otherwise take the interface that the host's own name leads to.
            if host.interface:
                gloo = {"GLOO_SOCKET_IFNAME": host.interface}
        commands.append(_paddle(program, host, [*options, "--log_dir=log"], gloo))
    return tuple(commands)


def paddle_launch_1(program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """The same of Paddle 1.8, as published. On CPU it has no collective: one process is started
    without it."""
    program = in_run_directory(program) if program.cwd else program
    if not program.on_gpu:
        if len(hosts) * program.gpus_per_node > 1:
            raise UserError(
                "Paddle 1.8 has no collective on the CPU",
                expected="1n1g",
                found=f"{len(hosts)}n{program.gpus_per_node}g",
                hint="narrow it with --nodes 1 --gpus-per-node 1, or choose --source builtin, "
                "which runs on Paddle 2",
            )
        environment = environment_of(program, hosts[0])
        return (Command(hosts[0].name, program.argv, environment, program.cwd),)
    addresses = ",".join(host.address for host in hosts)
    commands = []
    for host in hosts:
        options = [
            f"--cluster_node_ips={addresses}",
            f"--node_ip={host.address}",
            f"--selected_gpus={devices_of(program)}",
        ]
        commands.append(_paddle(program, host, options, {}))
    return tuple(commands)


def _paddle(
    program: Program, host: Node, options: list[str], environment: dict[str, str]
) -> Command:
    interpreter, rest = split_interpreter(program.argv)
    argv = (*interpreter, "-m", "paddle.distributed.launch", *options, *rest)
    return Command(host.name, argv, {**environment, **environment_of(program, host)}, program.cwd)


LAUNCHERS = {"paddle_launch": paddle_launch, "paddle_launch_1": paddle_launch_1}
