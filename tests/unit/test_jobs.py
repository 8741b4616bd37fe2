"""Campaigns as jobs: the real scripts, run on this machine by stand-ins for Slurm's commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import call
from plan_examples import choose
from slurm_standin import slurm

from dlperf_runner.campaign import jobs
from dlperf_runner.campaign.directory import read_records, remaining_plan
from dlperf_runner.commands import scheduled
from dlperf_runner.commands.verify import verify
from dlperf_runner.core.errors import Stopped, UserError

LOG = """\
#       size         count      type   redop    root     time   algbw   busbw  #wrong
    16777216       4194304     float     sum      -1    100.0    1.00    1.50       0
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-ins on PATH, and a site whose mpirun runs `mpi` there."""
    folder = slurm(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(jobs, "POLL_S", 0.05)
    monkeypatch.setattr(jobs, "LAG_POLLS", 400)
    python = tmp_path / "envs/nccl/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    program(folder, "echo '# out'")
    path = tmp_path / "site.yml"
    path.write_text(
        "dlperf_stack: cpu\ndlperf_accelerator: cpu\ndlperf_devices_per_node: 2\n"
        f"dlperf_matrix: smoke\ndlperf_mpirun: {folder}/mpirun\n"
        f"dlperf_environments: {tmp_path}/envs\n"
    )
    return path


def program(folder: Path, script: str) -> None:
    version = "if [[ $1 == --version ]]; then echo 'mpirun (Open MPI) 4.1.4'; exit; fi"
    (folder / "mpirun").write_text(f"#!/bin/bash\n{version}\n{script}\n")
    (folder / "mpirun").chmod(0o755)


def campaign(site: Path, max_wait_s: int = 0, allocation: str = "campaign", **chosen: Any) -> Path:
    given = scheduled.read_site(site)
    nodes = scheduled.nodes_of("slurm", {}, given)
    settings = scheduled.settings_of("slurm", {}, given, nodes, allocation, max_wait_s)
    directory = site.parent / "campaign"
    choice = choose(workload="nccl-allreduce", **chosen)
    scheduled.create(directory, choice, nodes, settings, print)
    return directory


def execute(directory: Path) -> tuple[list[str], list[str]]:
    """Problems, and what was said."""
    said: list[str] = []
    return scheduled.run(directory, said.append), said


def outcomes(directory: Path) -> list[dict[str, Any]]:
    return [record["outcome"] for record in read_records(directory)]


def test_all_runs_of_a_campaign_are_done_in_one_job(site: Path) -> None:
    directory = campaign(site, nodes="1,2", repeats=2)
    problems, said = execute(directory)
    assert problems == []
    assert said[0] == "job 1 submitted: 4 runs"
    assert said[-1] in ("job 1: completed (COMPLETED)", "job 1: all runs have ended")
    for record in read_records(directory):
        outcome = record["outcome"]
        assert (outcome["status"], outcome["exit_status"]) == ("done", 0)
        assert list(outcome["hosts"]) == ["n1", "n2"][: record["nodes"]]
        assert outcome["hosts"]["n1"]["hostname"] == "n1"
        assert outcome["hosts"]["n1"]["memory_mib"] > 100
        assert outcome["versions"]["openmpi"] == "4.1.4"
        assert outcome["versions"]["pytest"] == pytest.__version__
        assert 0 <= outcome["elapsed_s"] < 60
        assert outcome["started"] < outcome["ended"]
    assert verify(directory).differences == []
    log = next(directory.glob("runs/*2n2g/r1/*.log"))
    assert log.read_text().startswith("# out\n")


def test_a_failed_run_keeps_its_reason_and_ends_no_other(site: Path) -> None:
    program(site.parent / "bin", "echo no luck; if [[ $2 == *,* ]]; then exit 3; fi")
    directory = campaign(site, nodes="1,2")
    problems, _ = execute(directory)
    assert problems == []
    one, two = outcomes(directory)
    assert one["status"] == "done"
    assert (two["status"], two["exit_status"]) == ("failed", 3)
    assert two["message"] == "n1: exit status 3; the log ends with: no luck"


def test_a_run_is_stopped_at_its_own_time_limit(site: Path) -> None:
    directory = campaign(site, nodes="1")
    plan = directory / "plan.json"
    plan.write_text(plan.read_text().replace('"timeout_s": 600', '"timeout_s": 1'))
    program(site.parent / "bin", "sleep 60")
    execute(directory)
    (outcome,) = outcomes(directory)
    assert outcome["message"] == "n1: stopped after its time limit of 1 s"


@pytest.mark.parametrize(
    ("state", "category", "words"),
    [
        ("TIMEOUT", "time_limit", "reached its time limit"),
        ("NODE_FAIL", "node_lost", "a node of the job failed"),
        ("OUT_OF_MEMORY", "out_of_memory", "ran out of memory"),
        ("PREEMPTED", "preempted", "another job preempted"),
    ],
)
def test_a_job_that_ends_in_the_middle(site: Path, state: str, category: str, words: str) -> None:
    """Slurm kills the job's script while the first of two runs is active."""
    folder = site.parent / "bin"
    ends = f"sed -i s/^RUNNING/{state}/ {folder}/state/job1"
    program(folder, f"{ends}; kill -KILL $(ps -o ppid= -p $PPID)")
    directory = campaign(site, nodes="1", repeats=2)
    problems, _ = execute(directory)
    first, second = outcomes(directory)
    assert (first["status"], first["category"]) == ("failed", category)
    assert words in first["message"]
    assert second["status"] == "planned"
    # What the job cut off remains to be run; a run that needs too much memory would again.
    remaining = 1 if category == "out_of_memory" else 2
    assert len(remaining_plan(directory)["runs"]) == remaining
    (problem,) = problems
    assert problem.startswith("job 1 ended before 1 run began: ")
    assert state in problem


