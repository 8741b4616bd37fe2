"""Campaigns as jobs: the real scripts, run on this machine by stand-ins for Slurm's commands."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
import standins
from command_line import call
from job_campaigns import IS_RECORDED, KILL_JOB, asked, campaign, execute, hold, outcomes, program

from dlperf_runner.campaign import lock
from dlperf_runner.campaign.directory import read_plan, read_records, remaining_plan
from dlperf_runner.campaign.job_files import Job, record_outcome, written_by_job
from dlperf_runner.commands.verify import verify
from dlperf_runner.control.rounds import Policy
from dlperf_runner.core.errors import Stopped
from dlperf_runner.core.files import read_json
from dlperf_runner.report.plan_text import render


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
        assert outcome["elapsed_s"] >= 0
        assert outcome["started"] < outcome["ended"]
    assert verify(directory).differences == []
    log = next(directory.glob("runs/*2n2g/r1/*.log"))
    assert log.read_text().startswith("# out\n")


# NVIDIA/k8s-dra-driver-gpu and nvidia-imex call the two a clique: its GPUs reach each other.
FABRIC = """<gpu id="0"><fabric><state>Completed</state><status>Success</status>
<cliqueId>4</cliqueId><clusterUuid>{}</clusterUuid></fabric></gpu>"""
CLUSTER = "50000000-0000-0003-0000-000000000001"


@pytest.mark.parametrize(
    ("fabric", "domains"),
    [
        # As Slurm 24.11 prints the blocks of the lab.
        ("", ["rack1", "rack2"]),
        (FABRIC.format(CLUSTER), [f"{CLUSTER}.4"]),
        (FABRIC.format("00000000-0000-0000-0000-000000000000"), []),  # HGX, whose NVLink ends there
    ],
)
def test_the_nvlink_domains_of_a_jobs_nodes_are_recorded(
    site: Path, fabric: str, domains: list[str]
) -> None:
    state = site.parent / "bin/state"
    for number in (1, 2):
        block = f"BlockName=rack{number} BlockIndex={number} Nodes=n{number} BlockSize=1\n"
        (state / f"topology.n{number}").write_text(block)
    if fabric:
        script = f"""test "$*" != "-q -x" || echo '{fabric}'"""
        standins.program(site.parent / "bin", "nvidia-smi", script)
    directory = campaign(site, nodes="1,2")
    assert execute(directory)[0] == []
    one, two = read_records(directory)
    assert (one["nvlink_domains"], two["nvlink_domains"]) == (domains[:1], domains)


def test_a_failed_run_keeps_its_reason_and_ends_no_other(site: Path) -> None:
    program(site.parent / "bin", "echo no luck; echo ----; if [[ $2 == *,* ]]; then exit 3; fi")
    directory = campaign(site, nodes="1,2")
    assert execute(directory)[0] == []
    one, two = outcomes(directory)
    assert one["status"] == "done"
    assert (two["status"], two["exit_status"]) == ("failed", 3)
    assert two["message"] == "n1: exit status 3; the log ends with: no luck"


def test_a_run_is_stopped_at_its_own_time_limit(site: Path) -> None:
    directory = campaign(site, nodes="1")
    for path in (directory / "plan.json", *directory.glob("runs/*/r1/run.json")):
        path.write_text(path.read_text().replace('"timeout_s": 600', '"timeout_s": 1'))
    program(site.parent / "bin", "sleep 600")
    execute(directory)
    (outcome,) = outcomes(directory)
    assert outcome["message"] == "n1: stopped after its time limit of 1 s"


@pytest.mark.parametrize(
    ("state", "category", "words"),
    [
        ("TIMEOUT", "time_limit", "reached its time limit"),
        ("NODE_FAIL", "node_lost", "a node of the job failed"),
        ("OUT_OF_MEMORY", "out of memory", "ran out of memory"),
        ("PREEMPTED", "preempted", "another job preempted"),
    ],
)
def test_a_job_that_ends_in_the_middle(site: Path, state: str, category: str, words: str) -> None:
    """Slurm kills the job's script while the first of two runs is active."""
    folder = site.parent / "bin"
    ends = f"sed -i s/^RUNNING/{state}/ {folder}/state/job1"
    program(folder, f"{IS_RECORDED}; {ends}; {KILL_JOB}")
    directory = campaign(site, nodes="1", repeats=2)
    (problem,) = execute(directory, Policy(on_node_loss="stop"))[0]
    first, second = outcomes(directory)
    assert (first["status"], first.get("category")) == ("failed", category), first
    assert ("batch size 1 " in first.get("advice", "")) == (category == "out of memory")
    assert words in first["message"]
    assert second["status"] == "planned"
    # What the job cut off remains to be run; a run that needs too much memory would again.
    assert len(remaining_plan(directory)["runs"]) == 1 + (category != "out of memory")
    assert re.match(r"job 1(: unreachable:)? ended before 1 run began: ", problem)
    assert state in problem


