"""Commands in containers of a scheduler's jobs.

mpirun and srun are the node's; each process that they start is in a container of its own. Other
launchers are in one container on each node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from .. import launchers
from ..core.case import Command
from ..core.errors import UserError
from ..core.node import ANY_ENGINE, JOB_ENGINES, Node
from ..schedulers.job import REMOVE_PODMAN, Inside, words_before

_EXPECTED = f"--container with one of {', '.join(JOB_ENGINES)}"


def engine_for(chosen: str | None, node: Node) -> str:
    """The chosen engine, or else the one that was found where the plan is made."""
    named = node.container_engine if chosen in (None, ANY_ENGINE) else chosen
    if named in JOB_ENGINES:
        return named
    if named:
        raise UserError(
            f"{named} cannot run in a scheduler's job, which has no rights of root",
            where="--container",
            expected=f"one of {', '.join(JOB_ENGINES)}, or {ANY_ENGINE}",
        )
    raise UserError(
        "no container engine was found on this machine",
        where="--container",
        expected=f"{_EXPECTED}, if the nodes have it",
    )


def launch(
    launcher: str,
    program: launchers.Program,
    hosts: tuple[Node, ...],
    image: str,
    *,
    read_only: Sequence[str],
    has_fabric: bool,
) -> tuple[Command, ...]:
    """The commands that start the program in containers. `read_only`: directories that they see,
    besides those of the site. `image`: engine and image, as a run names them."""
    site = hosts[0].container_data
    others = outside(read_only, site)
    inside = Inside(
        image,
        tuple(dict.fromkeys([*others, *site])),
        program.cwd,
        program.on_gpu,
        has_fabric,
        hosts[0].container_args,
    )
    before = words_before(inside)
    bare = launchers.launch(launcher, program, hosts)
    is_mpirun = PurePosixPath(bare[0].argv[0]).name == "mpirun"
    engine = image.partition(" ")[0]
    if is_mpirun and engine == "enroot":
        raise UserError(
            "mpirun cannot start containers of enroot: they are options of srun",
            where="--container enroot",
            expected="another engine, or --parameter launcher=torchrun if the workload has it",
        )
    if is_mpirun:
        within = replace(program, argv=(*before, *program.argv))
        commands = launchers.launch(launcher, within, hosts)
    else:
        commands = tuple(replace(each, argv=(*before, *each.argv)) for each in bare)
    cleanup = REMOVE_PODMAN if engine == "podman" else ()
    return tuple(
        replace(each, cleanup=cleanup, inside={"argv": own.argv, "env": own.env}, each_rank={})
        for each, own in zip(commands, bare, strict=True)
    )


def outside(paths: Sequence[str], directories: Sequence[str]) -> list[str]:
    """The paths that are in none of the directories."""
    return [
        path
        for path in paths
        if not any(PurePosixPath(path).is_relative_to(each) for each in directories)
    ]