def test_a_program_that_slurm_ends_before_the_jobs_script(site: Path) -> None:
    """As Slurm 22.05.8 does at a job's time limit: the script still records exit status 143."""
    folder = site.parent / "bin"
    job = folder / "state/job1"
    later = f"(sleep 0.5; sed -i s/^COMPLETING/TIMEOUT/ {job}) &"
    program(folder, f"sed -i s/^RUNNING/COMPLETING/ {job}; {later} exit 143")
    directory = campaign(site, nodes="1")
    execute(directory)
    (outcome,) = outcomes(directory)
    assert (outcome["exit_status"], outcome["category"]) == (143, "time_limit")
    assert "reached its time limit" in outcome["message"]


def hold(site: Path, state: str) -> None:
    """Let later jobs have this state, and not start."""
    (site.parent / "bin/state/hold").write_text(state)


def test_a_job_that_can_never_start_is_cancelled_at_once(site: Path) -> None:
    hold(site, "PENDING|N/A|PartitionTimeLimit")
    directory = campaign(site, nodes="1")
    problems, said = execute(directory)
    assert "job 1: waiting (PartitionTimeLimit)" in said
    (problem,) = problems
    assert "it can never start: PartitionTimeLimit" in problem
    assert [outcome["status"] for outcome in outcomes(directory)] == ["planned"]


def test_a_job_waits_no_longer_than_asked_and_is_submitted_again_later(site: Path) -> None:
    hold(site, "PENDING|N/A|Resources")
    directory = campaign(site, max_wait_s=1, nodes="1")
    (problem,) = execute(directory)[0]
    assert "it waited longer than --max-wait (Resources)" in problem
    (site.parent / "bin/state/hold").unlink()
    assert execute(directory)[0] == []
    assert [outcome["job"] for outcome in outcomes(directory)] == ["2"]


def test_a_job_for_each_run_costs_one_call_a_poll(site: Path) -> None:
    directory = campaign(site, allocation="run", nodes="1,2", repeats=3)
    problems, said = execute(directory)
    assert problems == []
    assert sum(" submitted: 1 run" in line for line in said) == 6
    calls = (site.parent / "bin/state/calls").read_text().split()
    assert 1 <= len(calls) < 60  # 20 a second, for 3 seconds at most
    assert {outcome["job"] for outcome in outcomes(directory)} == set("123456")


