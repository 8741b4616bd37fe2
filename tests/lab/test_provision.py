"""provision.yml on four fresh nodes of the lab: check, converge, again, verify, and a dead node.

The tests build on each other, in the order in which they stand.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.lab

PROJECT = Path(__file__).parents[2]
NODES = ("node1", "node2", "node3", "node4")
RECAP = re.compile(r"^(node\d+) +: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """What a playbook said, and its counts (ok, changed, unreachable, failed, ...) per node."""

    status: int
    output: str

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        return {
            node: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", counts)}
            for node, counts in RECAP.findall(self.output)
        }

    def count(self, key: str) -> dict[str, int]:
        return {node: counts[key] for node, counts in self.counts.items()}


@dataclass(frozen=True)
class Lab:
    directory: Path

    def environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return os.environ | {"DLPERF_LAB_DIR": str(self.directory), "PATH": path}

    def play(self, playbook: str, *options: str) -> Outcome:
        finished = subprocess.run(
            ["ansible-playbook", playbook, *options],
            cwd=PROJECT,
            env=self.environment() | {"ANSIBLE_NOCOLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=1500,
        )
        return Outcome(finished.returncode, finished.stdout)

    def on(self, node: str, command: str, *options: str) -> subprocess.CompletedProcess[str]:
        argv = ["ssh", "-F", str(self.directory / "ssh_config"), *options, node, command]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Four bare nodes of this module's own, and the mirror that they install from."""
    made = Lab(tmp_path_factory.mktemp("provision") / "lab")
    subprocess.run(
        [sys.executable, "-m", "dlperf_runner", "bundle", "--stack", "cpu"], cwd=PROJECT, check=True
    )
    up = made.play("playbooks/lab.yml")
    assert up.status == 0, up.output
    yield made
    down = made.play("playbooks/lab.yml", "-e", "lab_state=absent")
    assert down.status == 0, down.output


def everywhere(value: int) -> dict[str, int]:
    return dict.fromkeys(NODES, value)


def test_check_mode_passes_on_fresh_nodes_and_changes_nothing(lab: Lab) -> None:
    checked = lab.play("provision.yml", "--check", "--diff")
    assert checked.status == 0, checked.output
    assert checked.count("failed") == everywhere(0)
    assert "+10.11.0.2 node1" in checked.output
    assert "no such user" in lab.on("node1", "id dlperf").stderr
    assert lab.on("node1", "test -e /opt/dlperf").returncode == 1


def test_the_second_run_changes_nothing(lab: Lab) -> None:
    first = lab.play("provision.yml")
    assert first.status == 0, first.output
    assert all(first.count("changed").values())
    second = lab.play("provision.yml")
    assert second.status == 0, second.output
    assert second.count("changed") == everywhere(0), second.output


def test_the_benchmarks_user_is_an_ordinary_one(lab: Lab) -> None:
    assert lab.on("node2", "id -Gn dlperf").stdout.split() == ["dlperf"]
    assert lab.on("node2", "id -u dlperf").stdout.strip() != "0"
    assert lab.on("node2", "runuser -u dlperf -- sudo -n true").returncode != 0
    assert lab.on("node2", "runuser -u dlperf -- touch /opt/dlperf/x").returncode != 0


def test_every_node_reaches_every_other_one_and_checks_its_key(lab: Lab) -> None:
    for node in NODES:
        others = [other for other in NODES if other != node]
        loop = f"for n in {' '.join(others)}; do ssh -o BatchMode=yes $n hostname; done"
        reached = lab.on(node, f"runuser -u dlperf -- sh -c '{loop}'")
        assert reached.stdout.split() == others, reached.stderr
    configured = lab.on(
        "node1", "cat /etc/ssh/ssh_config /etc/ssh/ssh_config.d/* ~dlperf/.ssh/config"
    )
    assert "StrictHostKeyChecking no" not in re.sub(r"#.*", "", configured.stdout)
    stranger = "runuser -u dlperf -- ssh -o BatchMode=yes 127.0.0.1 true"
    assert "Host key verification failed" in lab.on("node1", stranger).stderr


def test_the_keys_open_nothing_from_outside_of_the_cluster(lab: Lab, tmp_path: Path) -> None:
    key = tmp_path / "stolen"
    key.write_text(lab.on("node1", "cat ~dlperf/.ssh/id_ed25519").stdout)
    key.chmod(0o600)
    login = ("-o", f"IdentityFile={key}", "-o", "ControlPath=none", "-l", "dlperf")
    config = (lab.directory / "ssh_config").read_text().replace("IdentityFile", "# IdentityFile")
    (tmp_path / "config").write_text(config)
    refused = subprocess.run(
        ["ssh", "-F", tmp_path / "config", *login, "node2", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 255
    assert "Permission denied" in refused.stderr


def test_mpirun_starts_on_other_nodes_as_the_ordinary_user(lab: Lab) -> None:
    hosts = ",".join(f"{node}:1" for node in NODES)
    argv = f"mpirun --bind-to none --mca oob_tcp_if_include eth0 --host {hosts} hostname"
    started = lab.on("node1", f"cd / && runuser -u dlperf -- {argv}")
    assert sorted(started.stdout.split()) == list(NODES), started.stderr


def test_the_all_reduce_is_proven_again_on_request(lab: Lab) -> None:
    stamp = "stat -c %U:%Y /opt/dlperf/stamps/horovod-mxnet.json"
    before = lab.on("node1", stamp).stdout
    assert before.startswith("root:")
    verified = lab.play("provision.yml", "--tags", "verify", "--limit", "node1,node2")
    assert verified.status == 0, verified.output
    assert verified.count("changed") == {"node1": 0, "node2": 0}
    assert lab.on("node1", stamp).stdout == before


def test_an_interface_that_is_not_there_is_no_proof(lab: Lab) -> None:
    refused = lab.play(
        "provision.yml", "--tags", "openmpi", "--limit", "node1,node2", "-e", "dlperf_interface=ib0"
    )
    assert refused.status == 2
    assert refused.count("failed") == {"node1": 1, "node2": 1}
    assert "openmpi is not proven" in refused.output


def test_a_dead_node_is_reported_and_the_others_go_on(lab: Lab) -> None:
    lab.on("node2", "rm /etc/ssh/ssh_known_hosts /opt/dlperf/stamps/openmpi.json")
    lab.on("node1", "kill 1")
    outcome = lab.play("provision.yml")
    assert outcome.status == 4
    assert outcome.counts["node1"]["unreachable"] == 1
    rest = {node: outcome.counts[node] for node in NODES[1:]}
    assert all(not counts["failed"] and not counts["unreachable"] for counts in rest.values())
    assert rest["node2"]["changed"]
    known = lab.on("node2", "cat /etc/ssh/ssh_known_hosts").stdout
    assert "node4,10.11.0.5 ssh-ed25519 " in known
    # The others keep what they know of the node that is down, until it leaves the inventory.
    assert "node1,10.11.0.2 ssh-ed25519 " in lab.on("node3", "cat /etc/ssh/ssh_known_hosts").stdout
