"""How a program is started on nodes: one pure function per launcher, from program to argv.

NEW LAUNCHER: a function here with `@launcher("name")`; a workload names it in the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from .case import Command
from .errors import UserError

if TYPE_CHECKING:
    from .inventory import Node


@dataclass(frozen=True)
class Program:
    """What one process (or one node's launcher) executes: `argv` begins with the interpreter.
    `environment` is the workload's own; what the inventory exports is added by the launcher."""

    argv: tuple[str, ...]
    gpus_per_node: int
    on_gpu: bool
    environment: dict[str, str] = field(default_factory=dict)
    cwd: str = ""


Launcher = Callable[[Program, tuple["Node", ...]], tuple[Command, ...]]
LAUNCHERS: dict[str, Launcher] = {}


def launcher(name: str) -> Callable[[Launcher], Launcher]:
    """Register a launcher under the name that the catalogue uses."""

    def register(function: Launcher) -> Launcher:
        LAUNCHERS[name] = function
        return function

    return register


def launch(name: str, program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """The commands that start `program` on `hosts`, all to be started at once."""
    return LAUNCHERS[name](program, hosts)


@launcher("mpirun")
def mpirun(program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """One `mpirun` on the first host, one process per device of every host.

    Works with OpenMPI 4 and 5: `--host` takes slots, `-x` exports a variable that the command's own
    environment holds. One device on one node is started the same way, as the published runs were.
    """
    first = hosts[0]
    _refuse_unequal(hosts, "dlperf_interface", [host.interface for host in hosts])
    _refuse_unequal(hosts, "dlperf_env", [host.env for host in hosts])
    environment = _environment(program, first)
    slots = ",".join(f"{host.name}:{program.gpus_per_node}" for host in hosts)
    argv = [first.mpirun, "--host", slots, "-np", str(len(hosts) * program.gpus_per_node)]
    argv += ["--bind-to", "none", "--map-by", "slot"]
    if first.interface:
        argv += ["--mca", "btl_tcp_if_include", first.interface]
        argv += ["--mca", "oob_tcp_if_include", first.interface]
    argv += ["--mca", "pml", "ob1", "--mca", "btl", "^openib"]
    if program.cwd:
        argv += ["--wdir", program.cwd]
    for name in environment:
        argv += ["-x", name]
    argv += [*first.mpirun_args, *program.argv]
    return (Command(first.name, tuple(argv), environment, program.cwd),)


@launcher("single_process")
def single_process(program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """One process on one node that drives all of its devices itself."""
    if len(hosts) != 1:
        raise UserError(
            "one process cannot span nodes", expected="one node", found=f"{len(hosts)} nodes"
        )
    # The programs read the variable themselves: unset is an error to them, empty means the CPU.
    devices = {"CUDA_VISIBLE_DEVICES": _devices(program) if program.on_gpu else ""}
    environment = {**devices, **_environment(program, hosts[0])}
    return (Command(hosts[0].name, program.argv, environment, program.cwd),)


def in_run_directory(program: Program) -> Program:
    """The same program started in the run's own directory, where its user may write; its script
    is named by its path then."""
    interpreter, (script, *arguments) = _split_interpreter(program.argv)
    argv = (*interpreter, str(PurePosixPath(program.cwd, script)), *arguments)
    return replace(program, argv=argv, cwd="")


@launcher("paddle_launch")
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
            options.append(f"--devices={_devices(program)}")
        else:
            options.append(f"--nproc_per_node={program.gpus_per_node}")
            # Gloo would otherwise take the interface that the host's own name leads to.
            if host.interface:
                gloo = {"GLOO_SOCKET_IFNAME": host.interface}
        commands.append(_paddle(program, host, [*options, "--log_dir=log"], gloo))
    return tuple(commands)


@launcher("paddle_launch_1")
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
        environment = _environment(program, hosts[0])
        return (Command(hosts[0].name, program.argv, environment, program.cwd),)
    addresses = ",".join(host.address for host in hosts)
    commands = []
    for host in hosts:
        options = [
            f"--cluster_node_ips={addresses}",
            f"--node_ip={host.address}",
            f"--selected_gpus={_devices(program)}",
        ]
        commands.append(_paddle(program, host, options, {}))
    return tuple(commands)


def _paddle(
    program: Program, host: Node, options: list[str], environment: dict[str, str]
) -> Command:
    interpreter, rest = _split_interpreter(program.argv)
    argv = (*interpreter, "-m", "paddle.distributed.launch", *options, *rest)
    return Command(host.name, argv, {**environment, **_environment(program, host)}, program.cwd)


@launcher("same_command_everywhere")
def same_command_everywhere(program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """The same command on every node at once, with all nodes' addresses as its last argument."""
    argv = (*program.argv, "--node_ips=" + ",".join(host.address for host in hosts))
    return tuple(
        Command(host.name, argv, _environment(program, host), program.cwd) for host in hosts
    )


def _environment(program: Program, host: Node) -> dict[str, str]:
    """The workload's variables, then the operator's, who has the last word."""
    # NCCL would otherwise pick a docker bridge or veth on its own, and hang.
    nccl = {"NCCL_SOCKET_IFNAME": host.interface} if program.on_gpu and host.interface else {}
    return {**program.environment, **nccl, **host.env}


def _devices(program: Program) -> str:
    return ",".join(str(number) for number in range(program.gpus_per_node))


def _split_interpreter(argv: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """`python -u script.py --x` as (`python -u`, `script.py --x`)."""
    end = next((n for n in range(1, len(argv)) if not argv[n].startswith("-")), len(argv))
    return argv[:end], argv[end:]


def _refuse_unequal(hosts: tuple[Node, ...], variable: str, values: list[object]) -> None:
    for host, value in zip(hosts, values, strict=True):
        if value != values[0]:
            raise UserError(
                f"mpirun takes one {variable} for all nodes of a run",
                where=f"host {host.name}: {variable}",
                expected=f"{values[0]!r}, as on {hosts[0].name}",
                found=repr(value),
            )
