"""docs/adding-a-scheduler.md, done: its file in a copy of the package, and a campaign with it."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

from captured import captured
from pages_done import copy_with, page_files
from standins import program

from dlperf_runner.control import scheduled

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "adding-a-scheduler.md").read_text(encoding="utf-8")


def test_the_pages_scheduler_runs_a_campaign(tmp_path: Path) -> None:
    copy_with(page_files(PAGE), tmp_path)
    for name in scheduled.OF_ROLES:
        (tmp_path / "roles" / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / "roles" / name, tmp_path / "roles" / name)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "module_utils", tmp_path / "module_utils", ignore=ignored)
    mpirun = program(tmp_path, "mpirun", "echo $# words") / "mpirun"
    program(tmp_path / "envs/nccl/bin", "python", f'exec {sys.executable} "$@"')
    (tmp_path / "site.yml").write_text(
        "dlperf_stack: cpu\ndlperf_accelerator: cpu\ndlperf_devices_per_node: 2\n"
        f"dlperf_mpirun: {mpirun}\ndlperf_environments: {tmp_path}/envs\n"
    )
    argv = [sys.executable, "-m", "dlperf_runner", "run", "--scheduler", "background"]
    argv += ["--site", "site.yml", "--campaign", "c", "--workload", "nccl-allreduce"]
    argv += ["--matrix", "smoke", "--nodes", "1"]
    done = captured(*argv, cwd=tmp_path, env={**os.environ, "PYTHONPATH": ""}, timeout=120)
    (record,) = tmp_path.glob("c/runs/*/r1/run.json")
    outcome = json.loads(record.read_text())["outcome"]
    assert outcome["status"] == "done", done.stdout + done.stderr
    assert list(outcome["hosts"]) == [os.uname().nodename]
    (log,) = record.parent.glob("*.log")
    assert re.fullmatch(r"\d+ words\n", log.read_text())
