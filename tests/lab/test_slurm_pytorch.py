"""Slurm and PyTorch of Debian 13 on two nodes of the lab: an ordinary user trains from a login
node, by torchrun and by mpirun, and the results have the form of a campaign by SSH."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_under_test import PROJECT, Lab, alone
from slurm_lab import given, lab_with, run, shared_folder
from trained_campaigns import check, runs_of

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.slurm]

GIVEN = given("pytorch")
TORCH = "torch", "2.6.0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_folder(tmp_path_factory.mktemp("shared"), "pytorch", python="3.13")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[Lab]:
    bundle = [sys.executable, "-m", "dlperf_runner", "bundle", "--stack", "cpu"]
    bundle += ["--suite", "trixie", "--framework", "pytorch"]
    with alone("mirror"):
        subprocess.run(bundle, cwd=PROJECT, check=True, timeout=1800)
    directory = tmp_path_factory.mktemp("slurm") / "lab"
    with lab_with(folder, directory, lab_suite="trixie", lab_frameworks="pytorch") as made:
        made.play("provision.yml", "-e", json.dumps(GIVEN))
        yield made


@pytest.fixture(scope="module")
def llama(cluster: Lab, folder: Path) -> tuple[Path, str]:
    """A campaign, and what was printed when it was run."""
    status, text = run(cluster, "llama", "--workload", "pytorch-llama")
    assert status == 0, text
    return folder / "llama", text


def test_llama_learns_on_one_and_two_nodes(
    cluster: Lab, folder: Path, llama: tuple[Path, str]
) -> None:
    assert "node_num | gpu_num | tokens/s | tokens/s/device |" in llama[1]
    found = runs_of(llama[0])
    check(found, ["pytorch-llama"], *TORCH)
    assert all("torch.distributed.run" in str(record["commands"]) for record, _ in found)
    place = llama[0] / "runs" / str(found[-1][0]["id"])
    assert cluster.said("node1", f"stat -c %U /shared/{place.relative_to(folder)}") == "dlperf"
