"""Jobs that Slurm has forgotten: what their files tell, and sacct where a site has accounting."""

import json
from pathlib import Path

import pytest
import standins
from job_campaigns import IS_RECORDED, KILL_JOB, execute, outcomes, program, start_job, submitted

from dlperf_runner.schedulers import slurm


def test_a_job_that_slurm_has_forgotten_tells_by_its_files(site: Path) -> None:
    """Slurm knows a job for MinJobAge only. The run began before midnight, in UTC."""
    directory = submitted(site, nodes="1")
    start_job(directory)
    (site.parent / "bin/state/job1").unlink()
    for key, time in (("started", "22T23:59:59.500000"), ("ended", "23T00:00:01.750000")):
        path = directory / f"jobs/1/{key}.1.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: f"2026-11-{time}+00:00"}))
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
