"""Slurm's scripts as whole texts, and what its commands print, as Slurm 22.05.8 printed it."""

from __future__ import annotations

import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest
from captured import captured
from plan_examples import choose, job_nodes

from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.control.scheduled import read_site
from dlperf_runner.core.errors import UserError
from dlperf_runner.plan.make import make_plan
from dlperf_runner.schedulers import Allocation, Offer, here, scheduler, slurm
from dlperf_runner.schedulers.job import (
    Places,
    node_script,
    prologue,
    run_script,
    word,
)

PLACES = Places("/home/me/c/.sources", "/shared/envs", "/home/me/c/.lib")


def asked(**options: str) -> Allocation:
    return Allocation("dlperf-1", Path("/home/me/c/jobs/1"), 2, 8, 8, options)


def test_the_header_asks_for_what_the_user_chose() -> None:
    given = {"partition": "gpu", "account": "a", "qos": "q", "reservation": "r"}
    given |= {"constraint": "h100&ib", "nodelist": "n[1-2]", "time": "7230", "exclusive": "True"}
    assert slurm.header(asked(**given)) == (
        "#SBATCH --job-name=dlperf-1",
        "#SBATCH --output=/home/me/c/jobs/1/job.log",
        "#SBATCH --open-mode=append",
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks-per-node=8",
        "#SBATCH --gpus-per-node=8",
        "#SBATCH --partition=gpu",
        "#SBATCH --account=a",
        "#SBATCH --qos=q",
        "#SBATCH --reservation=r",
        "#SBATCH --constraint=h100&ib",
        "#SBATCH --nodelist=n[1-2]",
        "#SBATCH --time=121",
        "#SBATCH --exclusive",
        "#SBATCH --no-requeue",
        "#SBATCH --export=NIL",
    )


@pytest.mark.parametrize("value", ["gpu\ntouch /tmp/x", "gpu debug"])
def test_an_option_is_no_line_of_the_script(value: str) -> None:
    with pytest.raises(UserError, match="sbatch takes no white space here"):
        slurm.header(asked(partition=value))


def test_a_job_that_may_share_nodes_with_the_one_before_it_waits_for_its_end() -> None:
    lines = slurm.header(Allocation("dlperf-1", Path("/c/jobs/2"), 2, 8, 0, {}, after="12"))
    assert "#SBATCH --dependency=afterany:12" in lines
    (waits,) = slurm.states("13|PENDING|N/A|Dependency|1|main|dlperf-1\n")
    assert (waits.phase, waits.is_next, waits.is_hopeless) == ("waiting", True, False)


def test_a_word_is_quoted_but_for_the_names_of_nodes() -> None:
    assert word("--host") == "--host"
    assert word("") == "''"
    assert word("$(id) it's") == "'$(id) it'\"'\"'s'"
    assert word("@node1@:8,@node12@:8") == '"${node[0]}":8,"${node[11]}":8'


def plan(*workloads: str, **chosen: object) -> list[dict[str, object]]:
    choice = choose(workload=",".join(workloads), **chosen)
    return [asdict(run) for run in make_plan(choice, load_catalog(), job_nodes())]


SRUN = (
    'srun --nodes="${#node[@]}" --ntasks="${#node[@]}" --ntasks-per-node=1'
    ' --nodelist="$(IFS=,; echo "${node[*]}")" --cpus-per-task="$SLURM_CPUS_ON_NODE"'
    " --cpu-bind=none --mpi=none --kill-on-bad-exit=1"
)


def test_a_launcher_of_each_node_starts_the_script_again_there() -> None:
    (run,) = plan("pytorch-llama", nodes=2)
    text = run_script(scheduler("slurm"), run, Path("/home/me/c/r1"), PLACES)
    lines = text.splitlines()
    assert lines[3:7] == [
        "if [[ -z ${DLPERF_ON_NODE-} ]]; then",
        f'  exec {SRUN} env DLPERF_ON_NODE=1 bash "$0" "$@"',
        "fi",
        'case "$SLURMD_NODENAME" in',
    ]
    first, second = text.split("  ;;\n")[:2]
    assert '--nnodes=2 --node-rank=0 --nproc-per-node=2 --master-addr="${node[0]}"' in first
    assert "  exec > " not in first
    assert (
        '"${node[1]}")\n  exec > /home/me/c/r1/llamalab_b2_fp32_1.log."${node[1]}" 2>&1' in second
    )
    assert '--node-rank=1 --nproc-per-node=2 --master-addr="${node[0]}"' in second


