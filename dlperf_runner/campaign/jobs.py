"""Runs a campaign as jobs of a scheduler, from a login node, as an ordinary user.

A job needs nobody to watch it. If the runner ends, the next one continues with the job's ID. See
job_files.py for the files.
"""

from __future__ import annotations

import shlex
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

from ..core.errors import Stopped, UserError
from ..core.files import remove, write_whole
from ..core.lists import counted
from ..schedulers import JobState, Scheduler
from .directory import UNREACHABLE, read_plan, remaining_plan
from .execute import handling_signals
from .job_files import (
    OUT_OF_MEMORY,
    FurtherFiles,
    Job,
    SchedulerSettings,
    allocations,
    output,
    read_settings,
    record_outcome,
    scheduler_of,
    submit,
    unfinished,
    written_by_job,
)
from .manifest import seal

POLL_S = 5.0
# A shared file system may show what a job wrote only after a while.
LAG_POLLS = 4
CANCEL_S = 90
FINISH, NOW = "finish", "now"
KILLED = 128 + signal.SIGKILL

Say = Callable[[str], None]


def execute(
    directory: Path, further_files: FurtherFiles, say: Say, stop_at: float | None = None
) -> list[str]:
    """Run the remaining runs of a campaign as jobs. Their outcomes are in their run.json. Returns
    the errors that occurred outside the runs.

    Jobs of an earlier runner are followed, not repeated. INT, and the time `stop_at` of
    time.monotonic, end each job after its current run. A second INT, or TERM, cancels the jobs; HUP
    leaves them. Signals raise Stopped.
    """
    settings = read_settings(directory)
    assert settings is not None  # noqa: S101  the caller has recorded it
    stop = _Stop()
    with handling_signals(stop):
        jobs = unfinished(directory)
        _refuse_other_machine(jobs)
        taken = {run for job in jobs for run in job.runs}
        runs = [run for run in remaining_plan(directory)["runs"] if run["id"] not in taken]
        for job in jobs:
            say(f"job {job.id or job.name} of an earlier start: {counted(len(job.runs), 'run')}")
            remove(job.stop)
        try:
            before = _last_active(settings, jobs, say) if runs else ""
            for own_runs in allocations(runs, settings.allocation):
                jobs.append(submit(directory, settings, own_runs, further_files, before))
                before = jobs[-1].id
                say(f"job {jobs[-1].id} submitted: {counted(len(own_runs), 'run')}")
        except UserError:
            _cancel(settings, [job for job in jobs if job.runs[0] not in taken])
            raise
        return _follow(directory, settings, jobs, say, stop, stop_at)


def _refuse_other_machine(jobs: Sequence[Job]) -> None:
    """Raise UserError if a job's script is a process of another machine: it cannot be seen here."""
    here = socket.gethostname()
    for job in jobs:
        if job.in_given_allocation and job.host not in ("", here):
            raise UserError(
                "a job of this campaign is a process of another machine",
                where=str(job.directory),
                expected=f"this command on {job.host}",
                found=here,
                hint="if that machine or its allocation has ended, remove this directory",
            )


def _last_active(settings: SchedulerSettings, jobs: Sequence[Job], say: Say) -> str:
    """The ID of the last one of these jobs that has not ended; empty if there is none."""
    states = _states(settings, jobs, say) or {} if jobs else {}
    active = [job.id for job in jobs if job.id in states and states[job.id].phase != "ended"]
    return active[-1] if active else ""


class _Stop:
    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.event = threading.Event()

    def __call__(self, number: int, _: object) -> None:
        self.numbers.append(number)
        self.event.set()

    def level(self, stop_at: float | None) -> str:
        """The level of a requested stop: after the current runs, or now; empty without one."""
        if signal.SIGTERM in self.numbers or self.numbers.count(signal.SIGINT) > 1:
            return NOW
        is_late = stop_at is not None and time.monotonic() >= stop_at
        return FINISH if self.numbers or is_late else ""


