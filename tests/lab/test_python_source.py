"""A Python of its source, as stacks have it whose frameworks take none that a suite has: one node
of the lab builds it, the other gets what was built, and both make their environments with it.

Real are the source (CPython 3.11, which Debian keeps; 3.7.17, which the stack names, is behind an
address that tests do not reach), the mirror that `bundle` makes with it, compiler and interpreter.

The tests build on each other, in the order in which they stand.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from debian_source import upstream_source
from lab_under_test import Lab
from node_state import differences, node_state

from dlperf_runner.bundle.folder.files import digest

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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    scratch = tmp_path_factory.mktemp("python")
    source, mirror = upstream_source("python3.11", scratch), scratch / "mirror"
    lab = Lab(scratch / "lab")
    made = lab.command(
        *(sys.executable, "-m", "dlperf_runner", "bundle", "--stack", STACK),
        *("--framework", "mxnet-mkl", "--output", str(mirror)),
        *("--file", f"python_archive={source}", "--checksum", f"python_sha256={digest(source)}"),
    )
    assert made.returncode == 0, made.stdout
    lab.up(lab_nodes=2, lab_mirror_dir=mirror)
    variables = {
        "dlperf_stack": STACK,
        "dlperf_frameworks": [],
        "node_base_mirror_key": str(mirror / "apt/dlperf-mirror.asc"),
        "python_version": VERSION,
        "python_archive": "http://10.11.0.1:8010/vendor/www.python.org/ftp/python/3.7.17/"
        "Python-3.7.17.tgz",
        "python_sha256": digest(source),
        "python_cache": str(scratch / "cache"),
        "python_configure_options": [],  # with them it takes a quarter of an hour
    }
    try:
        yield Cluster(lab, variables, {node: node_state(lab, node) for node in NODES})
    finally:
        lab.down()


def test_a_source_without_a_checksum_is_refused_before_anything_changes(cluster: Cluster) -> None:
    status, output = cluster.play("provision.yml", python_sha256="")
    assert status == 2
    assert "The source of Python 3.11.2 has no known checksum" in output
    assert "Set python_sha256" in output
    assert node_state(cluster.lab, "node2") == cluster.before["node2"]


def test_check_mode_passes_on_fresh_nodes_and_changes_nothing(cluster: Cluster) -> None:
    cluster.provision("--check", "--diff")
    assert node_state(cluster.lab, "node2") == cluster.before["node2"]


def test_one_node_builds_it_and_both_make_their_environments_with_it(cluster: Cluster) -> None:
    cluster.provision()
    (record,) = Path(str(cluster.variables["python_cache"])).glob("*/build.json")
    assert json.loads(record.read_text())["built_on"] == "node1"
    for node in NODES:
        shown = "import sys, ssl, ctypes; print(sys.version_info[:3], sys.base_prefix)"
        said = cluster.lab.said(node, f"{PREFIX}/bin/python3 -c '{shown}'")
        assert said == f"(3, 11, 2) {PREFIX}"
        assert f"home = {PREFIX}/bin" in cluster.lab.said(node, "cat /opt/dlperf/uv/pyvenv.cfg")
        assert cluster.lab.said(node, "/opt/dlperf/uv/bin/uv --version").startswith("uv ")
        assert cluster.lab.said(node, f"stat -c %U:%a {PREFIX}/bin/python3.11") == "root:755"
    assert cluster.lab.ssh("node2", "command -v gcc").stdout == ""


def test_the_second_run_changes_nothing(cluster: Cluster) -> None:
    output = cluster.provision("--diff")
    assert re.findall(r"node\d : ok=\d+ changed=(\d+)", output) == ["0", "0"]


def test_the_role_alone_finds_its_own_and_changes_nothing(cluster: Cluster) -> None:
    given: dict[str, object] = {"role": "python", "python_version": VERSION}
    status, output = cluster.play("tests/lab/plays/role.yml", **given)
    assert status == 0, output
    assert re.findall(r"node\d : ok=\d+ changed=(\d+)", output) == ["0", "0"]


def test_one_that_lacks_a_module_is_not_proven(cluster: Cluster) -> None:
    status, output = cluster.play(
        "provision.yml", "--limit", "node2", python_modules=["zlib", "tkinter"]
    )
    assert status == 2
    assert "No module named '_tkinter'" in output


def test_a_stack_without_one_takes_it_off(cluster: Cluster) -> None:
    cluster.provision("--limit", "node2", dlperf_stack="cpu", python_version="")
    assert cluster.lab.ssh("node2", f"ls {PREFIX}").stdout == ""
    assert "home = /usr/bin" in cluster.lab.said("node2", "cat /opt/dlperf/uv/pyvenv.cfg")


def test_decommissioning_leaves_the_nodes_as_they_were(cluster: Cluster) -> None:
    status, output = cluster.play("playbooks/decommission.yml")
    assert status == 0, output
    for node in NODES:
        assert differences(cluster.lab, node, cluster.before[node]) == []