def test_a_node_is_prepared_before_its_facts_are_read() -> None:
    prepare = [(("make", "-C", "/opt/dlperf/src/w-upstream"), "/opt/dlperf/data/made")]
    runs = plan("nccl-allreduce", repeats=2)
    text = node_script(scheduler("slurm"), asked(), runs, "/usr/bin/mpirun", prepare, PLACES)
    python = "/shared/envs/nccl/bin/python"
    assert text.splitlines()[1:] == [
        "[[ -e /opt/dlperf/data/made ]] || make -C /home/me/c/.sources/w-upstream",
        f'exec {python} /home/me/c/.lib/node_facts.py /home/me/c/jobs/1 "$SLURMD_NODENAME"'
        f""" /usr/bin/mpirun '{{"nccl": ["{python}", "/home/me/c/.lib/versions.py"]}}'""",
    ]


SINFO = "main*|2|(null)\n"
# `squeue --all --states=all --noheader --format=%i|%T|%S|%r|%Q|%P|%j` of Slurm 22.05.8; priorities
# were changed, and a partition.
SQUEUE = """\
10|CANCELLED|2026-11-22T19:35:21|Priority|4294901750|main|cancelme
4|COMPLETED|2026-11-22T19:33:51|None|4294901756|main|dlperf-5a826d13
11|FAILED|2026-11-22T19:35:21|BadConstraints|4294901749|main|wrap
6|PENDING|N/A|PartitionNodeLimit|4294901754|main|three
7_[1-4%2]|PENDING|2027-11-22T19:35:09|Resources|4294901758|main|arr
9|PENDING|N/A|JobHeldUser|0|main|a|b held
12|PENDING|N/A|Priority|4294901754|gpu|other
5|RUNNING|2026-11-22T19:35:09|None|4294901755|main|dlperf-f8476a16
"""


CANCELLED = "the job was cancelled, or a node failed its checks (sinfo -R)"


def test_the_states_of_all_jobs() -> None:
    found = {state.job: state for state in slurm.states(SQUEUE)}
    told = {job: (s.name, s.phase, s.reason, s.position) for job, s in found.items()}
    assert told == {
        "10": ("cancelme", "ended", f"{CANCELLED} (CANCELLED)", 0),
        "4": ("dlperf-5a826d13", "ended", "completed (COMPLETED)", 0),
        "11": ("wrap", "ended", "the job's script failed (FAILED)", 0),
        "6": ("three", "waiting", "PartitionNodeLimit", 2),
        "7_[1-4%2]": ("arr", "waiting", "Resources", 1),
        "9": ("a|b held", "waiting", "JobHeldUser", 3),
        "12": ("other", "waiting", "Priority", 1),
        "5": ("dlperf-f8476a16", "running", "", 0),
    }
    assert {job for job, state in found.items() if state.is_hopeless} == {"6"}
    starts = [found[job].expected_start for job in ("7_[1-4%2]", "6")]
    assert starts == ["2027-11-22T19:35:09", ""]
    assert slurm.states("") == ()


def test_steps_of_a_given_allocation_are_processes_of_the_runners_machine() -> None:
    steps = here("slurm", {"SLURM_JOB_ID": "12"})
    assert here("slurm", {}) is scheduler("slurm")
    assert steps is not scheduler("slurm")
    assert steps.offers("given*|2|gpu:8\n", {}) == (Offer(2, 8),)
    assert steps.offers("given*|2|gpu:\n", {}) == (Offer(2, 0),)
    rows = "  1 /sbin/init\n4711 /bin/bash /c/jobs/1/job.sh\n  9 vi /c/jobs/1/job.sh.txt\n"
    assert [(s.job, s.phase) for s in steps.states(rows)] == [("4711", "running")]
    assert steps.cancel_argv(["4711"]) == ("kill", "-TERM", "--", "-4711")


