"""Container engines in a scheduler's jobs, as an ordinary user: their command lines, and how a job
gets an image. All functions are pure.

A process gets the node's network, shared memory, processes and variables, so that MPI and the
scheduler's own variables work in it. `mpirun` and `srun` start containers, one for each process;
torchrun and other launchers of a node are in one.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

# Where a plan has images that jobs make from a registry's; see Places.
IMAGES = "/opt/dlperf/images"
OWN_NODE = "@own@"  # node_facts.py knows its name
# Each with the end of an image's file. podman has its own storage.
ENGINES = {"apptainer": ".sif", "singularity": ".sif", "enroot": ".sqsh", "podman": ""}
# The name is in `$0`, what follows in `$@`. The working directory is that of the command.
_START = "exec {argv} {more}" + ' "$@"'
_MORE = {
    "apptainer": '--pwd "$PWD" --bind "${TMPDIR:-/tmp}"',
    "singularity": '--pwd "$PWD" --bind "${TMPDIR:-/tmp}"',
    # A container that outlives its run is found by the job's label. PMIx compares the user's ID;
    # `--userns keep-id` would need further IDs (/etc/subuid).
    "podman": '--workdir "$PWD" --volume "${TMPDIR:-/tmp}:${TMPDIR:-/tmp}"'
    ' --label "dlperf=$DLPERF_JOB" --user "$(id -u):$(id -g)"'
    ' --uidmap "$(id -u):0:1" --gidmap "$(id -g):0:1"',
}
_RUN_DIRECTORY = {
    "apptainer": ' --bind "$PWD"',
    "singularity": ' --bind "$PWD"',
    "podman": ' --volume "$PWD:$PWD"',
}
# Processes in containers of their own cannot read each other's memory (CMA); OpenMPI would say so.
_PODMAN = (
    *("--rm", "--pull", "never", "--log-driver", "none", "--cgroups", "enabled"),
    *("--network", "host", "--uts", "host", "--ipc", "host", "--pid", "host"),
    *("--env-host", "--env", "HOME=/tmp", "--entrypoint", ""),
    *("--env", "OMPI_MCA_btl_vader_single_copy_mechanism=none"),
)
REMOVE_PODMAN = (
    "/bin/sh",
    "-c",
    'podman ps --all --quiet --filter "label=dlperf=$DLPERF_JOB" | xargs -r podman rm --force'
    " --time 0",
)
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})$")


@dataclass(frozen=True)
class Inside:
    """What a container is given. `image`: engine and image as a run names them. `read_only`:
    directories. `cwd`: the command's working directory, which is below one of them; empty for the
    directory where it is started, in which it may write. `options`: the site's, of the engine."""

    image: str
    read_only: tuple[str, ...] = ()
    cwd: str = ""
    on_gpu: bool = False
    has_fabric: bool = False
    options: tuple[str, ...] = ()


def words_before(inside: Inside) -> tuple[str, ...]:
    """The words of a command line that start the words after them in a container.

    Of enroot, they are `srun` and its options of the plugin pyxis.
    """
    engine = inside.image.partition(" ")[0]
    image = image_word(inside.image)
    if engine == "enroot":
        mounts = ",".join(f"{path}:{path}:ro" for path in inside.read_only)
        return (
            *("srun", f"--container-image={image}", f"--container-mounts={mounts}"),
            *("--no-container-mount-home", *inside.options),
        )
    more = _MORE[engine] + ("" if inside.cwd else _RUN_DIRECTORY[engine])
    if engine == "podman":
        options = [*_PODMAN]
        options += ["--device", "nvidia.com/gpu=all", "--ulimit", "host"] if inside.on_gpu else []
        options += ["--device", "/dev/infiniband"] if inside.has_fabric else []
        mount, argv = "--volume", "podman run"
    else:
        options = ["--no-home", *(["--nv"] if inside.on_gpu else [])]
        mount, argv = "--bind", f"{engine} exec"
    for path in inside.read_only:
        options += [mount, f"{path}:{path}:ro"]
    start = _START.format(argv=argv, more=more)
    return ("/bin/sh", "-c", start, engine, *options, *inside.options, image)


def image_word(container: str) -> str:
    """What a command line names of a run's `container`: an image of podman by its digest, else a
    file: the site's, or the one that the job makes of a registry's image."""
    engine, _, reference = container.partition(" ")
    path, _, digest = reference.rpartition("@")
    if not ENGINES.get(engine):
        return reference
    return path if path.startswith("/") else f"{IMAGES}/{digest[-64:]}{ENGINES[engine]}"


def prepare(container: str) -> str:
    """The shell line that lets a job's nodes have the image, or fails. Each node of podman's has a
    storage of its own; a file is made once, by the first node."""
    engine, _, reference = container.partition(" ")
    path, _, digest = reference.rpartition("@")
    file = image_word(container)
    if engine == "podman":
        return (
            shlex.join(["podman", "image", "exists", reference])
            + " || "
            + (shlex.join(["podman", "pull", "--quiet", reference]))
        )
    if path.startswith("/"):
        check = shlex.join(["sha256sum", "--check", "--quiet"])
        return f"{check} <<< {shlex.quote(f'{digest[-64:]}  {path}')}"
    made = f"{file}.part"
    if engine == "enroot":
        registry, _, name = path.partition("/")
        # Its form of a digest is that of a tag.
        argv = ["enroot", "import", "--output", made, f"docker://{registry}#{name}:{digest}"]
    else:
        argv = [engine, "pull", made, f"docker://{path}@{digest}"]
    folder = shlex.quote(file.rpartition("/")[0])
    return (
        f"[[ -e {shlex.quote(file)} ]] || {{ mkdir -p {folder} && {shlex.join(argv)} &&"
        f" {shlex.join(['mv', made, file])}; }}"
    )


def on_each_node(container: str) -> bool:
    return container.startswith("podman ")


def versions_argv(container: str, environment: str, script: str) -> tuple[str, ...]:
    """The command that prints the packages inside the image. Its Python is the environment's, if
    the image has that, else the image's own."""
    before = words_before(Inside(container, (script.rpartition("/")[0],)))
    if before[0] == "srun":
        before = (
            *("srun", "--nodes=1", "--ntasks=1", "--mpi=none", f"--nodelist={OWN_NODE}"),
            *before[1:],
        )
    return (*before, "/bin/sh", "-c", f'PATH={environment}/bin:$PATH exec python "$0"', script)
