"""The launchers by which mpirun on the first node starts all processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..core.case import Command
from ..core.node import Node, require_same
from .program import Program, environment_of

# OpenMPI's layer for messages between processes, by dlperf_mpi_transport.
PML = {"tcp": "ob1", "ucx": "ucx"}


def mpirun(program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """One `mpirun` on the first host starts one process per device on every host.

    Works with OpenMPI 4 and 5: `--host` sets the slots, and `-x` exports a variable from the
    command's environment.
    """
    first = hosts[0]
    for name in ("interface", "mpi_transport", "env"):
        problem = f"mpirun needs the same dlperf_{name} on all nodes of a run"
        values = [getattr(host, name) for host in hosts]
        texts = [repr(sorted(v.items()) if isinstance(v, dict) else v) for v in values]
        require_same(hosts, f"dlperf_{name}", texts, problem)
    environment = environment_of(program, hosts, first)
    slots = ",".join(f"{host.name}:{program.gpus_per_node}" for host in hosts)
    argv = [first.mpirun, "--host", slots, "-np", str(len(hosts) * program.gpus_per_node)]
    options = [*program.launcher_options, *interface_options(first.interface)]
    options += ["--mca", "pml", PML[first.mpi_transport], "--mca", "btl", "^openib"]
    argv += options
    if program.cwd:
        argv += ["--wdir", program.cwd]
    for name in environment:
        argv += ["-x", name]
    argv += [*first.mpirun_args, *program.argv]
    variables = variables_of((*options, *first.mpirun_args))
    each_rank = {}
    if variables is not None:
        each_rank = {"argv": program.argv, "env": {**environment, **variables}}
    command = Command(first.name, tuple(argv), environment, program.cwd, each_rank=each_rank)
    return (command,)


def variables_of(options: Sequence[str]) -> dict[str, str] | None:
    """The variables that say to each process what these options of mpirun do. None if there is an
    option whose meaning another launcher may not keep, and if mpirun binds processes to cores."""
    variables: dict[str, str] = {}
    words, is_unbound = list(options), False
    while words:
        option = words.pop(0).lstrip("-")
        if option == "mca":
            name, value = words.pop(0), words.pop(0)
            variables[f"OMPI_MCA_{name}"] = value
        elif option == "x":  # processes get the other variables of the command anyway
            name, is_given, value = words.pop(0).partition("=")
            variables |= {name: value} if is_given else {}
        elif (option, *words[:1]) in (("bind-to", "none"), ("map-by", "slot")):
            is_unbound = is_unbound or option == "bind-to"
            words.pop(0)
        elif option != "oversubscribe":
            return None
    return variables if is_unbound else None


def interface_options(interface: str) -> list[str]:
    """Options that bind OpenMPI to a network interface; none if none is named."""
    parameters = ("btl_tcp_if_include", "oob_tcp_if_include") if interface else ()
    return [part for name in parameters for part in ("--mca", name, interface)]


def tensorflow_workers(program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """One process per device for TensorFlow 2's MultiWorkerMirroredStrategy: each makes its
    TF_CONFIG of the addresses of their nodes. No host name is resolved."""
    variables = {"TF_WORKER_HOSTS": ",".join(host.address for host in hosts)}
    return mpirun(replace(program, environment={**variables, **program.environment}), hosts)


LAUNCHERS = {"mpirun": mpirun, "tensorflow_workers": tensorflow_workers}
