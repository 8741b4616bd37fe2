"""provision.yml on three fresh nodes: check, converge, again, drift, and a dead node; and what
`doctor` says of them bare, provisioned and broken.

All but the frameworks, which test_end_to_end.py has two nodes for.

The tests build on each other, in the order in which they stand.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab_under_test import Lab

pytestmark = pytest.mark.lab

NODES = ("node1", "node2", "node3")
FEW = ("-e", '{"dlperf_frameworks": []}')
RECAP = re.compile(r"^(node\d+) +: (.*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory, mirror: Path) -> Iterator[Lab]:
    """Three bare nodes of this module's own."""
    made = Lab(tmp_path_factory.mktemp("provision") / "lab")
    made.up(lab_nodes=len(NODES))
    yield made
    made.down()


def provision(lab: Lab, *options: str) -> tuple[int, str, dict[str, dict[str, int]]]:
    """Exit status, output, and the counts (ok, changed, unreachable, failed, ...) per node."""
    done = lab.command("ansible-playbook", "provision.yml", *options)
    counts = {
        node: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", text)}
        for node, text in RECAP.findall(done.stdout)
    }
    return done.returncode, done.stdout, counts


def of(key: str, counts: dict[str, dict[str, int]]) -> dict[str, int]:
    return {node: values[key] for node, values in counts.items()}


def everywhere(value: int) -> dict[str, int]:
    return dict.fromkeys(NODES, value)


def findings(lab: Lab, status: int, *options: str) -> dict[tuple[str, str], dict[str, Any]]:
    """What `doctor` says, by node and check."""
    done = lab.command(sys.executable, "-m", "dlperf_runner", "doctor", "--json", *options)
    assert done.returncode == status, done.stdout
    told = json.loads(done.stdout)
    assert (told["status"] == "failed") == (status == 1)
    return {(found["node"], found["check"]): found for found in told["findings"]}


def failed(found: dict[tuple[str, str], dict[str, Any]]) -> set[tuple[str, str]]:
    return {key for key, finding in found.items() if finding["status"] == "failed"}


def test_check_mode_passes_on_fresh_nodes_and_changes_nothing(fresh: Lab) -> None:
    status, output, counts = provision(fresh, "--check", "--diff")
    assert status == 0, output
    assert of("failed", counts) == everywhere(0)
    assert "+10.11.0.2 node1" in output
    assert "no such user" in fresh.ssh("node1", "id dlperf").stderr
    assert fresh.ssh("node1", "test -e /opt/dlperf").returncode == 1


def test_the_doctor_says_what_bare_nodes_lack(fresh: Lab) -> None:
    bare = findings(fresh, 1)
    lacking = {(node, check) for node in NODES for check in ("openmpi", "ssh mesh")}
    assert failed(bare) == lacking | {("node1", "all-reduce")}
    assert "this node has no user dlperf" in bare["node1", "ssh mesh"]["found"]
    assert "provision.yml" in bare["node1", "ssh mesh"]["hint"]


def test_a_node_without_python_gets_one(fresh: Lab) -> None:
    """From the node's own package source, in whose place the mirror is here."""
    source = "deb [trusted=yes] http://10.11.0.1:8010/apt bookworm main"
    fresh.said("node3", f"echo '{source}' > /etc/apt/sources.list")
    fresh.said("node3", "apt-get -q update && apt-get -q -y purge '?installed ?name(python)'")
    is_there = "ls /usr/bin/python* /usr/lib/python3*"
    assert fresh.said("node3", f"{is_there} 2> /dev/null; dpkg -l | grep python; true") == ""
    base = ("--tags", "node_base", "--limit", "node3", *FEW)
    status, output, counts = provision(fresh, *base, "--check")
    assert status == 0, output
    assert "node3: it has no Python (debian12)" in output
    assert "Provisioning would install python3." in output
    assert of("changed", counts) == {"node3": 0}
    assert fresh.said("node3", f"{is_there} 2> /dev/null; true") == ""
    status, output, counts = provision(fresh, *base)
    assert status == 0, output
    installed = re.search(r"TASK \[bootstrap : Install Python\] \*+\nchanged: \[node3\]", output)
    assert installed, output
    assert fresh.said("node3", "/usr/bin/python3 --version").startswith("Python 3.11.")
    status, output, counts = provision(fresh, *base, "--diff")
    assert status == 0, output
    assert of("changed", counts) == {"node3": 0}, output
    assert "Install Python" not in output


def test_the_second_run_changes_nothing(fresh: Lab) -> None:
    status, output, counts = provision(fresh, *FEW)
    assert status == 0, output
    assert all(of("changed", counts).values())
    status, output, counts = provision(fresh, *FEW, "--diff")
    assert status == 0, output
    assert of("changed", counts) == everywhere(0), output
    assert "Validating arguments" not in output  # no role had anything to do


def test_the_doctor_finds_provisioned_nodes_fit_and_changes_nothing(fresh: Lab) -> None:
    files = "find /opt/dlperf /etc -newer /etc/hostname -type f | sort"
    before = fresh.said("node1", files)
    assert failed(findings(fresh, 0)) == set()
    assert fresh.said("node1", files) == before
    assert {node for node, _ in findings(fresh, 0, "--limit", "node2")} == {"node2"}