def _follow(
    directory: Path,
    settings: SchedulerSettings,
    jobs: Sequence[Job],
    say: Say,
    stop: _Stop,
    stop_at: float | None,
) -> list[str]:
    problems: list[str] = []
    plan = {run["id"]: run for run in read_plan(directory)["runs"]}
    again = f"dlperf run --resume {shlex.quote(str(directory))}"
    level = ""
    cancelled_at = 0.0
    while active := [job for job in jobs if job.ended is None]:
        stop.event.clear()
        if signal.SIGHUP in stop.numbers:
            raise Stopped(signal.SIGHUP, f"its jobs continue; follow them with: {again}")
        if level != stop.level(stop_at):
            level = stop.level(stop_at)
            say(f"stopping after the current run{'s' if len(active) > 1 else ''}")
            for job in active:
                write_whole(job.stop, "")
            if level == NOW:
                cancelled_at = time.monotonic()
                _cancel(settings, active)
        states = _states(settings, active, say)
        for job in active if states is not None else ():
            problems += _advance(directory, plan, job, (states or {}).get(job.id), settings, say)
        _cancel(settings, [job for job in active if job.why and job.ended is None])
        if cancelled_at and time.monotonic() - cancelled_at > CANCEL_S:
            break
        if any(job.ended is None for job in jobs):
            time.sleep(0.2) if cancelled_at else stop.event.wait(_pause(stop_at, level))
    if stop.numbers:
        raise Stopped(stop.numbers[-1], f"resume with: {again}")
    return problems


def _pause(stop_at: float | None, level: str) -> float:
    left = POLL_S if stop_at is None or level else stop_at - time.monotonic()
    return min(POLL_S, max(0.0, left))


def _states(
    settings: SchedulerSettings, jobs: Sequence[Job], say: Say
) -> dict[str, JobState] | None:
    """The state of each job that the scheduler knows, by ID, from one call. None if the scheduler
    does not answer: it may be restarting, and jobs continue meanwhile."""
    states: list[JobState] = []
    try:
        for target, alike in _by_scheduler(settings, jobs):
            now = target.states(output(target.states_argv()))
            states += [*now, *_past(target, alike, now)]
    except UserError as error:
        say(f"waiting for the scheduler: {error}")
        return None
    names = {state.name: state.job for state in states}
    for job in jobs:
        if not job.id and job.name in names:
            job.id = names[job.name]
            job.write()
    return {state.job: state for state in states}


def _past(target: Scheduler, jobs: Sequence[Job], now: Sequence[JobState]) -> list[JobState]:
    """The end states of jobs that the scheduler forgot, if the site keeps them."""
    present = {state.job for state in now}
    missing = [job.id for job in jobs if job.id and job.id not in present]
    if not missing or target.past_argv is None:
        return []
    with suppress(UserError):
        states = target.states(output(target.past_argv(missing)))
        # Accounting may lag, and then says that an ended job is running.
        return [state for state in states if state.phase == "ended"]
    return []


def _by_scheduler(
    settings: SchedulerSettings, jobs: Sequence[Job]
) -> Iterator[tuple[Scheduler, list[Job]]]:
    """The jobs that were submitted, and those whose scripts are processes here."""
    ordered = sorted(jobs, key=lambda job: job.in_given_allocation)
    for _, members in groupby(ordered, key=lambda job: job.in_given_allocation):
        alike = list(members)
        yield scheduler_of(settings, alike[0]), alike


def _cancel(settings: SchedulerSettings, jobs: Sequence[Job]) -> None:
    for target, alike in _by_scheduler(settings, [job for job in jobs if job.id]):
        with suppress(UserError):  # a job that has ended cannot be cancelled
            output(target.cancel_argv([job.id for job in alike]))


