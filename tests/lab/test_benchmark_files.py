"""A run's program puts what only root may read where root's connection finds the run's files.

tests/library/test_benchmark_fetch.py, which is in `make test`, has the module's own tests of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab_under_test import Lab

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.nodes]

SECRET = "planted-0c7b1e5fa9"  # noqa: S105
INSTEAD_OF_LOG = "echo trained; rm {log}; ln -s /root/secret {log}"
# Ended, it says, and /root/secret is what was seen of the GPUs.
AS_TELEMETRY = (
    """sed -i 's/"started": [0-9.]*/"started": 1.0, "finished": true, "exit_status": 0,"""
    """ "ended": 2.0, "reason": "", "telemetry": ["\\/root\\/secret"]/' job.json; sleep 3"""
)
BESIDE_LOG = "ln -s /root/secret telemetry-node1.csv"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, mirror: Path) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("files") / "lab").running(nodes=1, mirror=mirror) as made:
        made.play("provision.yml", "--tags", "node_base")
        made.said("node1", f"umask 077 && echo {SECRET} > /root/secret")
        made.said("node1", "install -d -o dlperf /opt/dlperf/runs")  # as benchmark_source does
        yield made


def campaign_of(lab: Lab, directory: Path, script: str) -> dict[str, Any]:
    """Run a shell script as the user of benchmarks, in a planned run's place; its outcome."""
    argv = ["plan", "--json", "--model", "resnet50v1b", "--nodes", "1", "--gpus-per-node", "1"]
    done = lab.command(sys.executable, "-m", "dlperf_runner", *argv, "--campaign", str(directory))
    assert done.returncode == 0, done.stdout
    (run,) = json.loads(done.stdout)["runs"]
    command = run["commands"][0]
    command |= {"argv": ["sh", "-c", script.format(log=run["log_name"])], "env": {}, "cwd": ""}
    given = {"benchmark_run_campaign": str(directory), "benchmark_run_run": run}
    # Samples are fetched where the node has GPUs.
    run["accelerator"] = "a GPU"
    lab.play("tests/lab/plays/role.yml", "-e", json.dumps({"role": "benchmark_run"} | given))
    record = json.loads((directory / "runs" / run["id"] / "run.json").read_text())
    return record["outcome"]


def kept(directory: Path) -> dict[str, str]:
    files = [path for path in (directory / "runs").rglob("*") if path.is_file()]
    return {path.name: path.read_text() for path in files}


@pytest.mark.parametrize("script", [INSTEAD_OF_LOG, BESIDE_LOG])
def test_link_to_what_root_keeps_is_not_followed(lab: Lab, tmp_path: Path, script: str) -> None:
    assert SECRET in lab.said("node1", "cat /root/secret")  # the connection is root's
    outcome = campaign_of(lab, tmp_path / "campaign", script)
    assert (outcome["status"], outcome["exit_status"]) == ("failed", 0)
    assert "was not fetched: /opt/dlperf/runs/campaign/" in outcome["message"]
    assert "it is a symbolic link, not a regular file" in outcome["message"]
    files = kept(tmp_path / "campaign")
    assert not [name for name, text in files.items() if SECRET in text]
    assert len(files) == (1 if script == INSTEAD_OF_LOG else 2)  # run.json and a log


def test_file_that_a_forged_state_names_is_not_fetched(lab: Lab, tmp_path: Path) -> None:
    campaign_of(lab, tmp_path / "campaign", AS_TELEMETRY)
    files = kept(tmp_path / "campaign")
    assert len(files) == 2
    assert SECRET not in "".join(files.values())
