"""Runs a campaign as jobs of a scheduler, from a login node, as an ordinary user.

    <campaign>/scheduler.json          the scheduler, its options, and the site's paths
    <campaign>/jobs/<n>/job.json       ID and name of job n, its runs, and how it ended
    <campaign>/jobs/<n>/job.sh         its script; node.sh is what each node executes first
    <campaign>/jobs/<n>/started.<i>.json, ended.<i>.json      what it says of its run i
    <campaign>/runs/<case>/r<k>/run.sh the script of a run

A job needs nobody to watch it. If the runner ends, the next one continues with the job's ID.
"""

from __future__ import annotations

import secrets
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..core.errors import Stopped, UserError
from ..core.files import read_json, write_json, write_whole
from ..core.lists import counted, grouped
from ..schedulers import Allocation, JobState, Scheduler, scheduler
from ..schedulers.job import PATH, Places, job_script, run_script
from .directory import read_plan, remaining_plan, run_directory
from .job_record import Job, record_outcome, said
from .manifest import seal

FILE = "scheduler.json"
ALLOCATIONS = ("campaign", "case", "run")
POLL_S = 5.0
# A shared file system may show what a job wrote only after a while.
LAG_POLLS = 4
CANCEL_S = 90

Say = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """What scheduler.json says. `options`: those of the scheduler. `environments`: where the nodes
    have them. `mirror`: of repositories. `has_gpus`: whether the scheduler counts the nodes' GPUs.
    `max_wait_s`: how long a job may wait; 0 for no limit. `prologue`: shell lines of its jobs."""

    scheduler: str
    options: dict[str, str]
    environments: str
    mirror: str
    mpirun: str
    has_gpus: bool
    allocation: str
    max_wait_s: int
    prologue: Sequence[str] = ()


def record(directory: Path, settings: Settings) -> None:
    """Record once, for resuming, how the campaign is run."""
    path = write_json(directory / FILE, asdict(settings))
    seal(directory, FILE, [path])


def recorded(directory: Path) -> Settings | None:
    """How a campaign is run; None if by bench.yml."""
    path = directory / FILE
    return Settings(**read_json(path)) if path.is_file() else None


def output(argv: Sequence[str]) -> str:
    """What a command of the scheduler prints. Raises UserError if it is missing or fails."""
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


def asked(
    settings: Settings, name: str, directory: Path, runs: Sequence[Mapping[str, Any]]
) -> Allocation:
    """What a job for these runs asks for."""
    submit = shutil.which(scheduler(settings.scheduler).submit_argv(directory)[0])
    own = str(Path(submit).parent) if submit else ""
    return Allocation(
        name=name,
        directory=directory,
        nodes=max(run["nodes"] for run in runs),
        processes_per_node=max(run["gpus_per_node"] for run in runs),
        gpus_per_node=max(run["gpus_per_node"] for run in runs) if settings.has_gpus else 0,
        options=settings.options,
        prologue=settings.prologue,
        path=PATH if own in ("", *PATH.split(":")) else f"{PATH}:{own}",
    )


def places_of(directory: Path, settings: Settings) -> Places:
    """Where the nodes have the sources (hidden: no file of the results) and the environments."""
    return Places(str(directory / ".sources"), settings.environments)


def scripts(
    directory: Path, settings: Settings, request: Allocation, runs: Sequence[Mapping[str, Any]]
) -> dict[Path, str]:
    """The scripts of a job and of its runs, by path."""
    own, places = scheduler(settings.scheduler), places_of(directory, settings)
    found = {
        request.directory / "job.sh": job_script(
            own, request, [(run, run_directory(directory, run)) for run in runs]
        )
    }
    for run in runs:
        place = run_directory(directory, run)
        found[place / "run.sh"] = run_script(own, run, place, places)
    return found


