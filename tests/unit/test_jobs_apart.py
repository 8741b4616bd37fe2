"""Jobs that could disturb each other: jobs of one campaign on shared nodes, and steps on another
machine."""

import json
import subprocess
import time
from pathlib import Path

import pytest
from job_campaigns import campaign, execute, hold, within

from dlperf_runner.campaign import jobs
from dlperf_runner.campaign.job_files import SchedulerSettings
from dlperf_runner.control import scheduled
from dlperf_runner.core.errors import UserError


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
