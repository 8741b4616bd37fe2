"""A run of a job that hangs: its processes are found on all nodes. What a hang is, and what is not,
is shown by test_hangs.py and test_hangs_at_start.py of the same supervisor."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from benchmark_jobs import processes_of, until
from job_campaigns import campaign, execute, outcomes, program
from run_agent import process_table

from dlperf_runner.campaign.directory import remaining_plan
from dlperf_runner.commands.verify import verify

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
