"""Types of all schedulers, and the scripts of a job and of its runs.

A plan is made before the scheduler has chosen the nodes. Its runs are therefore on nodes `@node1@`,
`@node2@`, ..., which the scripts replace by the names of the job's nodes.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from ..core.node import ENVIRONMENTS, JOB_ENGINES, SOURCES

# Where a plan has images that jobs make from a registry's; see Places.
IMAGES = "/opt/dlperf/images"
OWN_NODE = "@own@"  # node_facts.py knows its name
# The name is in `$0`, what follows in `$@`. The working directory is that of the command.
_START = "exec {argv} {more}" + ' "$@"'
_MORE = {
    **dict.fromkeys(("apptainer", "singularity"), '--pwd "$PWD" --bind "${TMPDIR:-/tmp}"'),
    # A container that outlives its run is found by the job's label. PMIx compares the user's ID;
    # `--userns keep-id` would need further IDs (/etc/subuid).
    "podman": '--workdir "$PWD" --volume "${TMPDIR:-/tmp}:${TMPDIR:-/tmp}"'
    ' --label "dlperf=$DLPERF_JOB" --user "$(id -u):$(id -g)"'
    ' --uidmap "$(id -u):0:1" --gidmap "$(id -g):0:1"',
}
_RUN_DIRECTORY = {
    **dict.fromkeys(("apptainer", "singularity"), ' --bind "$PWD"'),
    "podman": ' --volume "$PWD:$PWD"',
}
# Processes in containers of their own cannot read each other's memory (CMA); OpenMPI would say so.
_PODMAN = (
    *("--rm", "--pull", "never", "--log-driver", "none", "--cgroups", "enabled"),
    *("--network", "host", "--uts", "host", "--ipc", "host", "--pid", "host"),
    *("--env-host", "--env", "HOME=/tmp", "--entrypoint", ""),
    *("--env", "OMPI_MCA_btl_vader_single_copy_mechanism=none"),
)
_PODMAN_GPUS = {
    "nvidia": ("--device", "nvidia.com/gpu=all"),
    # AMD's devices belong to groups of the user.
    "amd": ("--device", "/dev/kfd", "--device", "/dev/dri", "--group-add", "keep-groups"),
}
_GPUS: dict[str, tuple[str, ...]] = {"nvidia": ("--nv",), "amd": ("--rocm",), "": ()}
REMOVE_PODMAN = (
    "/bin/sh",
    "-c",
    'podman ps --all --quiet --filter "label=dlperf=$DLPERF_JOB" | xargs -r podman rm --force'
    " --time 0",
)
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})$")


@dataclass(frozen=True)
class Inside:
    """The mounts and options of a container. `image`: engine and image as a run names them.
    `read_only`: directories. `cwd`: the command's working directory, which is below one of them;
    empty for the directory where it is started, in which it may write. `gpus`: nvidia, amd or, for
    none, empty. `options`: the site's, of the engine."""

    image: str
    read_only: tuple[str, ...] = ()
    cwd: str = ""
    gpus: str = ""
    has_fabric: bool = False
    options: tuple[str, ...] = ()


def words_before(inside: Inside) -> tuple[str, ...]:
    """The words of a command line that start the words after them in a container. Of enroot, they
    are `srun` and its options of the plugin pyxis."""
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
        options += [*_PODMAN_GPUS[inside.gpus], "--ulimit", "host"] if inside.gpus else []
        options += ["--device", "/dev/infiniband"] if inside.has_fabric else []
        mount, argv = "--volume", "podman run"
    else:
        options = ["--no-home", *_GPUS[inside.gpus]]
        mount, argv = "--bind", f"{engine} exec"
    for path in inside.read_only:
        options += [mount, f"{path}:{path}:ro"]
    start = _START.format(argv=argv, more=more)
    return ("/bin/sh", "-c", start, engine, *options, *inside.options, image)


def image_word(container: str) -> str:
    """The name of a run's `container` on a command line: an image of podman by its digest, else a
    file: the site's, or the one that the job makes of a registry's image."""
    engine, _, reference = container.partition(" ")
    path, _, digest = reference.rpartition("@")
    if not JOB_ENGINES.get(engine):
        return reference
    return path if path.startswith("/") else f"{IMAGES}/{digest[-64:]}{JOB_ENGINES[engine]}"


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


