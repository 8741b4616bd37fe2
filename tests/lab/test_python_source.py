"""A Python of its source, as stacks have it whose frameworks take none that a suite has: one node
of the lab builds it, the other gets what was built, and both make their environments with it.

Real are the source (CPython 3.11, which Debian keeps; 3.7.17, which the stack names, is behind an
address that tests do not reach), the mirror that `bundle` makes with it, compiler and interpreter.
"""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from debian_source import upstream_source
from lab_under_test import Lab, Shared
from node_state import differences, node_state

from dlperf_runner.bundle.manifest import digest

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.build]  # minutes of compiling

STACK, VERSION = "cpu-published", "3.11.2"  # of the suite that the lab's nodes have
PREFIX = "/opt/dlperf/python"
NODES = ("node1", "node2")


@dataclass(frozen=True)
class Cluster:
    lab: Lab
    variables: dict[str, object]
    before: dict[str, list[str]]

    def play(self, book: str, *options: str, **changed: object) -> tuple[int, str]:
        given = json.dumps({**self.variables, **changed})
        done = self.lab.command("ansible-playbook", book, "-e", given, *options)
        # As one line each: messages are wrapped.
        return done.returncode, re.sub(r"\s+", " ", done.stdout)

    def provision(self, *options: str, **changed: object) -> str:
        status, output = self.play("provision.yml", *options, **changed)
        assert status == 0, output
        return output


@dataclass(frozen=True)
class Built:
    """Two nodes with the Python that one of them built, and what was said on the way there.
    `states`: of node2, after the refusal and after check mode."""

    cluster: Cluster
    refused: tuple[int, str]
    states: tuple[list[str], list[str]]
    again: str


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    """The mirror that the nodes install from, and the variables of the plays."""
    scratch = tmp_path_factory.mktemp("python")
    archive, mirror = upstream_source("python3.11", scratch), scratch / "mirror"
    made = Lab(scratch).command(
        *(sys.executable, "-m", "dlperf_runner", "bundle", "--stack", STACK),
        *("--framework", "mxnet-mkl", "--output-dir", str(mirror)),
        *("--file", f"python_archive={archive}", "--checksum", f"python_sha256={digest(archive)}"),
    )
    assert made.returncode == 0, made.stdout
    return mirror, {
        "dlperf_stack": STACK,
        "dlperf_frameworks": [],
        "node_base_mirror_key": str(mirror / "apt/dlperf-mirror.asc"),
        "python_version": VERSION,
        "python_archive": "http://10.11.0.1:8010/vendor/www.python.org/ftp/python/3.7.17/"
        "Python-3.7.17.tgz",
        "python_sha256": digest(archive),
        "python_cache": str(scratch / "cache"),
        "python_configure_options": [],  # with them it takes a quarter of an hour
    }


@contextmanager
def provisioned(directory: Path, mirror: Path, given: dict[str, object]) -> Iterator[Built]:
    with Lab(directory).running(nodes=len(NODES), mirror=mirror) as lab:
        cluster = Cluster(lab, given, {node: node_state(lab, node) for node in NODES})
        refused = cluster.play("provision.yml", python_sha256="")
        after_refusal = node_state(lab, "node2")
        cluster.provision("--check", "--diff")
        states = (after_refusal, node_state(lab, "node2"))
        cluster.provision()
        yield Built(cluster, refused, states, cluster.provision("--diff"))


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, source: tuple[Path, dict[str, object]]
) -> Iterator[Shared[Built]]:
    new = tmp_path_factory.mktemp
    with closing(Shared(lambda: provisioned(new("nodes") / "lab", *source))) as made:
        yield made


@pytest.fixture
def built(shared: Shared[Built]) -> Built:
    return shared.get()


def test_a_source_without_a_checksum_is_refused_before_anything_changes(built: Built) -> None:
    status, output = built.refused
    assert status == 2
    assert "The source of Python 3.11.2 has no known checksum" in output
    assert "Set python_sha256" in output
    assert built.states[0] == built.cluster.before["node2"]


def test_check_mode_passes_on_fresh_nodes_and_changes_nothing(built: Built) -> None:
    assert built.states[1] == built.cluster.before["node2"]


def test_one_node_builds_it_and_both_have_it(built: Built) -> None:
    lab = built.cluster.lab
    (record,) = Path(str(built.cluster.variables["python_cache"])).glob("*/build.json")
    assert json.loads(record.read_text())["built_on"] == "node1"
    for node in NODES:
        shown = "import sys, ssl, ctypes; print(sys.version_info[:3], sys.base_prefix)"
        said = lab.said(node, f"{PREFIX}/bin/python3 -c '{shown}'")
        assert said == f"(3, 11, 2) {PREFIX}"
        assert lab.said(node, f"stat -c %U:%a {PREFIX}/bin/python3.11") == "root:755"
    # No framework is chosen, so that no node needs uv.
    assert lab.ssh("node2", "command -v gcc || ls /opt/dlperf/uv").stdout == ""


def test_the_second_run_changes_nothing(built: Built) -> None:
    assert re.findall(r"node\d : ok=\d+ changed=(\d+)", built.again) == ["0", "0"]


def test_the_role_alone_finds_its_own_and_changes_nothing(built: Built) -> None:
    given: dict[str, object] = {"role": "python", "python_version": VERSION}
    status, output = built.cluster.play("tests/lab/plays/role.yml", **given)
    assert status == 0, output
    assert re.findall(r"node\d : ok=\d+ changed=(\d+)", output) == ["0", "0"]


def test_one_that_lacks_a_module_is_not_proven(built: Built) -> None:
    status, output = built.cluster.play(
        "provision.yml", "--limit", "node2", python_modules=["zlib", "tkinter"]
    )
    assert status == 2
    assert "No module named '_tkinter'" in output
    # Neither is what was proven before.
    built.cluster.provision("--limit", "node2", "--tags", "python")


def test_a_stack_without_one_takes_it_off_and_decommissioning_leaves_nodes_as_they_were(
    shared: Shared[Built],
) -> None:
    cluster = shared.last().cluster
    cluster.provision("--limit", "node2", dlperf_stack="cpu", python_version="")
    assert cluster.lab.ssh("node2", f"ls {PREFIX}").stdout == ""
    status, output = cluster.play("playbooks/decommission.yml")
    assert status == 0, output
    for node in NODES:
        assert differences(cluster.lab, node, cluster.before[node]) == []