@pytest.mark.parametrize(
    ("states", "phase", "category"),
    [
        ("BOOT_FAIL NODE_FAIL", "ended", "node_lost"),
        ("CONFIGURING REQUEUED", "waiting", ""),
        ("COMPLETING SUSPENDED A_STATE_OF_TOMORROW", "running", ""),
        ("DEADLINE TIMEOUT", "ended", "time_limit"),
        *(
            (state, "ended", state.lower())
            for state in ("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "CANCELLED", "FAILED")
        ),
    ],
)
def test_every_state_has_a_phase(states: str, phase: str, category: str) -> None:
    for state in states.split():
        (found,) = slurm.states(f"12|{state}|N/A|None|1|main|dlperf-1\n")
        assert (found.phase, found.category) == (phase, category)


def test_the_nodes_and_gpus_of_a_partition() -> None:
    assert slurm.offers(SINFO, {}) == (Offer(2, 0),)
    # Forms of GRES in sinfo(1); there are no GPUs here.
    rows = SINFO + "gpu|4|gpu:h100:8(S:0-1)\ngpu|1|gpu:a:2,gpu:b:2,shard:8\ncpu|3|craynetwork:4\n"
    assert slurm.offers(rows, {"partition": "gpu"}) == (Offer(4, 8), Offer(1, 4))
    assert slurm.offers(rows, {"partition": "cpu"}) == (Offer(3, 0),)
    with pytest.raises(UserError, match=r"no partition 'gpus' \(expected one of main, gpu, cpu"):
        slurm.offers(rows, {"partition": "gpus"})
    with pytest.raises(UserError, match="no default partition"):
        slurm.offers("gpu|4|gpu:8\n", {})


def test_the_id_of_a_submitted_job() -> None:
    assert slurm.job_id("12\n") == "12"
    assert slurm.job_id("12;cluster\n") == "12"
    with pytest.raises(UserError, match="no job ID"):
        slurm.job_id("sbatch: Submitted\n")


# ---- the site's own commands at the beginning of a job


def run(*lines: str) -> subprocess.CompletedProcess[str]:
    """What a job's script does after the site's lines: its children have what they set."""
    asked = Allocation("dlperf-1", Path("/c/jobs/1"), 1, 1, 0, {}, prologue=lines)
    # As an administrator's module does.
    function = "module() { [[ $1 == load && $2 == tool* ]] && export LOADEDMODULES=$2; }\n"
    script = f"{function}{prologue(asked)}\nbash -c 'echo \"have $LOADEDMODULES $MORE\"'\n"
    return captured("bash", "-c", script)


def test_what_it_sets_reaches_all_that_the_job_starts() -> None:
    done = run("module load tool/1.2", "export MORE='of it'")
    assert (done.returncode, done.stdout) == (0, "have tool/1.2 of it\n")
    assert run().stdout == "have  \n"


def test_a_job_ends_if_one_of_its_commands_fails() -> None:
    done = run("export MORE=1", "module load other", "touch /nonexistent/x")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == "dlperf_prologue failed: module load other\n"


@pytest.mark.parametrize("after", ["", "# of the site", "true # of the site"])
def test_a_comment_hides_no_failure(after: str) -> None:
    assert run(f"true {after}", "", after).returncode == 0
    done = run(after, "module load other # for NCCL", after)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_site_s_file_with_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "site.yml"
    for text in ("module load x", "[1]", '["a\\nb"]', "{a: b}"):
        path.write_text(f"dlperf_prologue: {text}\n")
        with pytest.raises(UserError, match="dlperf_prologue is no list of commands"):
            read_site(path)
    path.write_text("dlperf_prologue: [module load x]\n")
    assert read_site(path)["dlperf_prologue"] == ["module load x"]
