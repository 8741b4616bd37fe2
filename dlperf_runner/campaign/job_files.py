"""The jobs of a campaign and their files: what is submitted, how, and the outcomes of its runs.

<campaign>/scheduler.json          the scheduler, its options, and the site's paths
<campaign>/jobs/<n>/job.json       ID and name of job n, its runs, and how it ended
<campaign>/jobs/<n>/job.sh         its script; node.sh is what each node executes first, on_node.sh
                                   executes a command on one node, pmix.sh tests PMIx
<campaign>/jobs/<n>/started.<i>.json, ended.<i>.json      what it says of its run i
<campaign>/jobs/<n>/cut_off.<i>.<k>.json   the same of a start of run i that a requeue cut off
<campaign>/jobs/<n>/stop           no further run of the job starts
<campaign>/runs/<case>/r<k>/run.sh the script of a run
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ..core.errors import UserError
from ..core.files import is_regular, open_read, read_json, write_json, write_whole
from ..core.lists import grouped
from ..core.node import nvlink_domains
from ..schedulers import Allocation, Scheduler, here, scheduler
from ..schedulers.job import PATH, Places, job_script, on_node_script, pmix_script, run_script
from .directory import PLANNED_OUTCOME, earlier_attempts, read_plan, read_record, run_directory
from .manifest import JOB_FOLDERS, seal
from .outcome import end_run, outcome_of, write_outcome

TAIL_BYTES = 4096
OUT_OF_MEMORY = "out_of_memory"
# Runs that the end of their job cut off, by its category; they remain to be run (CUT_OFF).
CUT_OFF_BY = {
    **dict.fromkeys(("cancelled", "preempted", "revoked", "time_limit"), "stopped"),
    **dict.fromkeys(("node_lost", "unknown"), "unreachable"),
}


@dataclass
class Job:
    """A job of the campaign. `id` is empty until the scheduler has it."""

    directory: Path
    name: str
    runs: list[str]
    id: str = ""
    submitted: float = 0.0
    ended: str | None = None
    # Whether its script is a process of the runner's machine, in an allocation of the user.
    in_given_allocation: bool = False
    host: str = ""  # that machine
    lag: int = field(default=0, compare=False)
    last_message: str = field(default="", compare=False)
    why: str = field(default="", compare=False)  # why this runner cancelled it
    waits_since: float = field(default=0.0, compare=False)

    @property
    def stop(self) -> Path:
        """If this file exists, no further run of the job starts."""
        return self.directory / "stop"

    def write(self) -> None:
        keys = ("name", "runs", "id", "submitted", "ended", "in_given_allocation", "host")
        write_json(self.directory / "job.json", {key: getattr(self, key) for key in keys})


def written_by_job(job: Job, number: int) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The documents that the job wrote when its run began and ended."""
    started, ended = (job.directory / f"{what}.{number}.json" for what in ("started", "ended"))
    return (
        read_json(started) if started.is_file() else None,
        read_json(ended) if ended.is_file() else None,
    )


def record_outcome(
    directory: Path,
    run: Mapping[str, Any],
    job: Job,
    started: Mapping[str, Any],
    ended: Mapping[str, Any] | None,
    lost: str | None = None,
    category: str = "",
) -> None:
    """Write the outcome of a run into its run.json, in the form of bench.yml, unless it is there.
    `lost`: why the job ended it, with the category."""
    document = read_record(directory, run)
    before = document["outcome"]
    is_known = before.get("job") == started["job"] and before["started"] == started["started"]
    is_new = ended or lost if before["status"] == "running" else lost and before["message"] != lost
    if is_known and not is_new:
        return
    nodes = started["nodes"]
    hosts, versions = _facts(job, nodes, str(run["environment"]))
    domains = nvlink_domains({name: host.get("nvlink_domain", "") for name, host in hosts.items()})
    run = {**run, "nvlink_domains": domains}
    outcome = {**PLANNED_OUTCOME, "status": "running", "job": started["job"]}
    outcome |= {"started": started["started"], "hosts": hosts, "versions": versions}
    outcome |= {"mpi": started["mpi"]} if "mpi" in started else {}
    if earlier := _earlier(job, str(run["id"]), before, started):
        outcome["earlier"] = earlier
    log = run_directory(directory, run) / str(run["log_name"])
    if ended:
        moments = {"started": started["started"], "ended": ended["ended"]}
        times = {name: datetime.fromisoformat(m).timestamp() for name, m in moments.items()}
        result = {"reason": "", **ended, **times, "tail": _end_of(log)}
        outcome |= outcome_of({nodes[0]: result}, nodes[:1], int(run["timeout_s"]))
        outcome |= moments
        if starts := ended.get("requeued"):
            message = f"job {started['job']} was requeued {starts} times"
            outcome |= {"message": message, "reason": "stopped"}
    if lost:
        outcome |= {"status": "failed", "message": lost, "category": category}
        outcome["reason"] = CUT_OFF_BY.get(category, "")
        # A node that did not answer while the scheduler ended the job is not lost.
        outcome.pop("lost", None)
        outcome |= {"lost": nodes} if category == "node_lost" else {}
    if outcome["status"] != "running" and is_regular(log):
        with open_read(log) as file:
            outcome["log_sha256"] = hashlib.file_digest(file, "sha256").hexdigest()
    if outcome["status"] == "running":
        write_outcome(directory, run, outcome)
    else:
        explains = not lost or category == OUT_OF_MEMORY
        end_run(directory, run, outcome, explains=explains)