def _submit(
    directory: Path,
    settings: Settings,
    runs: Sequence[Mapping[str, Any]],
    beside: Callable[[Allocation, Sequence[Mapping[str, Any]]], Mapping[str, str]],
) -> Job:
    """Write the files of a job and submit it. Its name is written first: if the runner dies before
    it knows the ID, the next one finds the job by its name."""
    own = scheduler(settings.scheduler)
    number = 1 + max((int(path.name) for path in (directory / "jobs").glob("[0-9]*")), default=0)
    job = Job(
        directory / "jobs" / str(number), f"dlperf-{secrets.token_hex(4)}", [r["id"] for r in runs]
    )
    request = asked(settings, job.name, job.directory, runs)
    for path, text in scripts(directory, settings, request, runs).items():
        write_whole(path, text)
    for name, text in beside(request, runs).items():
        write_whole(job.directory / name, text)
    job.submitted = time.time()
    job.write()
    try:
        job.id = own.job_id(output(own.submit_argv(job.directory / "job.sh")))
    except UserError as error:
        job.ended = str(error)
        job.write()
        raise
    job.write()
    return job


def unfinished(directory: Path) -> list[Job]:
    """The jobs of earlier runners whose end is not recorded."""
    found = []
    for path in sorted(directory.glob("jobs/[0-9]*/job.json"), key=lambda p: int(p.parent.name)):
        job = Job(path.parent, **read_json(path))
        if job.ended is None:
            found.append(job)
    return found


def refresh(directory: Path) -> None:
    """Record what the jobs of a runner that has died have written since. Asks no scheduler."""
    plan = {run["id"]: run for run in read_plan(directory)["runs"]}
    for job in unfinished(directory):
        for number, name in enumerate(job.runs, start=1):
            started, ended = said(job, number)
            if started:
                record_outcome(directory, plan[name], job, started, ended)


# ---- following them


def execute(
    directory: Path,
    beside: Callable[[Allocation, Sequence[Mapping[str, Any]]], Mapping[str, str]],
    say: Say,
) -> list[str]:
    """Run the remaining runs of a campaign as jobs. Their outcomes are in their run.json.

    Returns the errors that occurred outside the runs. `beside` gives further files of a job, by
    name. Jobs of an earlier runner are followed, not repeated. INT and TERM cancel the jobs; HUP
    leaves them. All raise Stopped.
    """
    settings = recorded(directory)
    assert settings is not None  # noqa: S101  the caller has recorded it
    own = scheduler(settings.scheduler)
    with _signals() as stop:
        jobs = unfinished(directory)
        taken = {run for job in jobs for run in job.runs}
        runs = [run for run in remaining_plan(directory)["runs"] if run["id"] not in taken]
        for job in jobs:
            say(f"job {job.id or job.name} of an earlier start: {counted(len(job.runs), 'run')}")
        try:
            for own_runs in allocations(runs, settings.allocation):
                jobs.append(_submit(directory, settings, own_runs, beside))
                say(f"job {jobs[-1].id} submitted: {counted(len(own_runs), 'run')}")
        except UserError:
            _cancel(own, [job for job in jobs if job.runs[0] not in taken])
            raise
        return _follow(directory, own, settings, jobs, say, stop)