def test_what_was_changed_by_hand_is_found_and_mended(fresh: Lab) -> None:
    fresh.said("node1", "sed -i /10.11.0.3/d /etc/hosts")
    fresh.said("node2", "chmod 0700 /opt/dlperf")
    fresh.said("node3", "rm ~dlperf/.ssh/authorized_keys")
    fresh.said("node2", "sed -i s/12/10/ /etc/os-release")
    broken = findings(fresh, 1)
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
    done = fresh.command("ansible-playbook", "playbooks/preflight.yml", "--limit", "node2")
    assert done.returncode == 2
    assert "At least one node is not ready for benchmarks" in done.stdout
    assert "failed  system: expected" in done.stdout
    fresh.said("node2", "sed -i s/10/12/ /etc/os-release")
    status, output, counts = provision(fresh, "--tags", "node_base,ssh_mesh")
    assert status == 0, output
    assert of("changed", counts) == everywhere(1), output
    assert "10.11.0.3 node2" in fresh.said("node1", "cat /etc/hosts")
    assert fresh.said("node2", "stat -c %a /opt/dlperf") == "755"
    assert fresh.said("node3", "stat -c '%U %a' ~dlperf/.ssh/authorized_keys") == "dlperf 600"


def test_the_benchmarks_user_is_an_ordinary_one(fresh: Lab) -> None:
    assert fresh.said("node2", "id -Gn dlperf").split() == ["dlperf"]
    assert fresh.said("node2", "id -u dlperf") != "0"
    assert fresh.ssh("node2", "runuser -u dlperf -- sudo -n true").returncode != 0
    assert fresh.ssh("node2", "runuser -u dlperf -- touch /opt/dlperf/x").returncode != 0


def test_every_node_reaches_every_other_one_and_checks_its_key(fresh: Lab) -> None:
    for node in NODES:
        others = [other for other in NODES if other != node]
        loop = f"for n in {' '.join(others)}; do ssh -o BatchMode=yes $n hostname; done"
        reached = fresh.ssh(node, f"runuser -u dlperf -- sh -c '{loop}'")
        assert reached.stdout.split() == others, reached.stderr
    files = "/etc/ssh/ssh_config /etc/ssh/ssh_config.d/* ~dlperf/.ssh/config"
    settings = re.sub(r"#.*", "", fresh.ssh("node1", f"cat {files}").stdout)
    assert "StrictHostKeyChecking no" not in settings
    stranger = "runuser -u dlperf -- ssh -o BatchMode=yes 127.0.0.1 true"
    assert "Host key verification failed" in fresh.ssh("node1", stranger).stderr


def test_the_keys_open_nothing_from_outside_of_the_cluster(fresh: Lab, tmp_path: Path) -> None:
    key = tmp_path / "stolen"
    key.write_text(fresh.said("node1", "cat ~dlperf/.ssh/id_ed25519") + "\n")
    key.chmod(0o600)
    config = tmp_path / "config"
    text = (fresh.directory / "ssh_config").read_text()
    config.write_text(re.sub(r"IdentityFile .*", f'IdentityFile "{key}"', text))
    refused = subprocess.run(
        ["ssh", "-F", config, "-o", "ControlPath=none", "dlperf@node2", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 255
    assert "Permission denied" in refused.stderr


def test_a_strangers_key_stays(fresh: Lab) -> None:
    line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFE8 a colleague"
    fresh.said("node3", f"echo '{line}' >> ~dlperf/.ssh/authorized_keys")
    status, output, counts = provision(fresh, "--tags", "ssh_mesh", "--limit", "node3")
    assert status == 0, output
    assert of("changed", counts) == {"node3": 0}
    assert line in fresh.said("node3", "cat ~dlperf/.ssh/authorized_keys")


def test_mpirun_starts_on_other_nodes_as_the_ordinary_user(fresh: Lab) -> None:
    hosts = ",".join(f"{node}:1" for node in NODES)
    argv = f"mpirun --bind-to none --mca oob_tcp_if_include eth0 --host {hosts} hostname"
    started = fresh.ssh("node1", f"cd / && runuser -u dlperf -- {argv}")
    assert sorted(started.stdout.split()) == list(NODES), started.stderr


def test_an_interface_that_is_not_there_is_no_proof(fresh: Lab) -> None:
    status, output, counts = provision(
        fresh, "--tags", "openmpi", "--limit", "node2,node3", "-e", "dlperf_interface=ib0"
    )
    assert status == 2
    assert of("failed", counts) == {"node2": 1, "node3": 1}
    assert "verification of openmpi failed" in output


def test_a_python_that_no_environment_takes_is_refused_before_anything_changes(
    fresh: Lab,
) -> None:
    old = "#!/bin/sh\necho 3.13.5\n"
    fresh.said("node3", f"printf '{old}' > /usr/local/bin/other && chmod +x /usr/local/bin/other")
    status, output, counts = provision(
        fresh, "--limit", "node3", "-e", "python_env_interpreter=/usr/local/bin/other"
    )
    assert status == 2
    assert counts["node3"]["changed"] == 0
    assert "/usr/local/bin/other is 3.13.5" in output
    assert "this node also has /usr/bin/python3.11" in output


def test_a_dead_node_is_reported_and_the_others_go_on(fresh: Lab) -> None:
    fresh.said("node2", "rm -f /etc/ssh/ssh_known_hosts /opt/dlperf/stamps/openmpi.json")
    fresh.ssh("node1", "kill 1")
    status, output, counts = provision(fresh, *FEW)
    assert status == 4, output
    assert counts["node1"]["unreachable"] == 1
    assert of("failed", counts) == everywhere(0)
    assert of("unreachable", counts) == everywhere(0) | {"node1": 1}
    assert counts["node2"]["changed"] > 0
    known = fresh.said("node2", "cat /etc/ssh/ssh_known_hosts")
    assert "node3,10.11.0.4 ssh-ed25519 " in known
    # The others keep what they know of the node that is down, until it leaves the inventory.
    known = fresh.said("node3", "cat /etc/ssh/ssh_known_hosts")
    assert "node1,10.11.0.2 ssh-ed25519 " in known
