"""What can happen to campaigns as jobs: two runners, requests to stop, lost nodes, requeued jobs,
nodes that others use, a full queue, jobs that share nodes, jobs that Slurm has forgotten, hangs;
the real scripts, with stand-ins for Slurm's commands."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
import standins
from benchmark_jobs import processes_of, until
from command_line import call
from job_campaigns import (
    IS_RECORDED,
    KILL_JOB,
    asked,
    campaign,
    execute,
    hold,
    outcomes,
    program,
    start_job,
    submitted,
    within,
)
from run_agent import process_table

from dlperf_runner.campaign import jobs, lock
from dlperf_runner.campaign.directory import read_records, remaining_plan
from dlperf_runner.campaign.job_files import SchedulerSettings
from dlperf_runner.commands.verify import verify
from dlperf_runner.control import rounds, scheduled
from dlperf_runner.control.rounds import Policy
from dlperf_runner.core.errors import Stopped, UserError
from dlperf_runner.schedulers import slurm


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "RETRY_AFTER_S", 0.1)


def calls(site: Path, name: str) -> list[str]:
    path = site.parent / "bin/state" / name
    return path.read_text().splitlines() if path.exists() else []


def test_only_one_runner_works_on_a_campaign(site: Path) -> None:
    directory = campaign(site, nodes="1")
    other = subprocess.Popen(["sleep", "60"])
    lock.acquire(directory, other.pid)
    refused = call("run", "--resume", directory, status=2)
    assert "another controller works on this campaign" in refused.err
    assert f"process {other.pid}" in refused.err
    assert calls(site, "calls") == []
    other.kill()
    other.wait()
    call("run", "--resume", directory, status=None)
    assert [outcome["status"] for outcome in outcomes(directory)] == ["done"]
    assert lock.read_owner(directory) is None


def test_the_first_finished_run_makes_the_campaign_the_latest_one(site: Path) -> None:
    directory = campaign(site, nodes="1")
    link = directory.with_name("latest")
    link.symlink_to("an-earlier-one")
    program(site.parent / "bin", "exit 3")
    execute(directory)
    assert link.readlink() == Path("an-earlier-one")
    program(site.parent / "bin", "echo '# out'")
    call("run", "--resume", directory, "--retry-failed", status=None)
    assert link.readlink() == Path("campaign")


def test_no_run_starts_after_the_time_to_stop(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = campaign(site, nodes="1", repeats=3)
    program(site.parent / "bin", f"until [[ -e {directory}/jobs/1/stop ]]; do sleep 0.1; done")
    clock, begun = time.monotonic, directory / "jobs/1/started.1.json"
    monkeypatch.setattr(jobs.time, "monotonic", lambda: clock() + 3600 * begun.exists())
    problems, said = execute(directory, Policy(stop_after="30m"))
    monkeypatch.undo()
    assert problems == []
    assert "stopping after the current run" in said
    assert [outcome["status"] for outcome in outcomes(directory)] == ["done", "planned", "planned"]
    assert calls(site, "cancelled") == []


def test_an_interruption_lets_the_run_end_and_cancels_waiting_jobs(site: Path) -> None:
    directory = campaign(site, nodes="1", repeats=2)
    until_told = f"until [[ -e {directory}/jobs/1/stop ]]; do sleep 0.1; done"
    program(site.parent / "bin", f"kill -INT {os.getpid()}; {until_told}")
    with pytest.raises(Stopped):
        execute(directory)
    assert [outcome["status"] for outcome in outcomes(directory)] == ["done", "planned"]
    assert calls(site, "cancelled") == []
    hold(site, "PENDING|N/A|Resources")
    once = f"[[ ! -e $STATE/job2 ]] || {{ kill -INT {os.getpid()}; rm $STATE/asked; }}"
    with pytest.raises(Stopped), asked(site, once):
        execute(directory)
    assert calls(site, "cancelled") == ["2"]


def test_a_policy_that_jobs_cannot_follow_is_refused(site: Path) -> None:
    place = site.parent / "other"
    options = ("--scheduler", "slurm", "--site", site, "--workload", "nccl-allreduce")
    wrong = call("run", *options, "--campaign", place, "--on-node-loss", "shrink", status=2)
    assert "--on-node-loss shrink" in wrong.err
    assert "the scheduler chooses other nodes" in wrong.err
    assert not place.exists()
    directory = campaign(site, nodes="1")
    wrong = call("run", "--resume", directory, "--on-node-loss", "shrink", status=2)
    assert "the scheduler chooses other nodes" in wrong.err


def fails(site: Path, state: str, times: int) -> None:
    """Let the scheduler end the first jobs in this state, while their run is active."""
    folder = site.parent / "bin"
    ends = f"sed -i s/^RUNNING/{state}/ {folder}/state/job$SLURM_JOB_ID; {KILL_JOB}; sleep 9"
    program(folder, f"(( SLURM_JOB_ID > {times} )) || {{ {IS_RECORDED}; {ends}; }}")


def test_a_run_whose_job_lost_a_node_is_repeated(site: Path) -> None:
    directory = campaign(site, nodes="1", repeats=2)
    fails(site, "NODE_FAIL", 1)
    _, said = execute(directory)
    assert any("retry 1 of 2" in line for line in said)
    first, second = outcomes(directory)
    assert (first["status"], first["job"]) == ("done", "2")
    assert (second["status"], second["job"]) == ("done", "2")
    (attempt,) = first["earlier"]
    assert (attempt["status"], attempt["category"]) == ("failed", "node_lost")
    assert "NODE_FAIL" in attempt["message"]
    assert "lost" not in first
    assert verify(directory).differences == []


def test_it_is_repeated_twice_at_most(site: Path) -> None:
    directory = campaign(site, nodes="1")
    fails(site, "NODE_FAIL", 9)
    execute(directory)
    (outcome,) = outcomes(directory)
    assert (outcome["job"], outcome["category"]) == ("3", "node_lost")
    assert [attempt["category"] for attempt in outcome["earlier"]] == ["node_lost"] * 2
    assert len(remaining_plan(directory)["runs"]) == 1


@pytest.mark.parametrize("records_it", [False, True])
def test_a_requeued_job_repeats_only_what_had_not_ended(site: Path, *, records_it: bool) -> None:
    """Slurm may end the program of a run before the job, which then records exit status 143."""
    directory = submitted(site, nodes="1", repeats=2)
    state = site.parent / "bin/state"
    count = f"n=$(ls {state} | grep -c start); touch {state}/start$n; echo $n"
    program(
        site.parent / "bin", f"{count}; [[ $n != 1 ]] || {{ {IS_RECORDED}; {KILL_JOB}; sleep 2; }}"
    )
    assert start_job(directory) == -9
    if records_it:
        end = {"exit_status": 143, "ended": "2026-11-22T22:00:00+00:00"}
        (directory / "jobs/1/ended.2.json").write_text(json.dumps(end))
        call("status", directory, status=None)
        assert [outcome["status"] for outcome in outcomes(directory)] == ["done", "failed"]
    assert start_job(directory) == 0
    assert execute(directory)[0] == []
    first, second = outcomes(directory)
    assert (first["status"], second["status"]) == ("done", "done")
    assert "earlier" not in first
    (attempt,) = second["earlier"]
    assert (attempt["category"], attempt["message"]) == ("requeued", "job 1 was requeued")
    assert attempt["started"] < second["started"]
    logs = [path.read_text() for path in sorted(directory.glob("runs/*/r*/*.log"))]
    assert logs == ["0\n", "2\n"]
    assert verify(directory).differences == []


def test_a_job_does_not_repeat_a_run_for_ever(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "LAG_POLLS", 2)
    directory = submitted(site, nodes="1")
    program(site.parent / "bin", f"{IS_RECORDED}; {KILL_JOB}; sleep 2")
    assert [start_job(directory) for _ in range(4)] == [-9, -9, -9, 0]
    program(site.parent / "bin", "echo '# out'")
    execute(directory)
    (outcome,) = outcomes(directory)
    assert (outcome["status"], outcome["job"]) == ("done", "2")
    *cut, refused = outcome["earlier"]
    assert [attempt["category"] for attempt in cut] == ["requeued"] * 3
    assert refused["message"] == "job 1 was requeued 3 times"


def test_a_job_that_slurm_took_in_spite_of_an_error_starts_no_run(site: Path) -> None:
    sbatch = site.parent / "bin/sbatch"
    sbatch.write_text("#!/bin/sh\necho 'Socket timed out on send/recv operation' >&2; exit 1\n")
    directory = campaign(site, nodes="1")
    with pytest.raises(UserError, match="Socket timed out"):
        execute(directory)
    assert start_job(directory) == 0
    assert [outcome["status"] for outcome in outcomes(directory)] == ["planned"]
    assert not list(directory.glob("jobs/1/started*"))


def test_two_hundred_jobs_cost_one_call_a_poll(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = campaign(site, allocation="run", nodes="1,2", repeats=100)
    state, queue = site.parent / "bin/state", []
    for number, run in enumerate(read_records(directory), start=1):
        job = jobs.Job(directory / f"jobs/{number}", f"dlperf-{number}", [run["id"]], str(number))
        job.write()
        queue.append(f"{number}|PENDING|N/A|Priority|{1000 - number}|main|{job.name}\n")
    (state / "queue").write_text("".join(queue))
    commands = {
        "squeue": 'echo call >> "$STATE/calls"; cat "$STATE/queue"',
        "scancel": 'echo "$@" >> "$STATE/cancelled"; sed -i s/PENDING/CANCELLED/ "$STATE/queue"',
    }
    for name, text in commands.items():
        (site.parent / "bin" / name).write_text(f"#!/bin/bash\nSTATE={state}\n{text}\n")
    polls: list[int] = []

    def pause(*_: object) -> float:
        polls.append(len(calls(site, "calls")))
        if len(polls) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return 0.0

    monkeypatch.setattr(jobs, "_pause", pause)
    said: list[str] = []
    with pytest.raises(Stopped):
        scheduled.run(directory, said.append)
    assert polls == [1, 2, 3]
    assert "job 200: waiting (Priority), position 200 in the queue" in said
    (cancelled,) = calls(site, "cancelled")
    assert len(cancelled.split()) == 200


def test_within_an_allocation_runs_are_its_steps(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    within(monkeypatch, "n1,n2", "2(x2)")
    monkeypatch.setenv("SECRET", "1")
    program(site.parent / "bin", 'echo "# $SRUN_CPUS_PER_TASK ${SECRET-unset}"')
    directory = campaign(site, nodes="1,2", allocation="run")
    assert execute(directory)[0] == []
    assert calls(site, "calls") == []  # of squeue: nothing was submitted
    for outcome in outcomes(directory):
        assert (outcome["status"], outcome["job"]) == ("done", "77")
    assert {p.read_text() for p in directory.glob("runs/*/r*/*.log")} == {"# 2 unset\n"}
    with pytest.raises(UserError, match="no effect within an allocation"):
        directory.rename(directory.with_name("other"))
        campaign(site, nodes="1", options={"account": "a"})


def test_within_an_allocation_a_campaign_can_have_some_of_its_nodes(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    within(monkeypatch, "n1,n2", "2(x2)")
    directory = campaign(site, nodes="1", options={"nodelist": "n2"})
    assert execute(directory)[0] == []
    assert [list(outcome["hosts"]) for outcome in outcomes(directory)] == [["n2"]]


CASE = ("--workload", "nccl-allreduce", "--nodes", "1", "--nodelist", "n2,n9")
SUITE = """\
nodes: [n2, n9]
items:
  - {workload: nccl-allreduce, parts: each node, target: 1 GB/s}
