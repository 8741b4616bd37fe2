"""A run of a job that hangs: how it is noticed, and what is kept of it."""

from __future__ import annotations

import os
import re
import runpy
import signal
import time
from pathlib import Path

from benchmark_jobs import processes_of
from job_campaigns import campaign, execute, outcomes, program
from lab_under_test import PROJECT

from dlperf_runner.campaign import job_record
from dlperf_runner.campaign.directory import remaining_plan
from dlperf_runner.commands.verify import verify


def test_a_stopped_program_is_noticed_kept_and_ended(site: Path) -> None:
    marker = f"dlperf-stopped-{os.getpid()}"
    steps = "for n in $(seq 12); do echo step $n; sleep 0.6; done"
    stops = f"bash -c 'kill -STOP $$; sleep 60' {marker}"
    flag = site.parent / "was-first"
    program(site.parent / "bin", f"[[ -e {flag} ]] || {{ touch {flag}; {steps}; {stops}; }}")
    directory = campaign(site, nodes="2", repeats=2)
    for path in (directory / "plan.json", *directory.glob("runs/*/r*/run.json")):
        text = re.sub(r'("hung_after_s": )\d+', r"\g<1>3", path.read_text())
        path.write_text(re.sub(r'("hung_after_lines": )\d+', r"\g<1>2", text))
    began = time.monotonic()
    assert execute(directory)[0] == []
    assert time.monotonic() - began < 100
    first, second = outcomes(directory)
    assert (first["status"], first["category"]) == ("failed", "hung")
    assert first["message"].startswith("n1: stopped because it hung: no new line for ")
    assert first["exit_status"] in (128 + signal.SIGTERM, 128 + signal.SIGKILL)
    assert "hang-*.txt" in first["advice"]
    assert second["status"] == "done"
    assert remaining_plan(directory)["runs"] == []
    assert not processes_of(marker)
    for node in ("n1", "n2"):
        (state,) = directory.glob(f"runs/*/r1/hang-{node}.txt")
        text = state.read_text()
        assert text.startswith("== end of the log\nstep 1\n")
        (block,) = (block for block in text.split("== process ") if f" {marker}" in block)
        assert "T (stopped)" in block
    (edited,) = verify(directory).differences  # above
    assert edited.startswith("plan.json: ")


def test_both_ways_use_the_same_words() -> None:
    path = PROJECT / "roles/benchmark_run/filter_plugins/benchmark_outcome.py"
    assert runpy.run_path(str(path))["STOPPED"]["hung"] == job_record.HUNG
