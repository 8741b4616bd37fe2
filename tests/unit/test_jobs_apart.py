"""Jobs that could disturb each other, or each other's words: jobs of one campaign on shared nodes,
steps on another machine, and what the watchers of several nodes say through one srun."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from job_campaigns import campaign, execute, hold, within

from dlperf_runner.campaign import jobs
from dlperf_runner.campaign.job_files import SchedulerSettings
from dlperf_runner.control import scheduled
from dlperf_runner.core.errors import UserError
from dlperf_runner.schedulers.on_nodes import job_run


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


def test_the_time_behind_another_job_is_no_time_in_the_queue(tmp_path: Path) -> None:
    settings = SchedulerSettings("slurm", {}, "", "", "", False, "run", max_wait_s=60)
    job = jobs.Job(tmp_path, "name", ["r1"], "2", submitted=time.time() - 3600)
    behind = jobs.JobState("2", "name", "waiting", "Dependency", is_next=True)
    queued = jobs.JobState("2", "name", "waiting", "Resources")
    assert jobs._why_cancel(job, behind, settings, has_begun=False) == ""
    assert jobs._why_cancel(job, queued, settings, has_begun=False) == ""
    job.waits_since -= 61
    assert "--max-wait" in jobs._why_cancel(job, queued, settings, has_begun=False)


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


def watch(directory: Path, script: str, nodes: int) -> job_run.Watch:
    (directory / "watch.sh").write_text(script)
    return job_run.Watch(directory, [f"n{number}" for number in range(nodes)])


def test_what_a_node_says_late_is_not_taken_for_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """n2 says only after the first waiting time that it is ready, when the run has begun."""
    script = """
read -r _
echo '{"host": "n1", "busy": ["n1: held"]}'; echo '{"host": "n1", "is_ready": true}'
read -r _
echo '{"host": "n2", "is_ready": true}'; echo '{"host": "n1", "beside": [{"pid": 1}]}'
echo '{"host": "n1", "is_last": true}'; sleep 0.3
echo '{"host": "n2", "beside": [{"pid": 2}]}'; echo '{"host": "n2", "is_last": true}'
"""
    monkeypatch.setattr(job_run, "READY_S", 0.5)
    seen = watch(tmp_path, script, nodes=2)
    ready = seen.begin(2, "/c/r1")
    assert [word for document in ready for word in document.get("busy", ())] == ["n1: held"]
    beside = [process for document in seen.end(2) for process in document.get("beside", ())]
    assert beside == [{"pid": 1}, {"pid": 2}]
    seen.close()


def test_no_line_of_a_watcher_is_so_long_that_srun_divides_it(site: Path) -> None:
    """srun passes lines of 1024 bytes and more on in pieces, and those of several nodes mix."""
    directory = campaign(site, nodes="1")
    execute(directory)
    process = {"host": "n1", "pid": 123456, "uid": 1234, "command": "c" * 15, "cores": 0.25}
    script = f"""
import node_watch
node_watch.say("n1", *node_watch.told(["n1: held by " + "/long" * 400] * 30))
peaks = {{"n1": dict.fromkeys(map(str, range(16)), 81559)}}
node_watch.say("n1", *node_watch.seen({{"gpu_memory_mib": peaks}}, {{"beside": [{process}] * 40}}))
"""
    argv = [sys.executable, "-ES", "-c", f"import sys; sys.path[:0] = ['.lib']\n{script}"]
    done = subprocess.run(argv, cwd=directory, text=True, check=True, capture_output=True)
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) < 1024
    documents = [json.loads(line) for line in lines]
    assert sum("busy" in document for document in documents) == 30
    assert sum(len(document.get("beside", ())) for document in documents) == 40
    assert (documents[30].get("is_ready"), documents[-1].get("is_last")) == (True, True)


def test_one_program_on_each_node_watches_all_runs_of_a_job(site: Path) -> None:
    """A step of srun for each run would be most of what the harness adds to a run."""
    srun = site.parent / "bin/srun"
    srun.write_text(srun.read_text().replace("\nfor ", '\necho "$*" >> "$STATE/steps"\nfor ', 1))
    directory = campaign(site, nodes="1,2", repeats=2)
    assert execute(directory)[0] == []
    steps = (site.parent / "bin/state/steps").read_text().splitlines()
    assert sum("watch.sh" in step for step in steps) == 1
    for record in scheduled.campaigns.read_records(directory):
        place = scheduled.campaigns.run_directory(directory, record)
        names = sorted(path.name for path in place.glob("telemetry-*.csv"))
        assert names == [f"telemetry-n{number}.csv" for number in range(1, record["nodes"] + 1)]