"""


@pytest.mark.parametrize("place", ["allocation", "partition"])
@pytest.mark.parametrize(
    "words",
    [
        ("doctor", "--hunt", "compute", "--nodelist", "n2,n9"),
        ("ab", *CASE, "--a", "X=1", "--b", "X=2"),
        ("bisect", *CASE, "--name", "X", "--versions", "1,2"),
        ("accept", "suite.yml"),
    ],
    ids=lambda words: words[0],
)
def test_a_node_that_cannot_be_had_is_refused_at_once(
    site: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], place: str
) -> None:
    if place == "allocation":
        within(monkeypatch, "n1,n2", "2(x2)")
    monkeypatch.chdir(site.parent)
    (site.parent / "suite.yml").write_text(SUITE)
    text = call(*words, "--scheduler", "slurm", "--site", site, status=2).err
    assert f"the {place} lacks a node (expected some of n1, n2, found n9)" in text
    is_suite = words[0] == "accept"
    assert ("salloc --nodelist=n2,n9" if is_suite else "--nodelist n1,n2") in text
    assert not list(site.parent.glob("results/*"))


def test_within_an_allocation_each_part_of_a_suite_is_measured_on_its_node(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    within(monkeypatch, "n1,n2", "2(x2)")
    item = "workload: nccl-allreduce, model: nccl-all-reduce, parts: each node, target: 1 GB/s"
    suite = site.parent / "suite.yml"
    suite.write_text(f"nodes: [n1, n2]\nlooks: [3]\nitems:\n  - {{{item}}}\n")
    measured = site.parent / "measured"
    words = ("accept", suite, "--scheduler", "slurm", "--site", site, "--measure", measured)
    call(*words, status=2)  # the stand-in prints no bandwidths
    for name in ("n1", "n2"):
        records = read_records(measured / f"1-{name}")
        assert len(records) == 6  # those that do not count are made again
        assert {tuple(record["outcome"]["hosts"]) for record in records} == {(name,)}


def test_within_an_allocation_a_cancelled_run_ends(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    within(monkeypatch, "n1", "2")
    program(site.parent / "bin", f"kill -TERM {os.getpid()}; sleep 600")
    directory = campaign(site, nodes="1", repeats=2)
    with pytest.raises(Stopped):
        execute(directory)
    first, second = outcomes(directory)
    assert (first["status"], second["status"]) == ("failed", "planned")
    assert len(remaining_plan(directory)["runs"]) == 2


# ---- jobs that could disturb each other


def dependencies(directory: Path) -> list[str]:
    """What each job waits for, in the order of the jobs."""
    scripts = [directory / "jobs" / str(n) / "job.sh" for n in (1, 2, 3)]
    lines = [[x for x in s.read_text().splitlines() if "--dependency" in x] for s in scripts]
    return [each[0].rpartition("=")[2] if each else "" for each in lines]


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, ["", "afterany:1", "afterany:2"]), ({"exclusive": "True"}, ["", "", ""])],
)
def test_jobs_that_may_share_a_node_follow_each_other(
    site: Path, options: dict[str, str], expected: list[str]
) -> None:
    directory = campaign(site, allocation="run", options=options, nodes="1", repeats=3)
    assert execute(directory)[0] == []
    assert dependencies(directory) == expected


def test_after_resuming_a_job_waits_for_those_that_are_still_active(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm knows nothing of the end of a job that it has forgotten."""
    monkeypatch.setattr(jobs, "LAG_POLLS", 1)
    directory = campaign(site, allocation="run", nodes="1", repeats=3)
    first, second, _ = (record["id"] for record in scheduled.campaigns.read_records(directory))
    forgotten = jobs.Job(directory / "jobs/1", "dlperf-1", [first], "7")
    forgotten.write()
    hold(site, "RUNNING|N/A|None")
    (site.parent / "bin/state/job1").write_text("RUNNING|N/A|None|1|main|dlperf-2")
    active = jobs.Job(directory / "jobs/2", "dlperf-2", [second], "1")
    active.write()
    ends = f"sed -i s/^RUNNING/COMPLETED/ {site.parent}/bin/state/job1"
    later = subprocess.Popen(["sh", "-c", f"sleep 1; {ends}"])
    (site.parent / "bin/state/hold").unlink()
    execute(directory)
    later.wait()
    assert "--dependency=afterany:1\n" in (directory / "jobs/3/job.sh").read_text()
    active.directory.rename(directory / "other")
    third = json.loads((directory / "jobs/3/job.json").read_text())
    assert third["host"]