Run = Mapping[str, Any]  # a run of the plan document

PMIX = "DLPERF_PMIX"  # set if a job has shown that PMIx works
_NODE = re.compile(r"@node(\d+)@")
# As in a campaign by SSH.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Offer:
    """A kind of nodes that a partition has, and how many of them. `gpus` are those of each node.
    `name`: that of the only one, if the scheduler says it."""

    nodes: int
    gpus: int = 0
    name: str = ""


@dataclass(frozen=True)
class Allocation:
    """The request of a job. `options`: the user's options of the scheduler, by name. `directory`:
    where the job keeps its state and output, on a file system that the nodes share. `path`: the
    search path of programs, with those of the scheduler. `prologue`: shell lines of the site.
    `after`: the ID of a job that must have ended before this one starts, because both could get the
    same node; empty if there is none."""

    name: str
    directory: Path
    nodes: int
    processes_per_node: int
    gpus_per_node: int
    options: Mapping[str, str]
    path: str = PATH
    prologue: Sequence[str] = ()
    after: str = ""

    @property
    def is_exclusive(self) -> bool:
        return bool(self.options.get("exclusive"))


@dataclass(frozen=True)
class JobState:
    """The state of a job. `phase` is waiting, running or ended. `reason` says why it waits, or what
    the scheduler says of its end. `category` is empty if the job ended by itself. `is_hopeless`: a
    job that waits for this reason never starts. `position`: its place among the waiting jobs, from
    1 on; 0 if unknown. `is_next`: it waits for the end of the job before it
    (`Allocation.after`)."""

    job: str
    name: str
    phase: str
    reason: str = ""
    category: str = ""
    expected_start: str = ""
    is_hopeless: bool = False
    position: int = 0
    is_next: bool = False


@dataclass(frozen=True)
class Scheduler:
    """A scheduler's commands and how to read what they print. All functions are pure.

    `options`: name, metavar and help of each option that its jobs take. `header`: the first lines
    of a job's script. `setup`: shell lines that set `id` to the job's ID and the array `nodes` to
    the names of its nodes. `each_node`: the shell words that start a command once on each of the
    nodes of the array `node`. `own_node`: the shell expression for the name of the node there.
    `each_rank`: the shell words that start a command `$ranks` times on each of them by PMIx, with
    OpenMPI's variables of ranks; empty if the scheduler cannot. `pmix_libraries`: a shell function
    of this name, which prints `yes` or `no` for each plugin for PMIx in the folder `pmix_plugins`.
    `offers`, `job_id` and `states` read what the commands print. `past_argv`: the command for jobs
    that `states_argv` no longer names. `states` reads its output; a site need not have it.

    `hosts_argv`: the command that prints the names in the option `nodelist`, one a line.

    Where the variable `given` is set, the runner is in an allocation that it did not ask for:
    `steps` is the scheduler that starts a job's script there.
    """

    name: str
    options: tuple[tuple[str, str, str], ...]
    header: Callable[[Allocation], tuple[str, ...]]
    setup: str
    each_node: str
    own_node: str
    offers_argv: Callable[[Mapping[str, str]], tuple[str, ...]]
    offers: Callable[[str, Mapping[str, str]], tuple[Offer, ...]]
    submit_argv: Callable[[Path], tuple[str, ...]]
    job_id: Callable[[str], str]
    states_argv: Callable[[], tuple[str, ...]]
    states: Callable[[str], tuple[JobState, ...]]
    cancel_argv: Callable[[Sequence[str]], tuple[str, ...]]
    each_rank: str = ""
    pmix_libraries: str = ""
    pmix_plugins: str = ""
    past_argv: Callable[[Sequence[str]], tuple[str, ...]] | None = None
    given: str = ""
    steps: Scheduler | None = None
    hosts_argv: Callable[[str], tuple[str, ...]] | None = None


def placeholder(number: int) -> str:
    return f"@node{number}@"


def is_placeholder(name: str) -> bool:
    return bool(_NODE.fullmatch(name))


