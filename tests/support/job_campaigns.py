"""Campaigns as jobs of a stand-in for Slurm, on a site whose mpirun is a script."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import standins
from plan_examples import choose
from slurm_standin import slurm

from dlperf_runner.campaign import jobs
from dlperf_runner.campaign.directory import read_records
from dlperf_runner.control import scheduled
from dlperf_runner.control.rounds import AS_PLANNED, Policy
from dlperf_runner.core.errors import Stopped

# Of a run: mpirun, job_run.py, and the script of the job.
KILL_JOB = "kill -KILL $(ps -o ppid= -p $PPID) $PPID"
# Until the job has recorded that its run began, which takes up to a poll.
IS_RECORDED = (
    'm=$(mktemp); for _ in {1..60}; do [[ $(find "${0%/*}"/.. -name "started.*" -newer "$m") ]]'
    ' && break; sleep 0.05; done; rm "$m"'
)


def make_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-ins on PATH, and a site whose mpirun runs `mpi` there."""
    folder = slurm(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(jobs, "POLL_S", 0.05)
    monkeypatch.setattr(jobs, "LAG_POLLS", 400)
    standins.program(tmp_path / "envs/nccl/bin", "python", f'exec {sys.executable} "$@"')
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


def campaign(
    site: Path,
    max_wait_s: int = 0,
    allocation: str = "campaign",
    options: dict[str, str] | None = None,
    **chosen: Any,
) -> Path:
    given, options = scheduled.read_site(site), options or {}
    offers = scheduled.offers_of("slurm", options, given)
    nodes = scheduled.nodes_of(offers, given)
    settings = scheduled.settings_of("slurm", options, given, nodes, allocation, max_wait_s, offers)
    directory = site.parent / "results" / "campaign"
    choice = choose(workload="nccl-allreduce", **chosen)
    scheduled.create(directory, choice, nodes, settings, print)
    return directory


def execute(directory: Path, policy: Policy = AS_PLANNED) -> tuple[list[str], list[str]]:
    """Problems, and what was said."""
    said: list[str] = []
    return scheduled.run(directory, said.append, policy), said


def outcomes(directory: Path) -> list[dict[str, Any]]:
    return [record["outcome"] for record in read_records(directory)]


def hold(site: Path, state: str) -> None:
    """Let later jobs have this state, and not start."""
    (site.parent / "bin/state/hold").write_text(state)


@contextmanager
def asked(site: Path, script: str) -> Iterator[None]:
    """Do this whenever the runner asks for the queue: it follows its jobs then."""
    path = site.parent / "bin/state/asked"
    path.write_text(script)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def within(patch: pytest.MonkeyPatch, nodes: str, cpus: str) -> None:
    """Let the test run within an allocation of these nodes."""
    patch.setenv("SLURM_JOB_ID", "77")
    patch.setenv("SLURM_JOB_NODELIST", nodes)
    patch.setenv("SLURM_JOB_NUM_NODES", str(len(nodes.split(","))))
    patch.setenv("SLURM_JOB_CPUS_PER_NODE", cpus)


def submitted(site: Path, **chosen: Any) -> Path:
    """A campaign whose job has been submitted, and which nobody follows."""
    hold(site, "RUNNING|N/A|None")
    directory = campaign(site, **chosen)
    with pytest.raises(Stopped), asked(site, f"[[ ! -e $STATE/job1 ]] || kill -HUP {os.getpid()}"):
        execute(directory)
    (site.parent / "bin/state/hold").unlink()
    return directory


def start_job(directory: Path) -> int:
    """Execute the job's script, as Slurm does when the job starts, first or again."""
    given = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n1", "SLURM_CPUS_ON_NODE": "2"}
    argv = ["bash", directory / "jobs/1/job.sh"]
    return subprocess.run(argv, env=os.environ | given, check=False, timeout=120).returncode