def _advance(
    directory: Path,
    plan: Mapping[str, Mapping[str, Any]],
    job: Job,
    state: JobState | None,
    settings: SchedulerSettings,
    say: Say,
) -> list[str]:
    """Record what is new of a job and its runs. Returns problems of the job itself."""
    if state is None:
        state = JobState(
            job.id, job.name, "ended", "the scheduler no longer knows the job", "unknown"
        )
    runs = [(number, plan[name]) for number, name in enumerate(job.runs, start=1)]
    documents = [(run, *written_by_job(job, number)) for number, run in runs]
    have_ended = all(ended for _, _, ended in documents)
    # A job that waits with all its runs ended was requeued, and a signal has ended the last one.
    is_over = state.phase == "ended" or (have_ended and state.phase == "running")
    # Files may come later than the state; and if the last run failed, the state says why.
    if state.phase == "ended":
        lags = any(started and not ended for _, started, ended in documents) and not state.category
    else:
        last_end = documents[-1][2] or {}
        lags = have_ended and bool(last_end.get("exit_status"))
    if lags and job.lag < LAG_POLLS:
        job.lag += 1
        is_over = False
    lost = job.why or f"job {job.id}: {state.reason}"
    last = max((n for n, (_, started, _) in enumerate(documents) if started), default=None)
    for place, (run, started, ended) in enumerate(documents):
        # Slurm ends the program of a run before the script, which may then record its exit status.
        status = ended["exit_status"] if ended else None
        # A run before the last one may have made its job run out of memory.
        is_killed = state.category == OUT_OF_MEMORY and status == KILLED
        is_hit = status if place == last and _may_end_run(state, status) else is_killed
        if started and is_over and (is_hit or not ended):
            record_outcome(directory, run, job, started, ended, lost, state.category)
        elif started:
            record_outcome(directory, run, job, started, ended)
    if not is_over:
        has_begun = last is not None
        _tell(job, state, say)
        job.why = job.why or _why_cancel(job, state, settings, has_begun=has_begun)
        return []
    job.ended = state.reason if state.phase == "ended" else "all runs have ended"
    job.write()
    files = [path for path in sorted(job.directory.iterdir()) if not path.name.startswith(".")]
    seal(directory, f"jobs/{job.directory.name}", files)
    say(f"job {job.id}: {job.why or job.ended}")
    missing = sum(not started for _, started, _ in documents)
    if not missing or (job.stop.exists() and not state.category):
        return []
    mark = UNREACHABLE if state.category == "node_lost" else " "
    return [
        f"job {job.id}{mark}ended before {counted(missing, 'run')} began: {job.why or job.ended}"
    ]


def _may_end_run(state: JobState, exit_status: int | None) -> bool:
    """True if the end of the job may have ended its last run, too. Of a job that the scheduler no
    longer knows, only a signal tells that."""
    return bool(state.category) and (
        state.category != "unknown" or exit_status in (128 + signal.SIGTERM, KILLED)
    )


def _tell(job: Job, state: JobState, say: Say) -> None:
    text = f"job {job.id}: {state.phase}"
    if state.phase == "waiting" and state.reason:
        text += f" ({state.reason})"
    if state.position:
        text += f", position {state.position} in the queue"
    if state.expected_start:
        text += f", expected to start at {state.expected_start}"
    if text != job.last_message:
        job.last_message = text
        say(text)


def _why_cancel(job: Job, state: JobState, settings: SchedulerSettings, *, has_begun: bool) -> str:
    if state.phase != "waiting":
        job.waits_since = 0.0
        return ""
    if state.is_next:
        job.waits_since = time.time()
        return "stopped while it waited" if job.stop.exists() else ""
    if state.is_hopeless:
        return f"it can never start: {state.reason}"
    if job.stop.exists():
        return "stopped while it waited"
    # A job that was requeued, or that waited for the one before it, waits from then on.
    job.waits_since = job.waits_since or (time.time() if has_begun else job.submitted)
    waited = time.time() - job.waits_since
    if settings.max_wait_s and waited > settings.max_wait_s:
        return f"it waited longer than --max-wait ({state.reason or 'no reason given'})"
    return ""
