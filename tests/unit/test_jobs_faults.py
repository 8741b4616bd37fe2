"""What can happen to campaigns as jobs: two runners, requests to stop, lost nodes, requeued jobs,
nodes that others use, a full queue; the real scripts, with stand-ins for Slurm's commands."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
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

from dlperf_runner.campaign import jobs, lock
from dlperf_runner.campaign.directory import read_records, remaining_plan
from dlperf_runner.commands.verify import verify
from dlperf_runner.control import rounds, scheduled
from dlperf_runner.control.rounds import Policy
from dlperf_runner.core.errors import Stopped, UserError


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
