"""provision.yml on three fresh nodes, one without Python: check, converge, again, drift, and a dead
node; and what `doctor` says of them bare, provisioned and broken.

All but the frameworks, which test_end_to_end.py has two nodes for.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from lab_under_test import Lab, Shared, sharing

pytestmark = pytest.mark.lab

NODES = ("node1", "node2", "node3")
FEW = ("-e", '{"dlperf_frameworks": []}')
RECAP = re.compile(r"^(node\d+) +: (.*)$", re.MULTILINE)
# From the node's own package source, in whose place the mirror is here.
WITHOUT_PYTHON = """
echo 'deb [trusted=yes] http://10.11.0.1:8010/apt bookworm main' > /etc/apt/sources.list
apt-get -q update && apt-get -q -y purge '?installed ?name(python)'
"""
PYTHON_IS_THERE = "ls /usr/bin/python* /usr/lib/python3* 2> /dev/null; dpkg -l | grep python; true"

Findings = dict[tuple[str, str], dict[str, Any]]


@dataclass(frozen=True)
class Play:
    """A run of provision.yml, with the counts (ok, changed, unreachable, failed, ...) by node."""

    output: str
    counts: dict[str, dict[str, int]]

    def of(self, key: str) -> dict[str, int]:
        return {node: values[key] for node, values in self.counts.items()}

    def changed_by(self, task: str) -> list[str]:
        told = self.output.partition(f"TASK [{task}] ")[2].partition("TASK [")[0]
        return re.findall(r"changed: \[(node\d+)\]", told)


@dataclass(frozen=True)
class Nodes:
    """Three nodes, and how they were provisioned. `bare`: what the doctor said before; `left`: what
    there was on node1 and node3 after check mode."""

    lab: Lab
    bare: Findings
    checked: Play
    left: tuple[str, str]
    first: Play
    second: Play


def provision(lab: Lab, *options: str, status: int = 0) -> Play:
    done = lab.command("ansible-playbook", "provision.yml", *options)
    assert done.returncode == status, done.stdout
    counts = {
        node: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", text)}
        for node, text in RECAP.findall(done.stdout)
    }
    return Play(done.stdout, counts)


@contextmanager
def provisioned(scratch: Path, mirror: Path) -> Iterator[Nodes]:
    with Lab(scratch / "lab").running(nodes=len(NODES), mirror=mirror) as lab:
        bare = findings(lab, 1)
        lab.said("node3", WITHOUT_PYTHON)
        assert lab.said("node3", PYTHON_IS_THERE) == ""
        checked = provision(lab, "--check", "--diff")
        left = (
            lab.ssh("node1", "id dlperf 2>&1; ls -d /opt/dlperf").stdout,
            lab.said("node3", PYTHON_IS_THERE),
        )
        first, second = provision(lab, *FEW), provision(lab, *FEW, "--diff")
        yield Nodes(lab, bare, checked, left, first, second)


shared = sharing(provisioned)


@pytest.fixture
def nodes(shared: Shared[Nodes]) -> Nodes:
    return shared.get()


@pytest.fixture
def lab(nodes: Nodes) -> Lab:
    return nodes.lab


def everywhere(value: int) -> dict[str, int]:
    return dict.fromkeys(NODES, value)


def findings(lab: Lab, status: int) -> Findings:
    """What `doctor` says, by node and check."""
    done = lab.command(sys.executable, "-m", "dlperf_runner", "doctor", "--json")
    assert done.returncode == status, done.stdout
    told = json.loads(done.stdout)
    assert (told["status"] == "failed") == (status == 1)
    return {(found["node"], found["check"]): found for found in told["findings"]}


def failed(found: Findings) -> set[tuple[str, str]]:
    return {key for key, finding in found.items() if finding["status"] == "failed"}


def test_check_mode_passes_on_fresh_nodes_and_changes_nothing(nodes: Nodes) -> None:
    assert nodes.checked.of("failed") == everywhere(0)
    assert "+10.11.0.2 node1" in nodes.checked.output
    assert "no such user" in nodes.left[0]
    assert "/opt/dlperf" not in nodes.left[0].splitlines()


def test_the_doctor_says_what_bare_nodes_lack(nodes: Nodes) -> None:
    lacking = {(node, check) for node in NODES for check in ("openmpi", "ssh mesh")}
    assert failed(nodes.bare) == lacking | {("node1", "all-reduce")}
    assert "this node has no user dlperf" in nodes.bare["node1", "ssh mesh"]["found"]
    assert "provision.yml" in nodes.bare["node1", "ssh mesh"]["hint"]


def test_a_node_without_python_gets_one(nodes: Nodes) -> None:
    assert "node3: it has no Python (debian12)" in nodes.checked.output
    assert "Provisioning would install python3." in nodes.checked.output
    assert nodes.checked.of("changed")["node3"] == 0
    assert nodes.left[1] == ""
    assert nodes.first.changed_by("bootstrap : Install Python") == ["node3"]
    assert nodes.lab.said("node3", "/usr/bin/python3 --version").startswith("Python 3.11.")
    assert "Install Python" not in nodes.second.output


def test_the_second_run_changes_nothing(nodes: Nodes) -> None:
    assert all(nodes.first.of("changed").values())
    assert nodes.second.of("changed") == everywhere(0), nodes.second.output
    assert "Validating arguments" not in nodes.second.output  # no role had anything to do


def test_the_doctor_finds_provisioned_nodes_fit_and_changes_nothing(lab: Lab) -> None:
    files = "find /opt/dlperf /etc -newer /etc/hostname -type f | sort"
    before = lab.said("node1", files)
    assert failed(findings(lab, 0)) == set()
    assert lab.said("node1", files) == before


def test_what_was_changed_by_hand_is_found_and_mended(lab: Lab) -> None:
    lab.said("node1", "sed -i /10.11.0.3/d /etc/hosts")
    lab.said("node2", "chmod 0700 /opt/dlperf")
    lab.said("node3", "rm ~dlperf/.ssh/authorized_keys")
    lab.said("node2", "sed -i s/12/10/ /etc/os-release")
    broken = findings(lab, 1)
    assert failed(broken) == {
        ("node1", "ssh mesh"),
        ("node2", "ssh mesh"),
        ("node1", "all-reduce"),
        ("node2", "system"),
        ("", "system"),
    }
    assert "node2" in broken["node1", "ssh mesh"]["found"]
    assert "node3" in broken["node2", "ssh mesh"]["found"]
    assert broken["", "system"]["found"].startswith("node2: debian10")
    done = lab.command("ansible-playbook", "playbooks/preflight.yml", "--limit", "node2")
    assert done.returncode == 2
    assert "At least one node is not ready for benchmarks" in done.stdout
    assert "failed  system: expected" in done.stdout
    lab.said("node2", "sed -i s/10/12/ /etc/os-release")
    mended = provision(lab, "--tags", "node_base,ssh_mesh")
    assert mended.of("changed") == everywhere(1), mended.output
    assert "10.11.0.3 node2" in lab.said("node1", "cat /etc/hosts")
    assert lab.said("node2", "stat -c %a /opt/dlperf") == "755"
    assert lab.said("node3", "stat -c '%U %a' ~dlperf/.ssh/authorized_keys") == "dlperf 600"


def test_the_benchmarks_user_is_an_ordinary_one(lab: Lab) -> None:
    assert lab.said("node2", "id -Gn dlperf").split() == ["dlperf"]
    assert lab.said("node2", "id -u dlperf") != "0"
    assert lab.ssh("node2", "runuser -u dlperf -- sudo -n true").returncode != 0
    assert lab.ssh("node2", "runuser -u dlperf -- touch /opt/dlperf/x").returncode != 0


def test_every_node_reaches_every_other_one_and_checks_its_key(lab: Lab) -> None:
    for node in NODES:
        others = [other for other in NODES if other != node]
        loop = f"for n in {' '.join(others)}; do ssh -o BatchMode=yes $n hostname; done"
        reached = lab.ssh(node, f"runuser -u dlperf -- sh -c '{loop}'")
        assert reached.stdout.split() == others, reached.stderr
    files = "/etc/ssh/ssh_config /etc/ssh/ssh_config.d/* ~dlperf/.ssh/config"
    settings = re.sub(r"#.*", "", lab.ssh("node1", f"cat {files}").stdout)
    assert "StrictHostKeyChecking no" not in settings
    stranger = "runuser -u dlperf -- ssh -o BatchMode=yes 127.0.0.1 true"
    assert "Host key verification failed" in lab.ssh("node1", stranger).stderr


def test_the_keys_open_nothing_from_outside_of_the_cluster(lab: Lab, tmp_path: Path) -> None:
    key = tmp_path / "stolen"
    key.write_text(lab.said("node1", "cat ~dlperf/.ssh/id_ed25519") + "\n")
    key.chmod(0o600)
    config = tmp_path / "config"
    text = (lab.directory / "ssh_config").read_text()
    config.write_text(re.sub(r"IdentityFile .*", f'IdentityFile "{key}"', text))
    refused = subprocess.run(
        ["ssh", "-F", config, "-o", "ControlPath=none", "dlperf@node2", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 255
    assert "Permission denied" in refused.stderr


def test_an_interface_that_is_not_there_is_no_proof(lab: Lab) -> None:
    chosen = ("--tags", "openmpi", "--limit", "node2,node3", "-e", "dlperf_interface=ib0")
    refused = provision(lab, *chosen, status=2)
    assert refused.of("failed") == {"node2": 1, "node3": 1}
    assert "verification of openmpi failed" in refused.output


def test_a_dead_node_is_reported_and_the_others_go_on(shared: Shared[Nodes]) -> None:
    lab = shared.last().lab
    lab.said("node2", "rm -f /etc/ssh/ssh_known_hosts /opt/dlperf/stamps/openmpi.json")
    lab.ssh("node1", "kill 1")
    play = provision(lab, *FEW, status=4)
    assert play.of("failed") == everywhere(0)
    assert play.of("unreachable") == everywhere(0) | {"node1": 1}
    assert play.of("changed")["node2"] > 0
    known = lab.said("node2", "cat /etc/ssh/ssh_known_hosts")
    assert "node3,10.11.0.4 ssh-ed25519 " in known
    # The others keep what they know of the node that is down, until it leaves the inventory.
    known = lab.said("node3", "cat /etc/ssh/ssh_known_hosts")
    assert "node1,10.11.0.2 ssh-ed25519 " in known