def test_the_time_behind_another_job_or_before_a_requeue_is_no_time_in_the_queue(
    tmp_path: Path,
) -> None:
    settings = SchedulerSettings("slurm", {}, "", "", "", False, "run", max_wait_s=60)
    behind = jobs.JobState("2", "name", "waiting", "Dependency", is_next=True)
    queued = jobs.JobState("2", "name", "waiting", "Resources")

    def cancelled(*states: jobs.JobState, has_begun: bool = False, more_s: int = 0) -> list[str]:
        job = jobs.Job(tmp_path, "name", ["r1"], "2", submitted=time.time() - 3600)
        whys = [jobs._why_cancel(job, state, settings, has_begun=has_begun) for state in states]
        job.waits_since -= more_s
        return [*whys, jobs._why_cancel(job, queued, settings, has_begun=has_begun)]

    too_long = "it waited longer than --max-wait (Resources)"
    assert cancelled() == [too_long]
    assert cancelled(behind) == ["", ""]
    assert cancelled(behind, queued, more_s=61) == ["", "", too_long]
    assert cancelled(has_begun=True) == [""]


def test_a_step_of_an_allocation_is_followed_on_its_own_machine_only(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job is known by the number of a process, which is another one elsewhere."""
    within(monkeypatch, "n1", "2")
    directory = campaign(site, nodes="1")
    execute(directory)
    path = directory / "jobs/1/job.json"
    job = json.loads(path.read_text())
    path.write_text(json.dumps(job | {"ended": None, "host": "login7"}))
    with pytest.raises(UserError, match=r"process of another machine \(expected .* on login7"):
        execute(directory)
    path.write_text(json.dumps(job | {"ended": None}))
    assert execute(directory)[0] == []


def test_one_program_on_each_node_watches_all_runs_of_a_job(site: Path) -> None:
    """A step of srun for each run would be most of what the harness adds to a run."""
    srun = site.parent / "bin/srun"
    srun.write_text(srun.read_text().replace("\nfor ", '\necho "$*" >> "$STATE/steps"\nfor ', 1))
    directory = campaign(site, nodes="1,2", repeats=2)
    assert execute(directory)[0] == []
    steps = (site.parent / "bin/state/steps").read_text().splitlines()
    assert sum("node_agent" in step for step in steps) == 1  # of n2; n1 needs none
    for record in scheduled.campaigns.read_records(directory):
        place = scheduled.campaigns.run_directory(directory, record)
        names = sorted(path.name for path in place.glob("telemetry-*.csv"))
        assert names == [f"telemetry-n{number}.csv" for number in range(1, record["nodes"] + 1)]


# ---- jobs that Slurm has forgotten


def test_a_job_that_slurm_has_forgotten_tells_by_its_files(site: Path) -> None:
    """Slurm knows a job for MinJobAge only. The run began before midnight, in UTC."""
    directory = submitted(site, nodes="1")
    start_job(directory)
    (site.parent / "bin/state/job1").unlink()
    for key, clock in (("started", "22T23:59:59.500000"), ("ended", "23T00:00:01.750000")):
        path = directory / f"jobs/1/{key}.1.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: f"2026-11-{clock}+00:00"}))
    assert execute(directory)[0] == []
    (outcome,) = outcomes(directory)
    assert (outcome["status"], outcome["elapsed_s"]) == ("done", 2.25)


def test_a_run_that_failed_before_slurm_forgot_its_job_keeps_its_reason(site: Path) -> None:
    directory = submitted(site, nodes="1")
    program(site.parent / "bin", "echo 'ValueError: 5'; exit 1")
    start_job(directory)
    (site.parent / "bin/state/job1").unlink()
    execute(directory)
    (outcome,) = outcomes(directory)
    assert (outcome["status"], "earlier" in outcome) == ("failed", False)  # it is not repeated
    assert "ValueError: 5" in outcome["message"]


def sacct(site: Path, script: str) -> Path:
    """A stand-in for sacct that says what `script` prints; the file with its calls."""
    calls = site.parent / "bin/state/sacct"
    standins.program(site.parent / "bin", "sacct", f'echo "$@" >> {calls}\n{script}')
    return calls


def cut_off(site: Path) -> Path:
    """A campaign whose job was killed in its first run, and which Slurm has forgotten."""
    directory = submitted(site, nodes="1", repeats=2)
    program(site.parent / "bin", f"{IS_RECORDED}; {KILL_JOB}; sleep 2")
    assert start_job(directory) == -9
    (site.parent / "bin/state/job1").unlink()
    program(site.parent / "bin", "echo '# out'")
    return directory


# As sacct of Slurm 22.05.8 prints it.
TOLD = "1|{}|2026-11-23T07:10:22|None|4294901759|main|dlperf-1f7a0c55"


@pytest.mark.parametrize(
    ("state", "category"),
    [
        ("TIMEOUT", "time_limit"),
        ("CANCELLED by 1000", "cancelled"),
        ("PREEMPTED", "preempted"),
        ("RUNNING", "unknown"),  # slurmdbd has not heard of its end
    ],
)
def test_sacct_tells_how_a_forgotten_job_ended(site: Path, state: str, category: str) -> None:
    directory = cut_off(site)
    calls = sacct(site, f"echo '{TOLD.format(state)}'")
    execute(directory)
    first, second = outcomes(directory)
    assert (first["status"], second["status"]) == ("done", "done")
    assert [attempt["category"] for attempt in first["earlier"]] == [category]
    assert "earlier" not in second
    assert calls.read_text().splitlines() == [" ".join(slurm.past_argv(["1"])[1:])]


@pytest.mark.parametrize("script", ["", "echo 'Slurm accounting storage is disabled' >&2; exit 1"])
def test_a_site_without_accounting_loses_nothing(site: Path, script: str) -> None:
    directory = cut_off(site)
    if script:
        sacct(site, script)
    execute(directory)
    first, second = outcomes(directory)
    assert (first["status"], second["status"]) == ("done", "done")
    (attempt,) = first["earlier"]
    assert attempt["category"] == "unknown"
    assert "no longer knows" in attempt["message"]


def test_a_job_that_squeue_names_costs_no_sacct(site: Path) -> None:
    calls = sacct(site, "exit 1")
    directory = submitted(site, nodes="1")
    assert start_job(directory) == 0
    execute(directory)
    assert [outcome["status"] for outcome in outcomes(directory)] == ["done"]
    assert not calls.exists()


# ---- hangs: what one is, test_hangs.py and test_hangs_at_start.py show of the same supervisor


STEPS = "for n in $(seq 12); do echo step $n; sleep 0.6; done"


def hanging(site: Path, script: str, **limits: int) -> Path:
    """A campaign whose first run hangs, by this script, and its second one does not."""
    flag = site.parent / "was-first"
    program(site.parent / "bin", f"[[ -e {flag} ]] || {{ touch {flag}; {script}; }}")
    directory = campaign(site, nodes="2", repeats=2)
    for path in (directory / "plan.json", *directory.glob("runs/*/r*/run.json")):
        text = path.read_text()
        for name, value in {"hung_after_s": 3, "hung_after_lines": 2, **limits}.items():
            text = re.sub(rf'("{name}": )\d+', rf"\g<1>{value}", text)
        path.write_text(text)
    return directory


def states_of(directory: Path, marker: str) -> list[str]:
    """What each node kept of the first run's process with the marker."""
    (path,) = directory.glob("runs/*/r1/hang-n1.txt")
    parts = [path.read_text().partition(f"\n==== {node}\n")[2] for node in ("n1", "n2")]
    blocks = [part.partition("== processes")[0].split("== process ") for part in parts]
    return [next(block for block in each if f" {marker} " in block) for each in blocks]


def test_a_stopped_program_is_noticed_kept_and_ended(site: Path) -> None:
    marker = f"dlperf-stopped-{os.getpid()}"
    directory = hanging(site, f"{STEPS}; bash -c 'kill -STOP $$; sleep 60' {marker}")
    assert execute(directory)[0] == []
    first, second = outcomes(directory)
    assert (first["status"], first["category"]) == ("failed", "hung")
    assert first["message"].startswith("n1: stopped because it hung: no new line for ")
    assert first["exit_status"] in (128 + signal.SIGTERM, 128 + signal.SIGKILL)
    assert "hang-*.txt" in first["advice"]
    assert second["status"] == "done"
    assert remaining_plan(directory)["runs"] == []
    assert not processes_of(marker)
    (state,) = directory.glob("runs/*/r1/hang-*.txt")
    assert state.read_text().startswith("== end of the log\nstep 1\n")
    assert all("T (stopped)" in state for state in states_of(directory, marker))
    (edited,) = verify(directory).differences  # above
    assert edited.startswith("plan.json: ")


@pytest.mark.parametrize(
    ("script", "sign"),
    [
        # While another rank spins, as NCCL does.
        ("bash -c 'kill -STOP $$' {0} & bash -c 'while :; do :; done' {0}2", "was stopped for "),
        ("bash -c 'sleep 120; :' {0}", "and none of its processes did anything;"),
    ],
    ids=["stopped", "idle"],
)
def test_a_run_that_hangs_before_its_first_step(site: Path, script: str, sign: str) -> None:
    marker = f"dlperf-start-{os.getpid()}"
    # The limit is no sign that a busy machine could reach first.
    directory = hanging(site, f"echo init; {script.format(marker)}", first_step_s=100)
    assert execute(directory)[0] == []
    first, second = outcomes(directory)
    assert (first["status"], first["category"]) == ("failed", "hung before its first steps")
    assert first["message"].startswith("n1: stopped because it hung before its first steps: no new")
    assert sign in first["message"]
    assert "first_step_s" in first["advice"]
    assert second["status"] == "done"
    assert not processes_of(marker)
    states = states_of(directory, marker)
    assert {"T (stopped)" in state for state in states} == {"stopped" in sign}


def test_what_slurm_starts_for_a_run_is_seen() -> None:
    """As pyxis imports an image: without the run's environment, below the daemon of a step."""

    def helpers() -> set[int]:
        found: set[int] = process_table.helpers(["DLPERF_JOB=4711"])
        return found

    started = {}
    for step in ("4711.3", "471.3", "47110.3"):
        daemon = f"echo $$; exec -a 'slurmstepd: [{step}]' bash -c 'sleep 60; :'"
        # Not a child of this program, whose processes are not among them.
        argv = ["setsid", "--fork", "bash", "-c", daemon]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            started[step] = int(process.stdout.readline())
            process.stdout.close()
    try:
        assert until(lambda: len(helpers()) == 2)  # with its child
        assert started["4711.3"] in helpers()
        assert not helpers() & {started["471.3"], started["47110.3"]}
    finally:
        for pid in started.values():
            os.killpg(pid, signal.SIGKILL)
