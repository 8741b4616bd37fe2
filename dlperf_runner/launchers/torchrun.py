"""PyTorch's launchers: torchrun once per node, or mpirun with the address that PyTorch needs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .mpirun import mpirun
from .program import Program, command_on, gloo_of, split_interpreter

if TYPE_CHECKING:
    from ..core.case import Command
    from ..core.node import Node

# The processes meet at this port of the first node.
PORT = "29500"
# `-m torch.distributed.run` for a PyTorch that is built without libuv, as Debian's is: its
# rendezvous asks for libuv, whatever USE_LIBUV says.
WITHOUT_LIBUV = (
    "import functools, runpy;"
    " from torch.distributed.elastic.rendezvous import static_tcp_rendezvous as static;"
    " static.TCPStore = functools.partial(static.TCPStore, use_libuv=False);"
    ' runpy.run_module("torch.distributed.run", run_name="__main__")'
)


def torchrun(program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """Start `python -m torch.distributed.run` once per node; it starts one process per device.

    The rendezvous is static: the first node's address is given, and each node has its rank. The
    other kind asks each node for its own name, which may resolve to 127.0.0.1.
    """
    interpreter, rest = split_interpreter(program.argv)
    has_libuv = program.environment.get("USE_LIBUV") != "0"
    start = ("-m", "torch.distributed.run") if has_libuv else ("-c", WITHOUT_LIBUV)
    commands = []
    for rank, host in enumerate(hosts):
        options = [f"--nnodes={len(hosts)}", f"--node-rank={rank}"]
        options += [f"--nproc-per-node={program.gpus_per_node}"]
        options += [f"--master-addr={hosts[0].address}", f"--master-port={PORT}"]
        argv = (*interpreter, *start, *options, *rest)
        commands.append(command_on(host, program, hosts, argv, **gloo_of(program, host)))
    return tuple(commands)


def torch_mpirun(program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """Start all processes with mpirun, and tell them where to meet."""
    meeting = {"MASTER_ADDR": hosts[0].address, "MASTER_PORT": PORT, **gloo_of(program, hosts[0])}
    return mpirun(replace(program, environment={**meeting, **program.environment}), hosts)


LAUNCHERS = {"torchrun": torchrun, "torch_mpirun": torch_mpirun}
