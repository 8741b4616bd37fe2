"""The scheduler Slurm, from version 21.08 on. It needs no accounting: where sacct
answers, it tells how jobs ended that squeue has forgotten."""

from __future__ import annotations

import math
import re
import shlex
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..core.errors import UserError
from .job import Allocation, JobState, Offer, Scheduler

# Passed on to sbatch as they are.
_GIVEN = (
    ("partition", "NAME", "The partition; default: Slurm's."),
    ("account", "NAME", "The account that is charged."),
    ("qos", "NAME", "The quality of service."),
    ("reservation", "NAME", "The reservation."),
    ("constraint", "FEATURES", "Features that the nodes must have."),
    ("nodelist", "HOSTS", "Nodes that a job must have, such as node[1-2]."),
)
OPTIONS = (
    *_GIVEN,
    ("time", "TIME", "Time limit of a job, such as 90m or 2h; default: the partition's."),
    ("exclusive", "", "Use whole nodes, without jobs of others."),
    ("mpirun", "", "Start MPI programs by mpirun even where srun --mpi=pmix works."),
)

_WAITING = {
    *("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"),
    "RESV_DEL_HOLD",
}
# End states: the category of failure, and what it means. Other states are those of running jobs.
_ENDED = {
    "COMPLETED": ("", "completed"),
    "FAILED": ("failed", "the job's script failed"),
    "CANCELLED": ("cancelled", "the job was cancelled, or a node failed its checks (sinfo -R)"),
    "TIMEOUT": ("time_limit", "the job reached its time limit; set a longer one with --time"),
    "DEADLINE": ("time_limit", "the job reached its deadline"),
    "NODE_FAIL": ("node_lost", "a node of the job failed"),
    "BOOT_FAIL": ("node_lost", "a node of the job did not boot"),
    "OUT_OF_MEMORY": ("out_of_memory", "the job ran out of memory"),
    "PREEMPTED": ("preempted", "another job preempted the job"),
    "REVOKED": ("revoked", "another cluster of the federation started the job"),
}
# Reasons for which a job waits until somebody changes the job or the partition.
_HOPELESS = re.compile(
    r"PartitionNodeLimit|PartitionTimeLimit|BadConstraints|Invalid(Account|QOS)|JobHeldAdmin"
    r"|(Assoc|QOS)MaxNodePerJobLimit|(Assoc|QOS)MaxWallDurationPerJobLimit"
)


def header(asked: Allocation) -> tuple[str, ...]:
    """The #SBATCH lines. The job gets no variable of the user's shell (NIL), as a run by SSH."""
    options = {
        "job-name": asked.name,
        "output": str(asked.directory / "job.log"),
        "open-mode": "append",
        "nodes": str(asked.nodes),
        "ntasks-per-node": str(asked.processes_per_node),
        **({"gpus-per-node": str(asked.gpus_per_node)} if asked.gpus_per_node else {}),
        **{name: asked.options[name] for name, _, _ in _GIVEN if asked.options.get(name)},
    }
    if asked.after:
        options["dependency"] = f"afterany:{asked.after}"
    if seconds := asked.options.get("time"):
        options["time"] = str(math.ceil(int(seconds) / 60))
    for name, value in options.items():
        if re.search(r"\s", value):
            raise UserError(
                "sbatch takes no white space here",
                where="the campaign's path" if name == "output" else f"--{name}",
                found=repr(value),
            )
    switches = [*(["exclusive"] if asked.options.get("exclusive") else []), "no-requeue"]
    return (
        *(f"#SBATCH --{name}={value}" for name, value in options.items()),
        *(f"#SBATCH --{name}" for name in switches),
        "#SBATCH --export=NIL",
    )