def word(text: str) -> str:
    """One word of a shell script. `@node1@` becomes the first element of the array `node`."""
    parts = _NODE.split(text)  # literals at even places, numbers of nodes at odd ones
    quoted = "".join(
        f'"${{node[{int(part) - 1}]}}"' if place % 2 else shlex.quote(part) if part else ""
        for place, part in enumerate(parts)
    )
    return quoted or "''"


@dataclass(frozen=True)
class Places:
    """Directories of the sources, the environments and the programs of schedulers/on_nodes on
    nodes."""

    sources: str = SOURCES
    environments: str = ENVIRONMENTS
    programs: str = ".lib"
    images: str = IMAGES

    def localized(self, text: str) -> str:
        """The text of a plan with the paths of this site."""
        text = re.sub(rf"{re.escape(SOURCES)}(?=/)", lambda _: self.sources, text)
        text = re.sub(rf"{re.escape(IMAGES)}(?=/)", lambda _: self.images, text)
        return re.sub(rf"{re.escape(ENVIRONMENTS)}(?=/)", lambda _: self.environments, text)


def run_script(scheduler: Scheduler, run: Run, directory: Path, places: Places) -> str:
    """The script that executes one run within a job. Its arguments are the names of its nodes. A
    run with one command per node starts the script again on each node. mpirun reaches the other
    nodes by itself, so it starts only here, unless the job has shown that PMIx works."""
    commands: list[Any] = list(run["commands"])
    places = places_of(run, places)
    options = _pyxis_options(commands[0], directory, places)
    each = " ".join([scheduler.each_node, *options])
    lines = ["#!/bin/bash", f"# Run {run['id']}. Arguments: the names of its nodes.", 'node=("$@")']
    if PurePosixPath(commands[0]["argv"][0]).name == "mpirun":
        lines += _by_pmix(scheduler, run, directory, places)
        return "\n".join([*lines, *_started(commands[0], directory, places)]) + "\n"
    lines += [
        "if [[ -z ${DLPERF_ON_NODE-} ]]; then",
        f'  exec {each} env DLPERF_ON_NODE=1 bash "$0" "$@"',
        "fi",
        f'case "{scheduler.own_node}" in',
    ]
    for place, command in enumerate(commands):
        host = word(command["host"])
        lines.append(f"{host})")
        if place:  # as in a campaign by SSH: the log without a name is that of the first node
            log = word(f"{directory}/{run['log_name']}.{command['host']}")
            lines.append(f"  exec > {log} 2>&1")
        lines += [f"  {line}" for line in _started(command, directory, places)]
        lines.append("  ;;")
    return "\n".join([*lines, "esac"]) + "\n"


def of_each_rank(scheduler: Scheduler, run: Run) -> dict[str, Any] | None:
    """The command of each process of a run that the scheduler can start by PMIx instead of mpirun.
    None for other runs, in containers, and if mpirun would start the processes otherwise."""
    command = run["commands"][0]
    each_rank = command["each_rank"] if scheduler.each_rank else {}
    return {**command, **each_rank} if each_rank else None


def _by_pmix(scheduler: Scheduler, run: Run, directory: Path, places: Places) -> list[str]:
    command = of_each_rank(scheduler, run)
    if command is None:
        return []
    lines = _started(command, directory, places, scheduler.each_rank)
    tested = f"if [[ -n ${{{PMIX}-}} ]]; then"
    return [tested, f"  ranks={run['gpus_per_node']}", *(f"  {line}" for line in lines), "fi"]


def _pyxis_options(command: Mapping[str, Any], directory: Path, places: Places) -> list[str]:
    """The options of srun for a container in which the script of a run starts again."""
    argv, options = command["argv"], [f"--container-workdir={directory}"]
    for option in argv[1 : -len(command["inside"]["argv"])] if argv[0] == "srun" else ():
        mounts = option.replace("-mounts=", f"-mounts={directory}:{directory},", 1)
        options.append(mounts if option.startswith("--container-mounts=") else option)
    return [word(places.localized(option)) for option in options] if len(options) > 1 else []


