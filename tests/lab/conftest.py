"""Labs for tests, each with a directory of its own: a lab that a user has up is left alone."""

import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fault_campaigns import faulty_workload, lab_of_two
from gpu_cluster import Cluster
from lab_under_test import FEW_FRAMEWORKS, FRAMEWORKS, PROJECT, Lab, alone
from system_plays import Played, States


@pytest.fixture(scope="session")
def frameworks(request: pytest.FixtureRequest) -> str:
    """Those of the mirror and of the session's lab: all only if tests of a suite may need them."""
    is_suite = any(item.get_closest_marker("heavy") for item in request.session.items)
    return FRAMEWORKS if is_suite else FEW_FRAMEWORKS


@pytest.fixture(scope="session")
def mirror(frameworks: str) -> Path:
    """What the nodes of all labs install from: one folder, which has all that any of them needs."""
    argv = [sys.executable, "-m", "dlperf_runner", "bundle", "--stack", "cpu"]
    argv += ["--framework", frameworks, "--package", "lmod", "--json"]
    with alone("mirror"):
        done = subprocess.run(argv, cwd=PROJECT, capture_output=True, text=True, check=False)
    # 1: the archive lacks packages that only some tests install, such as Slurm's.
    assert done.returncode in (0, 1), done.stderr
    return PROJECT / ".cache/mirror/cpu-bookworm"


@pytest.fixture(scope="session")
def old_ansible(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs of the oldest ansible-core are that is supported, 2.16 with ansible 9."""
    made = tmp_path_factory.mktemp("ansible-2.16") / "venv"
    venv.create(made, with_pip=True)
    locked = PROJECT / "requirements/ansible-2.16.txt"
    pip = [made / "bin/python", "-m", "pip", "install", "--quiet", "--require-hashes"]
    subprocess.run([*pip, "-r", locked], check=True, timeout=600)
    return made / "bin"


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, mirror: Path) -> Iterator[Lab]:
    """Two nodes, up for the whole session; whatever a test changes on them, later tests find."""
    assert mirror.is_dir()
    with Lab(tmp_path_factory.mktemp("session") / "lab").is_up(lab_nodes=2) as made:
        yield made


@pytest.fixture
def results_kept() -> Iterator[None]:
    """What a test adds to results/ goes again, and what it replaces comes back."""
    results = PROJECT / "results"
    before, spreads = set(results.glob("*")), results / "aa.json"
    content = spreads.read_bytes() if spreads.exists() else None
    yield
    for path in set(results.glob("*")) - before:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    if content is not None:
        spreads.write_bytes(content)


# The nodes and the workload of test_faults.py and its neighbours.


@pytest.fixture(scope="module")
def faulty_lab(tmp_path_factory: pytest.TempPathFactory, mirror: Path) -> Iterator[Lab]:
    assert mirror.is_dir()
    with lab_of_two(tmp_path_factory.mktemp("faults")) as made:
        yield made


@pytest.fixture(scope="module")
def faulty_catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return faulty_workload(tmp_path_factory.mktemp("catalog"))


# The plays of test_gpu_systems.py and test_rpm_systems.py, in order. These have a `cluster`, and
# `states`, which reads what all of its nodes are.


@pytest.fixture(scope="module")
def play(cluster: Cluster, states: Callable[[], States]) -> Callable[..., Played]:
    return lambda book, *options: Played(cluster.play(book, *options, status=None), states())


@pytest.fixture(scope="module")
def fresh(states: Callable[[], States]) -> States:
    return states()


@pytest.fixture(scope="module")
def checked(play: Callable[..., Played], fresh: States) -> Played:
    assert fresh
    return play("provision.yml", "--tags", "gpu", "--check", "--diff")


@pytest.fixture(scope="module")
def converged(play: Callable[..., Played], checked: Played) -> Played:
    assert checked
    return play("provision.yml", "--tags", "gpu")


@pytest.fixture(scope="module")
def again(play: Callable[..., Played], converged: Played) -> Played:
    assert converged
    return play("provision.yml", "--tags", "gpu", "--diff")


@pytest.fixture(scope="module")
def decommissioned(play: Callable[..., Played], again: Played) -> Played:
    assert again
    return play("playbooks/decommission.yml")


@pytest.fixture
def installed(play: Callable[..., Played], cluster: Cluster, again: Played) -> Played:
    """The second run; the nodes are as it left them, also where they were decommissioned since."""
    if cluster.lab.ssh("node1", "ls /var/lib/dlperf/undo").returncode != 0:
        for node in again.states:
            cluster.lab.said(node, "rm -f /var/log/standin-*.log")
        play("provision.yml", "--tags", "gpu")
    return again


@pytest.fixture(scope="module")
def campaign(nodes: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The smoke matrix of all workloads of a module's `nodes`, run by bench.yml."""
    directory = tmp_path_factory.mktemp("campaigns") / "first"
    nodes.play("bench.yml", "-e", f"campaign={directory}")
    return directory
