"""Running commands in containers: selects the image and builds the engine's command line.

A container shares the node's network, shared memory and GPUs. It mounts the data read-only and
runs as the ordinary user that started it. mpirun starts its daemons on the other nodes in
containers of the same image. For that, it calls `REMOTE_SHELL`, a script of this project, instead
of ssh.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from .. import launchers
from ..catalog.framework import without_tag
from ..catalog.suites import RELEASES
from ..core.case import Command
from ..core.errors import UserError
from ..core.node import ANY_ENGINE, ENGINES, JOB_ENGINES, Node
from ..schedulers.job import REMOVE_PODMAN, Inside, is_placeholder, words_before

if TYPE_CHECKING:
    from ..catalog.framework import Environment
    from ..catalog.stack import Stack


# roles/container installs it. Multi-node runs mount it at the same path in their containers.
REMOTE_SHELL = "/opt/dlperf/container/remote_shell"
DATA = "/opt/dlperf/data"
KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts"
# mpirun's options for daemons in containers: they must not detach, or their container would end.
_DAEMONS = (
    *("--mca", "plm_rsh_agent", REMOTE_SHELL, "--mca", "plm_rsh_no_tree_spawn", "1"),
    "--leave-session-attached",
)

# The shell on the node expands the values that only the node knows (user ID, home directory). All
# other values are arguments and are passed on unchanged. In Docker, root is the root of the
# machine, so containers run as the user. In rootless podman, root is the user who started it.
_START = {
    "docker": 'exec docker run --user "$(id -u):$(id -g)" --volume /etc/passwd:/etc/passwd:ro'
    " --volume /etc/group:/etc/group:ro{more}" + ' "$@"',
    "podman": 'exec podman run{more} "$@"',
}
_KEYS = {
    "docker": ' --volume "$HOME/.ssh:$HOME/.ssh:ro"',
    # In a podman container, the user is root.
    "podman": ' --volume "$HOME/.ssh:/root/.ssh:ro"',
}
_RUN_DIRECTORY = ' --volume "$PWD:$PWD" --workdir "$PWD"'
# NVIDIA recommends these for its images, but for `nofile`: since containerd 2.1.5 (Docker 29),
# containers have systemd's limit of 1024 open files (moby/moby#51485). Docker, as root, can set any
# hard limit up to fs.nr_open, the kernel's default of which is that of Docker before 29.
_GPUS = {
    "docker": (
        *("--gpus", "all", "--ulimit", "memlock=-1", "--ulimit", "stack=67108864"),
        *("--ulimit", "nofile=65536:1048576"),
    ),
    "podman": ("--device", "nvidia.com/gpu=all", "--ulimit", "host"),
}
# AMD's devices belong to groups that the benchmark user is in. Without the engine's filter of
# system calls, programs place their memory near a GPU (AMD's guide to containers).
_AMD_GPUS = (
    *("--device", "/dev/kfd", "--device", "/dev/dri", "--security-opt", "seccomp=unconfined"),
)
_AMD_GROUPS = {
    "docker": ' $(printf " --group-add %s" $(id -G))',
    "podman": " --group-add keep-groups",
}
_FABRIC = ("--device", "/dev/infiniband", "--cap-add", "IPC_LOCK")
_REMOVE = {
    "docker": ("docker", "rm", "--force"),
    "podman": ("podman", "rm", "--force", "--ignore", "--time", "0"),
}


# Of an image in the engine's storage, and of one in a file.
_DIGESTS = (
    (
        r"(id:)?sha256:[0-9a-f]{64}",
        "sha256: and 64 hexadecimal digits, after id: if it is an image's ID",
    ),
    (
        r"(/[^:,@\s]+@)?sha256:[0-9a-f]{64}",
        "sha256: and 64 hexadecimal digits, after /path/of/a/file@ if it is the file's SHA-256",
    ),
)
_SAVE = (
    "images that are built twice differ:"
    " build on one node, then `{engine} save` and `{engine} load`. IDs of Docker 29 on a fresh node"
    " differ from those on an upgraded one or of podman (docs/containers.md)"
)


@dataclass(frozen=True)
class Image:
    """An image by digest (`name@sha256:...`) or by its ID (`sha256:...`), its engine, and the paths
    of its programs."""

    engine: str
    reference: str
    python: str
    mpirun: str | None = None  # None: the same path as on the node

    def __str__(self) -> str:
        return f"{self.engine} {self.reference}"


def engine_for(chosen: str | None, environment: Environment, stack: Stack, node: Node) -> str:
    """The container engine for the environment; empty if it runs without a container.

    Without a word of the operator or the stack, the node's release decides. Raises UserError if
    that is unknown and matters: provisioning, which sees the nodes, could choose another engine. An
    environment that also exists as an image runs in it if the inventory has a digest for it.
    """
    declared = environment.container
    has_image = declared and declared.is_among(node.container_images)
    if not chosen and environment.requirements is not None and not has_image:
        return ""
    if is_placeholder(node.name):
        return job_engine_for(chosen, node)
    if chosen in ENGINES:
        return chosen
    if chosen:
        raise UserError(
            f"{chosen} runs only in jobs of a scheduler",
            where="--container",
            expected=f"one of {', '.join(ENGINES)}, or also --scheduler",
        )
    runtime = stack.container_runtime
    if named := node.container_engine or (runtime and runtime.engine):
        return named
    suites = [node.suite] if node.suite else stack.suites
    engines = {suite: RELEASES.engine(suite) for suite in suites}
    if "container_runtime" in node.adopted:
        expected = "docker or podman, the engine that the node keeps (dlperf_adopt)"
    elif len(set(engines.values())) == 1:
        return engines[suites[0]]
    else:
        listed = ", ".join(f"{suite} ({engine})" for suite, engine in engines.items())
        expected = f"docker or podman, or dlperf_suite, the release of the nodes: {listed}"
    raise UserError(
        "the container engine is unknown",
        where=f"host {node.name}: dlperf_container_engine",
        expected=expected,
        found="none",
    )


def image_for(
    engine: str, name: str, python: str, environment: Environment, hosts: Sequence[Node]
) -> Image:
    """The image of an environment, with the digest from the inventory; `id:sha256:...` is the ID of
    an image that was built locally. `name` is the environment; `python` is its interpreter if the
    image is built from a node. Raises UserError unless all hosts have the same digest and
    registry."""
    declared = environment.container
    image = declared.image if declared else f"localhost/dlperf-{name}"
    digests = [host.container_images.get(image) for host in hosts]
    for host, digest in zip(hosts, digests, strict=True):
        where = f"host {host.name}: dlperf_container_images"
        if digest is None:
            raise UserError(
                f"the image {image} has no digest; a tag alone is not accepted",
                where=where,
                expected=f"{image}: sha256:...",
                found=", ".join(host.container_images) or "none",
                hint=_where_from(engine, bool(declared), host),
            )
        pattern, expected = _DIGESTS[bool(JOB_ENGINES.get(engine))]
        if not re.fullmatch(pattern, digest):
            raise UserError(
                f"invalid digest of {image}", where=where, expected=expected, found=repr(digest)
            )
        if digest != digests[0]:
            raise UserError(
                f"the nodes of one run have different digests of {image}",
                where=where,
                expected=f"{digests[0]}, as on {hosts[0].name}",
                found=digest,
                hint=_SAVE.format(engine=engine) if digest.startswith("id:") else None,
            )
    if len({host.registry for host in hosts}) > 1:
        raise UserError(
            "the nodes of one run use different registries",
            where=", ".join(f"host {host.name}" for host in hosts) + ": dlperf_registry",
            found=", ".join(host.registry or "none" for host in hosts),
        )
    # The digest makes the tag redundant, and not every engine accepts both.
    bare = without_tag(image)
    if declared and hosts[0].registry:
        bare = f"{hosts[0].registry}/{bare.partition('/')[2]}"
    digest = str(digests[0])
    if digest.startswith(("id:", "/")):
        reference = digest.removeprefix("id:")
    else:
        reference = f"{bare}@{digest}"
    if declared:
        return Image(engine, reference, declared.python, declared.mpirun)
    return Image(engine, reference, python)


def _where_from(engine: str, has_registry: bool, host: Node) -> str:
    if has_registry:
        return (
            f"`{engine} image inspect` shows the digest of a pulled image, and the ID of one that"
            " was built locally (write id:sha256:...)"
        )
    if host.accelerator == "cpu":
        return "provision.yml -e dlperf_container_engine=podman builds the image and shows it"
    return "this project builds its own images only on nodes without GPUs"


def launch(
    launcher: str, program: launchers.Program, hosts: tuple[Node, ...], image: Image
) -> tuple[Command, ...]:
    """The commands that start the program inside containers on the hosts: with mpirun's path there,
    and how it reaches the containers on other nodes. `inside` is the command without the latter."""
    in_image = tuple(replace(host, mpirun=image.mpirun or host.mpirun) for host in hosts)
    bare = launchers.launch(launcher, program, in_image)
    options = _DAEMONS if len(hosts) > 1 else ()
    within = tuple(replace(host, mpirun_args=(*options, *host.mpirun_args)) for host in in_image)
    return tuple(
        replace(command, inside={"argv": each.argv, "env": each.env}, each_rank={})
        for command, each in zip(launchers.launch(launcher, program, within), bare, strict=True)
    )


def enclose(
    command: Command,
    image: Image,
    hosts: tuple[Node, ...],
    name: str,
    *,
    source: str = "",
    data: Sequence[str] = (),
    on_gpu: bool = False,
    has_fabric: bool = False,
) -> Command:
    """The command in a container of `image`, which its cleanup always removes.

    `data` are directories to mount read-only, besides the usual ones and those of the inventory.
    `source` is the directory of the workload's source, in which the command's working directory is,
    if it has one; else the command runs in the directory where it is started.
    """
    host = next(host for host in hosts if host.name == command.host)
    container = container_name(name)
    starts_daemons = len(hosts) > 1 and "plm_rsh_agent" in command.argv
    options = ["--rm", "--name", container, "--pull", "never", "--log-driver", "none"]
    options += ["--network", "host", "--uts", "host", "--ipc", "host"]
    is_amd = on_gpu and host.accelerator.startswith("AMD")
    if is_amd:
        options += [*_AMD_GPUS, *_GPUS[image.engine][2:]]
    elif on_gpu:
        options += _GPUS[image.engine]
    options += _FABRIC if has_fabric else ()
    usual = [DATA, *host.container_data]
    missing = outside(data, usual)
    for directory in ([source] if source else []) + usual + missing:
        options += ["--volume", f"{directory}:{directory}:ro"]
    if command.cwd:
        options += ["--workdir", command.cwd]
    options += ["--env", "HOME=/tmp"]  # the user's home is not mounted
    environment = dict(command.env)
    if image.engine == "podman":
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if starts_daemons:
        # The daemons look for it, too. They exit if it is missing.
        directory = str(PurePosixPath(REMOTE_SHELL).parent)
        options += ["--volume", f"{directory}:{directory}:ro"]
    more = ("" if command.cwd else _RUN_DIRECTORY) + (_AMD_GROUPS[image.engine] if is_amd else "")
    remote = (*_start(image.engine, more), *options, *host.container_args, image.reference)
    if starts_daemons:
        more += _KEYS[image.engine]
        options += ["--volume", f"{KNOWN_HOSTS}:{KNOWN_HOSTS}:ro"]
        environment["DLPERF_REMOTE_CONTAINER"] = shlex.join(remote)
        environment["DLPERF_REMOTE_USER"] = host.user
    for variable in environment:
        options += ["--env", variable]
    argv = (*_start(image.engine, more), *options, *host.container_args, image.reference)
    return replace(
        command,
        argv=(*argv, *command.argv),
        env=environment,
        cleanup=(*_REMOVE[image.engine], container),
    )


def container_name(run: str) -> str:
    """`dlperf-<run>`, with only the characters that container engines allow."""
    return "dlperf-" + re.sub(r"[^A-Za-z0-9_.-]", "-", run)


def _start(engine: str, more: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", _START[engine].format(more=more), engine)


def proof_command(
    name: str,
    hosts: Sequence[str],
    reference: str,
    user: str,
    interface: str,
    mpirun: str,
    mpirun_args: Sequence[str],
    argv: Sequence[str],
) -> Command:
    """The command with which provisioning tests a podman image: with mpirun, it starts `argv`
    twice, on two hosts or on the same host; without mpirun, once."""
    nodes = tuple(
        Node(
            *(host, host, len(hosts), "cpu", ""),
            interface=interface,
            user=user,
            mpirun=mpirun,
            mpirun_args=tuple(mpirun_args),
        )
        for host in dict.fromkeys(hosts)
    )
    image = Image("podman", reference, argv[0])
    program = launchers.Program(
        argv=tuple(argv),
        gpus_per_node=len(hosts) // len(nodes),
        on_gpu=False,
        cwd="/",
        launcher_options=("--bind-to", "none"),
    )
    launcher = "mpirun" if mpirun else "single_process"
    (command,) = launch(launcher, program, nodes, image)
    return enclose(command, image, nodes, name)


# ---- in a scheduler's job

_EXPECTED = f"--container with one of {', '.join(JOB_ENGINES)}"


def job_engine_for(chosen: str | None, node: Node) -> str:
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


def launch_in_job(
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
        ("amd" if hosts[0].accelerator.startswith("AMD") else "nvidia") if program.on_gpu else "",
        has_fabric,
        hosts[0].container_args,
    )
    before = words_before(inside)
    bare = launchers.launch(launcher, program, hosts)
    is_mpirun = PurePosixPath(bare[0].argv[0]).name == "mpirun"
    engine = image.partition(" ")[0]
    if engine == "enroot" and inside.gpus == "amd":
        raise UserError(
            "containers of enroot get no GPUs of AMD",
            where="--container enroot",
            expected=f"one of {', '.join(name for name in JOB_ENGINES if name != 'enroot')}",
        )
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
        replace(each, cleanup=cleanup, inside={"argv": inner.argv, "env": inner.env}, each_rank={})
        for each, inner in zip(commands, bare, strict=True)
    )


def outside(paths: Sequence[str], directories: Sequence[str]) -> list[str]:
    """The paths that are in none of the directories."""
    return [
        path
        for path in paths
        if not any(PurePosixPath(path).is_relative_to(each) for each in directories)
    ]