def test_a_job_of_a_runner_that_died_is_followed_and_nothing_repeated(site: Path) -> None:
    """It died between submitting the job and writing its ID, so only the job's name is known."""
    program(site.parent / "bin", "sleep 1")
    directory = campaign(site, nodes="1")
    problems, _ = execute(directory)
    assert problems == []
    path = directory / "jobs/1/job.json"
    job = json.loads(path.read_text())
    path.write_text(json.dumps(job | {"id": "", "ended": None}))
    record = next(directory.glob("runs/*/r1/run.json"))
    planned = json.loads(record.read_text())
    planned["outcome"] |= {"status": "running"}
    record.write_text(json.dumps(planned))
    assert "1 of 1 runs done" in call("status", directory).out
    assert [outcome["status"] for outcome in outcomes(directory)] == ["done"]
    _, said = execute(directory)
    assert "of an earlier start: 1 run" in said[0]
    assert not any("submitted" in line for line in said)
    assert [outcome["status"] for outcome in outcomes(directory)] == ["done"]


def test_an_interruption_cancels_the_job_and_a_lost_terminal_leaves_it(site: Path) -> None:
    directory = campaign(site, nodes="1")
    program(site.parent / "bin", "sleep 30")
    for number, state in ((signal.SIGHUP, "RUNNING"), (signal.SIGINT, "CANCELLED")):
        child = subprocess.Popen(["sh", "-c", f"sleep 1; kill -{number.value} {os.getpid()}"])
        with pytest.raises(Stopped) as stopped:
            execute(directory)
        child.wait()
        assert stopped.value.number == number
        assert (site.parent / "bin/state/job1").read_text().startswith(state)
    (outcome,) = outcomes(directory)
    assert (outcome["status"], outcome["category"]) == ("failed", "cancelled")


def test_a_scheduler_that_does_not_answer_for_a_while_loses_nothing(site: Path) -> None:
    program(site.parent / "bin", "sleep 1")
    squeue = site.parent / "bin/squeue"
    text = squeue.read_text()
    fails = "{ touch $STATE/restarted; echo 'Unable to contact' >&2; exit 1; }"
    once = f"[[ -e $STATE/restarted ]] || {fails}\n"
    squeue.write_text(text.replace("echo call", f"{once}echo call"))
    directory = campaign(site, nodes="1")
    problems, said = execute(directory)
    assert problems == []
    assert any("Unable to contact" in line for line in said)


def test_a_refused_job_is_an_error_with_slurms_own_words(site: Path) -> None:
    (site.parent / "bin/sbatch").write_text("#!/bin/sh\necho 'Invalid account' >&2; exit 1\n")
    directory = campaign(site, nodes="1")
    with pytest.raises(UserError, match="Invalid account"):
        execute(directory)


def test_run_and_plan_take_the_options(site: Path) -> None:
    options = ("--scheduler", "slurm", "--site", site, "--workload", "nccl-allreduce")
    place = site.parent / "told"
    shown = call("plan", *options, "--partition", "main", "--campaign", place).out
    assert "#SBATCH --partition=main" in shown
    assert f"==> {place}/jobs/1/job.sh <==" in shown
    assert not place.exists()
    wrong = call("plan", "--partition", "main", "--workload", "nccl-allreduce", status=2)
    assert "only with --scheduler" in wrong.err
    wrong = call("plan", *options, "--partition", "gpu", status=2)
    assert "Slurm has no partition 'gpu' (expected one of main)" in wrong.err
    wrong = call("plan", *options, "--allocation", "none", status=2)
    assert "expected one of campaign, case, run" in wrong.err
    wrong = call("plan", *options, "--nodes", "3", status=2)
    assert "the plan needs more than" in wrong.err
    site.write_text("dlperf_stakc: cpu\n")
    wrong = call("plan", *options, status=2)
    assert "found dlperf_stakc" in wrong.err