class _Stop:
    """The signal that was received, if any."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.event = threading.Event()

    def __call__(self, number: int, _: object) -> None:
        self.number = number
        self.event.set()


@contextmanager
def _signals() -> Iterator[_Stop]:
    stop = _Stop()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {n: signal.signal(n, stop) for n in numbers if signal.getsignal(n) != signal.SIG_IGN}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _follow(
    directory: Path,
    own: Scheduler,
    settings: Settings,
    jobs: Sequence[Job],
    say: Say,
    stop: _Stop,
) -> list[str]:
    problems: list[str] = []
    plan = {run["id"]: run for run in read_plan(directory)["runs"]}
    again = f"python -m dlperf_runner run --resume {shlex.quote(str(directory))}"
    cancelled_at = 0.0
    while active := [job for job in jobs if job.ended is None]:
        if stop.number is not None and not cancelled_at:
            if stop.number == signal.SIGHUP:
                raise Stopped(stop.number, f"its jobs continue; follow them with: {again}")
            cancelled_at = time.monotonic()
            _cancel(own, active)
        states = _states(own, active, say)
        for job in active if states is not None else ():
            state = (states or {}).get(job.id)
            problems += _advance(directory, plan, job, state, settings, say)
            if job.why and job.ended is None:
                _cancel(own, [job])
        if cancelled_at and time.monotonic() - cancelled_at > CANCEL_S:
            break
        if any(job.ended is None for job in jobs):
            time.sleep(0.2) if cancelled_at else stop.event.wait(POLL_S)
    if stop.number is not None:
        raise Stopped(stop.number, f"resume with: {again}")
    return problems


def _states(own: Scheduler, jobs: Sequence[Job], say: Say) -> dict[str, JobState] | None:
    """The state of each job that the scheduler knows, by ID, from one call. None if the scheduler
    does not answer: it may be restarting, and jobs continue meanwhile."""
    try:
        found = own.states(output(own.states_argv()))
    except UserError as error:
        say(f"waiting for the scheduler: {error}")
        return None
    names = {state.name: state.job for state in found}
    for job in jobs:
        if not job.id and job.name in names:
            job.id = names[job.name]
            job.write()
    return {state.job: state for state in found}


def _cancel(own: Scheduler, jobs: Sequence[Job]) -> None:
    if ids := [job.id for job in jobs if job.id]:
        with suppress(UserError):  # a job that has ended cannot be cancelled
            output(own.cancel_argv(ids))


def _advance(
    directory: Path,
    plan: Mapping[str, Mapping[str, Any]],
    job: Job,
    state: JobState | None,
    settings: Settings,
    say: Say,
) -> list[str]:
    """Record what is new of a job and its runs. Returns problems of the job itself."""
    if state is None:
        state = JobState(
            job.id, job.name, "ended", "the scheduler no longer knows the job", "unknown"
        )
    runs = [(number, plan[name]) for number, name in enumerate(job.runs, start=1)]
    known = [(run, *said(job, number)) for number, run in runs]
    have_ended = all(ended for _, _, ended in known)
    is_over = state.phase == "ended" or have_ended
    # Files may come later than the state; and if the last run failed, the state says why.
    if state.phase == "ended":
        lags = any(started and not ended for _, started, ended in known) and not state.category
    else:
        last_end = known[-1][2] or {}
        lags = have_ended and bool(last_end.get("exit_status"))
    if lags and job.lag < LAG_POLLS:
        job.lag += 1
        is_over = False
    lost = job.why or f"job {job.id}: {state.reason}"
    last = max((n for n, (_, started, _) in enumerate(known) if started), default=None)
    for place, (run, started, ended) in enumerate(known):
        # Slurm ends the program of a run before the script, which may then record its exit status.
        is_hit = place == last and state.category and ended and ended["exit_status"]
        if started and is_over and (is_hit or not ended):
            record_outcome(directory, run, job, started, ended, lost, state.category)
        elif started:
            record_outcome(directory, run, job, started, ended)
    if not is_over:
        _tell(job, state, say)
        job.why = job.why or _why_cancel(job, state, settings)
        return []
    job.ended = state.reason if state.phase == "ended" else "all runs have ended"
    job.write()
    files = [path for path in sorted(job.directory.iterdir()) if not path.name.startswith(".")]
    seal(directory, f"jobs/{job.directory.name}", files)
    say(f"job {job.id}: {job.why or job.ended}")
    missing = sum(not started for _, started, _ in known)
    if not missing:
        return []
    return [f"job {job.id} ended before {counted(missing, 'run')} began: {job.why or job.ended}"]


def _tell(job: Job, state: JobState, say: Say) -> None:
    """Say when a job's state has changed."""
    text = f"job {job.id}: {state.phase}"
    if state.phase == "waiting" and state.reason:
        text += f" ({state.reason})"
    if state.expected_start:
        text += f", expected to start at {state.expected_start}"
    if text != job.told:
        job.told = text
        say(text)


def _why_cancel(job: Job, state: JobState, settings: Settings) -> str:
    if state.phase != "waiting":
        return ""
    if state.is_hopeless:
        return f"it can never start: {state.reason}"
    waited = time.time() - job.submitted
    if settings.max_wait_s and waited > settings.max_wait_s:
        return f"it waited longer than --max-wait ({state.reason or 'no reason given'})"
    return ""
