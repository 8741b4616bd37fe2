"""64 nodes: a second provisioning, runs on all, and an environment passed from node to node.

The 64 nodes start from a root filesystem that already has the packages and the environment. If each
of them installed its own, they would not fit into memory.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from lab_under_test import Lab, Shared, sharing

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.nodes]  # minutes

FEW, NODES = 4, 64
ENVIRONMENT = "/opt/dlperf/envs/nccl"
# What belongs to one node alone.
OWN = ("opt/dlperf/stamps", "etc/ssh/ssh_host_*", "home/dlperf/.ssh", "root/.ssh", "tmp/*")
TAKING = "TASK [framework : Take them from node to node"


def output_of(lab: Lab, title: str, *arguments: str) -> str:
    """What a provisioning printed about one task."""
    return lab.play("provision.yml", *arguments).partition(title)[2].partition("TASK [")[0]


# ---- from node to node


@dataclass(frozen=True)
class Few:
    """Four provisioned nodes. `taken`: what was said when they got their environment; `digests`: of
    the environment, on all nodes."""

    lab: Lab
    taken: str
    digests: set[str]


@contextmanager
def provisioned(scratch: Path, mirror: Path) -> Iterator[Few]:
    with Lab(scratch / "lab").running(FEW, mirror=mirror, frameworks="nccl") as lab:
        taken, digest = output_of(lab, TAKING), f"tar -c --sort=name -C {ENVIRONMENT} . | sha256sum"
        yield Few(lab, taken, {lab.said(f"node{n}", digest) for n in range(1, FEW + 1)})


shared = sharing(provisioned)


@pytest.fixture
def few(shared: Shared[Few]) -> Few:
    return shared.get()


def test_one_node_makes_an_environment_and_the_others_take_it_from_each_other(few: Few) -> None:
    lab = few.lab
    assert sorted(re.findall(r"changed: \[(\w+)\]", few.taken)) == ["node2", "node3", "node4"]
    assert len(few.digests) == 1
    for node in ("node1", "node4"):
        code = "import mpi4py; print(mpi4py.__file__)"
        shown = lab.said(node, f"runuser -u dlperf -- {ENVIRONMENT}/bin/python -c '{code}'")
        assert shown.startswith(ENVIRONMENT)
        assert lab.ssh(node, "test -e /opt/dlperf/copies").returncode == 1
    assert "changed=0" in lab.play("provision.yml")


def test_a_node_that_gets_none_makes_its_own(few: Few) -> None:
    """node3 trusts nobody any more, and node4 takes it from the node that made it."""
    lab = few.lab
    for node in ("node2", "node3", "node4"):
        lab.said(node, f"rm -r {ENVIRONMENT}")
    lab.said("node3", "mv /etc/ssh/ssh_known_hosts /srv")
    taken = output_of(lab, TAKING, "-v", "--tags", "framework")
    assert re.findall(r"changed: \[(\w+)\]", taken) == ["node4"]
    assert "Host key verification failed" in taken
    for node in ("node2", "node3", "node4"):
        lab.said(node, f"{ENVIRONMENT}/bin/python -c 'import mpi4py'")
    lab.said("node3", "mv /srv/ssh_known_hosts /etc/ssh")


# ---- many


@pytest.fixture(scope="module")
def many(shared: Shared[Few], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    base = tmp_path_factory.mktemp("base")
    few = shared.last().lab
    without = " ".join(f"--exclude='./{pattern}'" for pattern in OWN)
    pack = few.ssh_argv("node1", f"tar --create --one-file-system {without} --directory / .")
    with (base / "bookworm.tar").open("wb") as archive:
        subprocess.run(pack, stdout=archive, check=True, timeout=300)
    shared.close()
    made = Lab(tmp_path_factory.mktemp("many") / "lab")
    with made.is_up(lab_nodes=NODES, lab_frameworks="nccl", lab_cache_dir=base) as lab:
        lab.play("provision.yml")
        yield lab


def test_a_second_provisioning_changes_what_changed_on_one_of_them(many: Lab) -> None:
    many.said("node63", "chmod 0700 /opt/dlperf")
    output = many.play("provision.yml")
    assert re.search(r"^node63 .*changed=1 ", output, re.M)
    assert len(re.findall(r"^node\d+ .*changed=0 .*failed=0", output, re.M)) == NODES - 1, output
    assert many.said("node63", "stat -c %a /opt/dlperf") == "755"


@dataclass(frozen=True)
class Runs:
    directories: list[Path]
    logins: dict[str, int]


# A program that ends at once, and whose first rank says so.
SAYS = """/bin/sh -c '[ $OMPI_COMM_WORLD_RANK != 0 ] || printf "step %s rate 1.0\\n" 1 2 3'"""
NOTHING = ("--name", "nothing", "--framework", "nccl", "--launcher", "mpirun", "--unit", "samples")
NOTHING += ("--command", SAYS, "--total-steps", "3", "--rates-are-per", "world")
NOTHING += ("--regex", r"step (?P<step>\d+) rate (?P<rate>[\d.]+)", "--warmup-steps", "0")
RUNS = 3


def logins(lab: Lab) -> dict[str, int]:
    """How often the benchmarks' user has logged in to each node."""
    line = "Accepted publickey for dlperf from"
    return {log.stem: log.read_text().count(line) for log in (lab.directory / "log").glob("node*")}


@pytest.fixture(scope="module")
def runs(many: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """A campaign of several runs on all nodes."""
    directory = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DLPERF_CATALOG", str(directory / "catalog"))
        argv = (sys.executable, "-m", "dlperf_runner", "init-workload", *NOTHING)
        done = many.command(*argv, "--topologies", f"{NODES}n1g")
        assert done.returncode == 0, done.stdout
        before = logins(many)
        chosen = {"workload": "nothing", "nodes": NODES, "repeats": RUNS}
        chosen["campaign"] = str(directory / "campaign")
        many.play("bench.yml", *(f"-e{key}={value}" for key, value in chosen.items()))
    after = logins(many)
    found = sorted((directory / "campaign/runs").glob("*/r*"), key=lambda run: run.name)
    assert len(found) == RUNS
    yield Runs(found, {node: after[node] - before[node] for node in after})


def test_one_login_per_node_serves_all_runs_of_a_campaign(many: Lab, runs: Runs) -> None:
    """mpirun's own is one more for each run. The first node watches the others through it: who else
    uses them, their load and their lock."""
    for run in runs.directories:
        outcome = json.loads((run / "run.json").read_text())["outcome"]
        assert outcome["status"] == "done"
        assert "unsampled_from_s" not in outcome
        assert len(list(run.glob("telemetry-node*.csv"))) == NODES
    assert {n for node, n in runs.logins.items() if node != "node1"} == {RUNS + 1}
    for node in ("node1", "node2", "node64"):  # nothing is left
        assert many.said(node, "find /proc -maxdepth 1 -user dlperf -name '[0-9]*'") == ""