def test_a_node_that_is_silent_while_slurm_ends_the_job_is_not_lost(site: Path) -> None:
    program(site.parent / "bin", "exit 143")
    directory = campaign(site, nodes="1")
    execute(directory)
    path = directory / "jobs/1"
    job = Job(path, **read_json(path / "job.json"))
    started, ended = written_by_job(job, 1)
    assert started
    silent = {**(ended or {}), "left": ["n1: cannot be checked for processes of the run"]}
    (run,) = read_plan(directory)["runs"]
    record_outcome(directory, run, job, started, silent, "another job preempted it", "preempted")
    (outcome,) = outcomes(directory)
    assert (outcome["category"], outcome.get("lost")) == ("preempted", None)
    record_outcome(directory, run, job, started, silent, "a node failed", "node_lost")
    (outcome,) = outcomes(directory)
    assert (outcome["category"], outcome["lost"]) == ("node_lost", ["n1"])


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_program_that_slurm_ends_before_the_jobs_script(site: Path, is_killed: bool) -> None:
    """As Slurm 22.05.8 does at a job's time limit: the script still records exit status 143, and
    starts no other run before it is killed, too."""
    folder = site.parent / "bin"
    job = folder / "state/job1"
    own = f"echo $PPID > {folder}/pid"  # of job_run.py
    program(folder, f"{own}; sed -i s/^RUNNING/COMPLETING/ {job}; exit 143")
    directory = campaign(site, nodes="1", repeats=1 + is_killed)
    wait = f"until grep -qs ^COMPLETING {job}; do sleep 0.1; done; sleep 0.5"
    kill = f"kill -TERM $(cat {folder}/pid)" if is_killed else ":"
    with subprocess.Popen(["sh", "-c", f"{wait}; {kill}; sed -i s/^COMPLETING/TIMEOUT/ {job}"]):
        execute(directory)
    first, *others = outcomes(directory)
    assert (first["exit_status"], first["category"]) == (143, "time_limit")
    assert "reached its time limit" in first["message"]
    assert [outcome["status"] for outcome in others] == ["planned"] * is_killed


def test_a_job_that_can_never_start_is_cancelled_at_once(site: Path) -> None:
    hold(site, "PENDING|N/A|PartitionTimeLimit")
    directory = campaign(site, nodes="1")
    (problem,), said = execute(directory)
    assert "job 1: waiting (PartitionTimeLimit), position 1 in the queue" in said
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


def test_with_a_job_for_each_case_the_order_is_grouped(site: Path, tmp_path: Path) -> None:
    argv = ["run", "--scheduler", "slurm", "--site", site, "--workload", "nccl-allreduce"]
    argv += ["--nodes", "1,2", "--repeats", "2"]
    expected = {"campaign": "interleaved", "case": "grouped", "run": "interleaved"}
    for allocation, order in expected.items():
        directory = tmp_path / allocation
        call(*argv, "--allocation", allocation, "--campaign", directory, status=None)
        document = read_plan(directory)
        assert document["choice"]["order"] == order
        assert f"2 cases, 4 runs, {order};" in render(document)
    jobs = [(tmp_path / f"case/jobs/{number}/job.json").read_text() for number in (1, 2)]
    planned = [run["id"] for run in read_plan(tmp_path / "case")["runs"]]
    assert [run for job in jobs for run in json.loads(job)["runs"]] == planned


def test_a_job_of_a_runner_that_died_is_followed_and_nothing_repeated(site: Path) -> None:
    """It died between submitting the job and writing its ID, so only the job's name is known."""
    program(site.parent / "bin", "sleep 1")
    directory = campaign(site, nodes="1")
    assert execute(directory)[0] == []
    path = directory / "jobs/1/job.json"
    job = json.loads(path.read_text())
    path.write_text(json.dumps(job | {"id": "", "ended": None}))
    record = next(directory.glob("runs/*/r1/run.json"))
    planned = json.loads(record.read_text())
    planned["outcome"] |= {"status": "running"}
    record.write_text(json.dumps(planned))
    shown = call("status", directory, status=1).out
    assert "the log is empty" in shown
    assert "1 of 1 runs done, 1 of them invalid" in shown
    record.write_text(json.dumps(planned))
    before = record.read_text()
    with lock.held(directory):  # its controller writes the records
        call("status", directory, status=None)
        assert record.read_text() == before
    call("status", directory, status=None)
    assert [outcome["status"] for outcome in outcomes(directory)] == ["done"]
    _, said = execute(directory)
    assert "of an earlier start: 1 run" in said[0]
    assert not any("submitted" in line for line in said)
    assert [outcome["status"] for outcome in outcomes(directory)] == ["done"]


def test_an_interruption_cancels_the_job_and_a_lost_terminal_leaves_it(site: Path) -> None:
    directory = campaign(site, nodes="1")
    program(site.parent / "bin", "sleep 600")
    for number, state in ((signal.SIGHUP, "RUNNING"), (signal.SIGINT, "CANCELLED")):
        # A second interrupt comes when the runner asks again, and cancels.
        begun = f"[[ ! -e {directory}/jobs/1/started.1.json ]]"
        interrupts = asked(site, f"{begun} || kill -{number.value} {os.getpid()}")
        with pytest.raises(Stopped) as stopped, interrupts:
            execute(directory)
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


def test_run_and_plan_take_the_options(site: Path) -> None:
    options = ("--scheduler", "slurm", "--site", site, "--workload", "nccl-allreduce")
    place = site.parent / "told"
    shown = call("plan", *options, "--partition", "main", "--campaign", place).out
    assert "#SBATCH --partition=main" in shown
    assert f"==> {place}/jobs/1/job.sh <==" in shown
    assert not place.exists()
    of_case = (*options, "--allocation", "case", "--order")
    assert "#SBATCH" in call("plan", *of_case, "grouped").out
    site.with_name("wrong.yml").write_text("dlperf_stakc: cpu\n")
    for words, message in (
        ((*of_case, "random"), "--order: a job for each case does all runs of the case before the"),
        ((*of_case, "interleaved"), "(expected grouped, found interleaved)"),
        (("--partition", "main", "--workload", "nccl-allreduce"), "only with --scheduler"),
        ((*options, "--partition", "gpu"), "no partition 'gpu' (expected one of main)"),
        ((*options, "--allocation", "none"), "expected one of campaign, case, run"),
        ((*options, "--nodes", "3"), "the plan needs more than"),
        ((*options, "--site", site.with_name("wrong.yml")), "found dlperf_stakc"),
    ):
        assert message in call("plan", *words, status=2).err