def _earlier(
    job: Job, run: str, before: Mapping[str, Any], started: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The attempts before this start: of earlier jobs, and of this one before it was requeued."""
    is_other = before["status"] in ("done", "failed") and before["started"] != started["started"]
    attempts = earlier_attempts(before) if is_other else list(before.get("earlier", ()))
    number = job.runs.index(run) + 1
    cuts = [read_json(path)["started"] for path in job.directory.glob(f"cut_off.{number}.*.json")]
    attempts = [attempt for attempt in attempts if attempt["started"] not in cuts]
    for cut in cuts:
        message = f"job {started['job']} was requeued"
        attempts.append({"status": "failed", "started": cut, "ended": None, "message": message})
        attempts[-1] |= {"reason": "stopped", "category": "requeued"}
    return sorted(attempts, key=lambda attempt: str(attempt["started"]))


def _facts(
    job: Job, nodes: Sequence[str], environment: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The facts of the run's nodes by name, and the versions of its software on the first one."""
    by_node: dict[str, dict[str, Any]] = {}
    for node in nodes:
        path = job.directory / f"facts.{node}.json"
        by_node[node] = read_json(path) if path.is_file() else {}
    versions = by_node[nodes[0]].get("versions", {}).get(environment, {})
    return {node: facts.get("host", {}) for node, facts in by_node.items()}, versions


def _end_of(log: Path) -> str:
    with suppress(OSError, UserError), open_read(log) as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        return file.read().decode(errors="replace")
    return ""


FILE = "scheduler.json"
ALLOCATIONS = ("campaign", "case", "run")
# Further files of a job, by name.
FurtherFiles = Callable[[Allocation, Sequence[Mapping[str, Any]]], Mapping[str, str]]


@dataclass(frozen=True)
class SchedulerSettings:
    """The content of scheduler.json. `options`: those of the scheduler. `environments`: where the
    nodes have them. `mirror`: of repositories. `has_gpus`: whether the scheduler counts the nodes'
    GPUs. `max_wait_s`: how long a job may wait; 0 for no limit. `prologue`: shell lines of its
    jobs."""

    scheduler: str
    options: dict[str, str]
    environments: str
    mirror: str
    mpirun: str
    has_gpus: bool
    allocation: str
    max_wait_s: int
    prologue: Sequence[str] = ()


def record(directory: Path, settings: SchedulerSettings) -> None:
    """Record once, for resuming, how the campaign is run."""
    path = write_json(directory / FILE, asdict(settings))
    seal(directory, FILE, [path])


def read_settings(directory: Path) -> SchedulerSettings | None:
    """The scheduler's settings of a campaign; None if bench.yml runs it."""
    path = directory / FILE
    return SchedulerSettings(**read_json(path)) if path.is_file() else None


def output(argv: Sequence[str]) -> str:
    """The output of a command of the scheduler. Raises UserError if it is missing or fails."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UserError(
            f"{argv[0]} not found", expected="a login node of the scheduler", where="--scheduler"
        ) from None
    if done.returncode != 0:
        raise UserError(f"{shlex.join(argv)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


# ---- writing jobs


def allocations(runs: Sequence[Mapping[str, Any]], kind: str) -> list[list[Mapping[str, Any]]]:
    """The runs of each job, in the order of the plan."""
    key = {"campaign": lambda _: "", "case": lambda r: r["case"], "run": lambda r: r["id"]}[kind]
    return list(grouped(runs, key).values())


def allocation_request(
    settings: SchedulerSettings,
    name: str,
    directory: Path,
    runs: Sequence[Mapping[str, Any]],
    before: str = "",
) -> Allocation:
    """The request of a job for these runs. `before`: ID of the campaign's job before it, if that
    may not have ended."""
    submit = shutil.which(scheduler(settings.scheduler).submit_argv(directory)[0])
    folder = str(Path(submit).parent) if submit else ""
    return Allocation(
        name=name,
        directory=directory,
        nodes=max(run["nodes"] for run in runs),
        processes_per_node=max(run["gpus_per_node"] for run in runs),
        gpus_per_node=max(run["gpus_per_node"] for run in runs) if settings.has_gpus else 0,
        options=settings.options,
        prologue=settings.prologue,
        path=PATH if folder in ("", *PATH.split(":")) else f"{PATH}:{folder}",
        after="" if settings.options.get("exclusive") else before,
    )


def places_of(directory: Path, settings: SchedulerSettings) -> Places:
    """The directories of what jobs need on the nodes; what is hidden is no file of the results."""
    hidden = [str(directory / name) for name in JOB_FOLDERS]
    return Places(hidden[0], settings.environments, *hidden[1:])


def scripts(
    directory: Path,
    settings: SchedulerSettings,
    request: Allocation,
    runs: Sequence[Mapping[str, Any]],
) -> dict[Path, str]:
    """The scripts of a job and of its runs, by path."""
    target, places = here(settings.scheduler, os.environ), places_of(directory, settings)
    with_places = [(run, run_directory(directory, run)) for run in runs]
    texts = {
        request.directory / "job.sh": job_script(target, request, with_places, places),
        request.directory / "on_node.sh": on_node_script(target),
    }
    if test := pmix_script(target, request, runs, settings.mpirun, places):
        texts[request.directory / "pmix.sh"] = test
    for run in runs:
        place = run_directory(directory, run)
        texts[place / "run.sh"] = run_script(target, run, place, places)
    return texts


def submit(
    directory: Path,
    settings: SchedulerSettings,
    runs: Sequence[Mapping[str, Any]],
    further_files: FurtherFiles,
    before: str = "",
) -> Job:
    """Write the files of a job and submit it. Its name is written first: if the runner dies before
    it knows the ID, the next one finds the job by its name."""
    target = here(settings.scheduler, os.environ)
    number = 1 + max((int(path.name) for path in (directory / "jobs").glob("[0-9]*")), default=0)
    job = Job(
        directory / "jobs" / str(number),
        f"dlperf-{secrets.token_hex(4)}",
        [run["id"] for run in runs],
        in_given_allocation=target is not scheduler(settings.scheduler),
        host=socket.gethostname(),
    )
    request = allocation_request(settings, job.name, job.directory, runs, before)
    for path, text in scripts(directory, settings, request, runs).items():
        write_whole(path, text)
    for name, text in further_files(request, runs).items():
        write_whole(job.directory / name, text)
    job.submitted = time.time()
    job.write()
    try:
        job.id = target.job_id(output(target.submit_argv(job.directory / "job.sh")))
    except UserError as error:
        write_whole(job.stop, "")  # the scheduler may have taken the job in spite of the error
        job.ended = str(error)
        job.write()
        raise
    job.write()
    return job


def scheduler_of(settings: SchedulerSettings, job: Job) -> Scheduler:
    target = scheduler(settings.scheduler)
    return target.steps if job.in_given_allocation and target.steps else target


def unfinished(directory: Path) -> list[Job]:
    """The jobs of earlier runners whose end is not recorded."""
    paths = sorted(directory.glob("jobs/[0-9]*/job.json"), key=lambda p: int(p.parent.name))
    jobs = (Job(path.parent, **read_json(path)) for path in paths)
    return [job for job in jobs if job.ended is None]


def refresh(directory: Path) -> None:
    """Record what the jobs of a runner that has died have written since. Asks no scheduler."""
    plan = {run["id"]: run for run in read_plan(directory)["runs"]}
    for job in unfinished(directory):
        for number, name in enumerate(job.runs, start=1):
            started, ended = written_by_job(job, number)
            if started:
                record_outcome(directory, plan[name], job, started, ended)