def places_of(run: Run, places: Places) -> Places:
    """An image has the environment where it was made."""
    return replace(places, environments=ENVIRONMENTS) if run["container"] else places


def _started(
    command: Mapping[str, Any], directory: Path, places: Places, by: str = ""
) -> list[str]:
    variables = [f"{name}={value}" for name, value in command["env"].items()]
    argv = command["argv"]
    if argv[0] == "srun":  # which starts the script of the run in the container
        argv = command["inside"]["argv"]
    argv = [*(["env", *variables] if variables else []), *argv]
    where = word(places.localized(command["cwd"] or str(directory)))
    words = [*([by] if by else []), *(word(places.localized(text)) for text in argv)]
    return [f"cd {where} || exit", "exec " + " ".join(words)]


# Its state is in files: see on_nodes/job_run.py. `stop`: no further run starts.
_JOB = r"""
export PATH=@PATH@ LANG=C.UTF-8
HOME=~ USER=$(id -un) LOGNAME=$(id -un)
export HOME USER LOGNAME
job=@JOB@
@SETUP@
export DLPERF_JOB=$id # tells processes of this job from others on its nodes
node=("${nodes[@]}")

# If the job was requeued, a signal has ended its last run, which may have recorded that.
last=$(ls "$job" | sed -n 's/^started[.]\([0-9]*\)[.]json$/\1/p' | sort -n | tail -n 1)
grep -Eqs '"exit_status": 1(37|43)' "$job/ended.$last.json" && rm "$job/ended.$last.json"

@PROLOGUE@@IMAGES@@EACH@ bash "$job/node.sh" || @FAILS@
[[ -e $job/pmix.sh ]] && bash "$job/pmix.sh" "${nodes[@]}" > "$job/pmix.log" 2>&1 \
  && export DLPERF_PMIX=1
@PYTHON@ -ES @PROGRAMS@/job_run.py "$job" @KIND@ "${nodes[@]}" << 'RUNS'"""
_NO_IMAGE = "the container's image cannot be used: "


def job_script(
    scheduler: Scheduler, asked: Allocation, runs: Sequence[tuple[Run, Path]], places: Places
) -> str:
    """The script of a job: its runs one after another, with the directory of each."""
    text = _JOB.replace("@JOB@", shlex.quote(str(asked.directory)))
    text = text.replace("@PATH@", shlex.quote(asked.path))
    text = text.replace("@SETUP@", scheduler.setup).replace("@EACH@", scheduler.each_node)
    text = text.replace("@PROLOGUE@", prologue(asked))
    images = dict.fromkeys(run["container"] for run, _ in runs if run["container"])
    shared = [image for image in images if not on_each_node(image)]
    text = text.replace("@IMAGES@", "".join(_image(image, places) for image in shared))
    text = text.replace("@FAILS@", "exit 1" if images else "true")
    text = text.replace("@PYTHON@", shlex.quote(python_of(runs[0][0], places)))
    text = text.replace("@PROGRAMS@", shlex.quote(places.programs))
    text = text.replace("@KIND@", "exclusive" if asked.is_exclusive else "shared")
    lines = [
        f"{number} {run['nodes']} {place}" for number, (run, place) in enumerate(runs, start=1)
    ]
    return "\n".join(["#!/bin/bash", *scheduler.header(asked), text, *lines, "RUNS", "exit 0", ""])


def _image(container: str, places: Places) -> str:
    """The line that lets the nodes have an image, or ends the job or the node's script."""
    line = places.localized(prepare(container))
    return f"{{ {line}; }} || {{ echo {shlex.quote(_NO_IMAGE + container)}; exit 1; }}\n"


# The job gets no function of the user's shell. That of modules exports itself to later shells.
_MODULES = """if ! type module > /dev/null 2>&1; then
  for file in /etc/profile.d/{lmod,z00_lmod,modules}.sh; do
    if [[ -r $file ]]; then . "$file"; break; fi
  done
fi
"""


_PROLOGUE_FAILED = "dlperf_prologue failed: "