# Without the first line, srun would start programs without the variables that the job's script
# sets. The second is for the srun of mpirun, which would give all processes of a node one CPU.
_SETUP = """unset SLURM_EXPORT_ENV
# In an allocation by salloc, the number of CPUs is only in `2(x4)`.
: "${SLURM_CPUS_ON_NODE:=${SLURM_JOB_CPUS_PER_NODE%%[(,]*}}"
export SLURM_CPUS_ON_NODE SRUN_CPUS_PER_TASK=$SLURM_CPUS_ON_NODE SLURM_CPU_BIND=none
export SLURM_OVERLAP=1 # a run and what watches its nodes share the job's CPUs
id=$SLURM_JOB_ID
mapfile -t nodes < <(scontrol show hostnames "${nodelist:-$SLURM_JOB_NODELIST}")"""
# srun waits for the other tasks if one fails, unless told otherwise, and does not take over the
# job's number of CPUs (since 22.05). Programs that it starts meet by themselves: without PMI.
_EACH_NODE = (
    'srun --nodes="${#node[@]}" --ntasks="${#node[@]}" --ntasks-per-node=1'
    ' --nodelist="$(IFS=,; echo "${node[*]}")" --cpus-per-task="$SLURM_CPUS_ON_NODE"'
    " --cpu-bind=none --mpi=none --kill-on-bad-exit=1"
)
# The variables by which programs know their rank before they have called MPI_Init.
_RANK = shlex.quote(
    "export OMPI_COMM_WORLD_RANK=$SLURM_PROCID OMPI_COMM_WORLD_SIZE=$SLURM_STEP_NUM_TASKS"
    " OMPI_COMM_WORLD_LOCAL_RANK=$SLURM_LOCALID"
    ' OMPI_COMM_WORLD_LOCAL_SIZE=${SLURM_STEP_TASKS_PER_NODE%%[(,]*}; exec "$@"'
)
_EACH_RANK = (
    'srun --nodes="${#node[@]}" --ntasks="$((ranks * ${#node[@]}))" --ntasks-per-node="$ranks"'
    ' --nodelist="$(IFS=,; echo "${node[*]}")" --overcommit'
    ' --cpus-per-task="$((SLURM_CPUS_ON_NODE < ranks ? 1 : SLURM_CPUS_ON_NODE / ranks))"'
    f" --cpu-bind=none --mpi=pmix --kill-on-bad-exit=1 bash -c {_RANK} rank"
)
# srun lists PMIx even where its plugin lacks the library that it opens, and its steps then hang: so
# this looks for the library beside the paths in the plugin.
PMIX_LIBRARIES = r"""pmix_libraries() {
  local plugin path found
  for plugin in "$1"/mpi_pmix_v*.so; do
    [[ -r $plugin ]] || continue
    found=no
    for path in $(grep -aoE '/[[:alnum:]_./+-]+' "$plugin" | sort -u); do
      [[ ! -e $path/libpmix.so && ! ( $path == *libpmix.so* && -e $path ) ]] || found=yes
    done
    echo "$found"
  done
}"""
_PLUGINS = "$(scontrol show config | sed -n 's/^PluginDir *= *//p')"


def offers(output: str, options: Mapping[str, str]) -> tuple[Offer, ...]:
    """The nodes of the chosen partition, from `sinfo`. Raises UserError if there is none.

    batch*|1|(null)|node1
    gpu|1|gpu:h100:8(S:0-1)|node2
    """
    rows = [line.split("|") for line in output.splitlines() if line.count("|") in (2, 3)]
    wanted = options.get("partition")
    chosen = [
        row for row in rows if (row[0].rstrip("*") == wanted if wanted else row[0].endswith("*"))
    ]
    if not chosen:
        raise UserError(
            f"Slurm has no partition {wanted!r}" if wanted else "Slurm has no default partition",
            where="--partition",
            expected="one of " + ", ".join(dict.fromkeys(row[0].rstrip("*") for row in rows)),
        )
    return tuple(Offer(int(nodes), _gpus(gres), *name) for _, nodes, gres, *name in chosen)


def _gpus(gres: str) -> int:
    """GPUs of a node: `gpu:8`, `gpu:h100:8(S:0-1)`, `gpu:a:2,gpu:b:2,shard:8`, `(null)`."""
    parts = (part.split(":") for part in re.sub(r"\(.*?\)", "", gres).split(","))
    return sum(int(part[-1]) for part in parts if part[0] == "gpu" and part[-1].isdigit())


def job_id(output: str) -> str:
    """The ID that `sbatch --parsable` prints: `12`, or `12;cluster`."""
    match = re.match(r"(\d+)(?:;|\s|$)", output)
    if not match:
        raise UserError("sbatch printed no job ID", expected="a number", found=output.strip())
    return match[1]


def states(output: str) -> tuple[JobState, ...]:
    """The states of all jobs, from `squeue` or `sacct`; `8_[2-3%2]` is a job of somebody's array.

    12|PENDING|2026-11-22T21:03:20|Resources|4294901756|gpu|dlperf-3f2a9c
    11|CANCELLED by 1000|2026-11-22T21:03:20|None|4294901757|gpu|dlperf-8c01de
    """
    rows = [line.split("|", 6) for line in output.splitlines() if line.count("|") >= 6]
    queues: dict[str, list[int]] = {}
    for _, state, _, _, priority, partition, _ in rows:
        if state == "PENDING" and priority.isdigit():
            queues.setdefault(partition, []).append(int(priority))
    for queue in queues.values():
        queue.sort()
    return tuple(_state(row, queues.get(row[5], [])) for row in rows)