def prologue(asked: Allocation) -> str:
    """The site's lines, such as `module load cuda`. All that the job starts gets what they set. If
    one fails, so does the job."""
    lines = [
        f"{line}\n(( $? == 0 )) || {{ echo {shlex.quote(_PROLOGUE_FAILED + line)}; exit 1; }}\n"
        for line in asked.prologue
    ]
    return "".join([_MODULES, *lines, "\n"]) if lines else ""


def python_of(run: Run, places: Places) -> str:
    """The Python on the nodes that runs the programs of schedulers/on_nodes for this run."""
    if run["container"]:  # its environment need not be on the nodes
        return "python3"
    return f"{places.environments}/{run['environment']}/bin/python"


# Its arguments are the names of the job's nodes. Without the library that Slurm's plugin opens, a
# step would hang. Without PMIx in its own library, each process of MPI would be alone.
_PMIX_TEST = r"""#!/bin/bash
@LIBRARIES@
if [[ $1 == --libraries ]]; then
  found=$(pmix_libraries "$2")
  [[ -n $found && $found != *no* ]]
  exit
fi
node=("$@") count=$# ranks=1
@EACH@ bash "$0" --libraries "@PLUGINS@" || { echo "libpmix is missing"; exit 1; }
said=$(timeout --kill-after=10 120 @RANK@ @SUM@)
echo "$said"
(( $(grep -c "of $count on .*: sum $((count * (count + 1) / 2))$" <<< "$said") == count ))
"""


def pmix_script(
    scheduler: Scheduler, asked: Allocation, runs: Sequence[Run], mpirun: str, places: Places
) -> str:
    """The script that tests PMIx on all nodes of a job, with a sum over MPI. Its arguments are the
    names of the nodes. It fails if processes do not find each other. Empty if no run can use PMIx.
    """
    commands = [(run, of_each_rank(scheduler, run)) for run in runs]
    run, command = next(
        ((run, each_rank) for run, each_rank in commands if each_rank), (runs[0], None)
    )
    if command is None or asked.options.get("mpirun"):
        return ""
    variables = [f"{name}={value}" for name, value in command["env"].items()]
    program = [python_of(run, places), f"{places.programs}/mpi_sum.py", mpirun]
    text = _PMIX_TEST.replace("@LIBRARIES@", scheduler.pmix_libraries)
    text = text.replace("@PLUGINS@", scheduler.pmix_plugins).replace("@EACH@", scheduler.each_node)
    text = text.replace("@RANK@", scheduler.each_rank)
    return text.replace("@SUM@", " ".join(map(word, ["env", *variables, *program])))


def on_node_script(scheduler: Scheduler) -> str:
    """The script that executes a command on one node of a job, with its own standard input and
    output. Its arguments are the name of the node and the command."""
    return f"""#!/bin/bash
node=("$1")
exec {scheduler.each_node} "${{@:2}}"
"""


def node_script(
    scheduler: Scheduler,
    asked: Allocation,
    runs: Sequence[Run],
    mpirun: str,
    prepare: Sequence[tuple[Sequence[str], str]],
    places: Places,
) -> str:
    """The script that each node of a job executes first: it prepares the sources, and records the
    node's facts. `prepare`: commands, each with a path that it creates."""
    lines = ["#!/bin/bash"]
    for argv, creates in prepare:
        command = " ".join(word(places.localized(text)) for text in argv)
        lines.append(f"[[ -e {word(places.localized(creates))} ]] || {command}")
    images = dict.fromkeys(run["container"] for run in runs if on_each_node(run["container"]))
    lines += [_image(image, places).rstrip() for image in images]
    software = {run["environment"]: _versions_argv(run, places) for run in runs}
    facts = [python_of(runs[0], places), f"{places.programs}/node_facts.py", str(asked.directory)]
    words = shlex.join([mpirun, json.dumps(software)])
    lines.append(f'exec {shlex.join(facts)} "{scheduler.own_node}" {words}')
    return "\n".join([*lines, ""])


def _versions_argv(run: Run, places: Places) -> list[str]:
    script = f"{places.programs}/versions.py"
    if not run["container"]:
        return [python_of(run, places), script]
    environment = f"{ENVIRONMENTS}/{run['environment']}"
    return [places.localized(w) for w in versions_argv(run["container"], environment, script)]