def _state(row: Sequence[str], queue: Sequence[int]) -> JobState:
    """`queue`: the priorities of the jobs that wait in its partition, sorted."""
    job, state, start, reason, priority, _, name = row
    state = state.partition(" ")[0]
    reason = "" if reason == "None" else reason
    if state in _ENDED:
        category, meaning = _ENDED[state]
        return JobState(job, name, "ended", f"{meaning} ({state})", category)
    if state in _WAITING:
        before = len(queue) - bisect_right(queue, int(priority)) if priority.isdigit() else -1
        return JobState(
            job=job,
            name=name,
            phase="waiting",
            reason=reason,
            expected_start="" if start == "N/A" else start,
            is_hopeless=bool(_HOPELESS.match(reason)),
            is_next=reason == "Dependency",
            position=before + 1,
        )
    return JobState(job, name, "running", reason)


# All jobs: those that have just ended, those before the user's in the queue, and those of hidden
# partitions included.
_STATES = ("squeue", "--all", "--states=all", "--noheader", "--format=%i|%T|%S|%r|%Q|%P|%j")


def past_argv(jobs: Sequence[str]) -> tuple[str, ...]:
    """Slurm forgets a job MinJobAge after its end, its accounting does not."""
    return (
        *("sacct", "--allocations", "--noheader", "--parsable2", f"--jobs={','.join(jobs)}"),
        "--format=JobID,State,Start,Reason,Priority,Partition,JobName",
    )


# ---- within an allocation that the user has got by salloc

# A job's script is a process of the runner's machine, with Slurm's variables only; it starts steps.
_START = """for name in $(compgen -e); do [[ $name == SLURM_* ]] || unset "$name"; done
/usr/bin/setsid /bin/bash "$0" >> "${0%/*}/job.log" 2>&1 < /dev/null & echo $!"""
_GIVEN_NODES = (
    'for node in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do'
    ' echo "given*|1|gpu:${SLURM_GPUS_ON_NODE:-${SLURM_GPUS_PER_NODE##*:}}|$node"; done'
)


def chosen_nodes(asked: Allocation) -> tuple[str, ...]:
    """The line that lets a script use only some of the nodes."""
    names = asked.options.get("nodelist")
    return (f"nodelist={shlex.quote(names)}",) if names else ()


def processes(output: str) -> tuple[JobState, ...]:
    """4711 /bin/bash /home/me/campaign/jobs/1/job.sh"""
    rows = (line.split(maxsplit=1) for line in output.splitlines())
    return tuple(JobState(job, "", "running") for job, argv in rows if argv.endswith("/job.sh"))


SCHEDULER = Scheduler(
    name="slurm",
    options=OPTIONS,
    header=header,
    setup=_SETUP,
    each_node=_EACH_NODE,
    own_node="$SLURMD_NODENAME",
    each_rank=_EACH_RANK,
    pmix_libraries=PMIX_LIBRARIES,
    pmix_plugins=_PLUGINS,
    offers_argv=lambda _: ("sinfo", "--noheader", "--Node", "--format=%P|%D|%G|%N"),
    offers=offers,
    submit_argv=lambda script: ("sbatch", "--parsable", str(script)),
    job_id=job_id,
    states_argv=lambda: _STATES,
    states=states,
    cancel_argv=lambda jobs: ("scancel", *jobs),
    past_argv=past_argv,
    given="SLURM_JOB_ID",
    hosts_argv=lambda names: ("scontrol", "show", "hostnames", names),
)
SCHEDULER = replace(
    SCHEDULER,
    steps=replace(
        SCHEDULER,
        options=(),
        header=chosen_nodes,
        offers_argv=lambda _: ("bash", "-c", _GIVEN_NODES),
        submit_argv=lambda script: ("bash", "-c", _START, str(script)),
        job_id=lambda output: output.strip(),
        states_argv=lambda: ("ps", "-ww", "-eo", "pid=,args="),
        states=processes,
        past_argv=None,
        cancel_argv=lambda jobs: ("kill", "-TERM", "--", *(f"-{job}" for job in jobs)),
    ),
)
