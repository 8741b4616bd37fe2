"""What nodes share: the time, by chrony, and a folder in which one node makes the environments.

A node of the lab must not set the clock, so chrony runs with -x: it only measures. The shared
folder is one of this machine, bound into each node's root, in place of NFS, whose server a lab
cannot have.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from lab_under_test import Lab, Shared, sharing
from node_state import differences, node_state

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.nodes]  # minutes

NODES = ("node1", "node2")
FRAMEWORKS = {"dlperf_frameworks": ["mxnet"]}
TIME = {"dlperf_time": "chrony", "dlperf_time_servers": ["10.11.0.2"]}
SHARED = {"dlperf_shared_dir": "/shared/dlperf"}

# The site's time server, on the first node: it tells its own time, as of stratum 1 (RFC 5905).
NTP = """\
import socket, struct, time

def stamp():
    return struct.pack("!Q", int((time.time() + 2208988800) * 2**32))

server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("10.11.0.2", 123))
while True:
    asked, peer = server.recvfrom(512)
    now = stamp()
    head = struct.pack("!BBBbII4s", 0x24, 1, asked[2], -20, 0, 16, b"LOCL")
    server.sendto(head + now + asked[40:48] + now + stamp(), peer)
"""


def provision(lab: Lab, status: int, *options: str, **said: object) -> str:
    given = json.dumps({**FRAMEWORKS, **said})
    done = lab.command("ansible-playbook", "provision.yml", "-e", given, *options)
    assert done.returncode == status, done.stdout
    return done.stdout


def changed(output: str) -> dict[str, str]:
    recap = output.rpartition("PLAY RECAP")[2]
    return dict(re.findall(r"(node\d) .*changed=(\d+) .*failed=0", recap))


@dataclass(frozen=True)
class Cluster:
    """Two provisioned nodes and their folder. `before`: what the nodes were; `nowhere`, `unshared`:
    what was said of a folder that is not there, and of one that each node has for itself."""

    lab: Lab
    folder: Path
    before: dict[str, list[str]]
    nowhere: str
    unshared: str
    first: str


@contextmanager
def provisioned(scratch: Path, mirror: Path) -> Iterator[Cluster]:
    folder = scratch / "folder"
    folder.mkdir()
    for path in (scratch, folder):
        path.chmod(0o755)  # the ordinary user reads it
    with Lab(scratch / "lab").running(len(NODES), mirror=mirror, shared_dir=folder) as lab:
        lab.said("node1", "mkdir -m 755 /shared/dlperf")
        before = {node: node_state(lab, node) for node in NODES}
        lab.said("node1", f"cat > /srv/ntp.py <<'END'\n{NTP}END")
        lab.said("node1", "setsid python3 /srv/ntp.py > /srv/ntp.log 2>&1 < /dev/null &")
        nowhere = provision(lab, 2, dlperf_shared_dir="/nowhere")
        assert differences(lab, "node2", before["node2"]) == []
        for node in NODES:
            lab.said(node, "mkdir /srv/own")
        tags = "node_base,ssh_mesh,python_env,framework"
        unshared = provision(lab, 2, "--tags", tags, dlperf_shared_dir="/srv/own")
        for node in NODES:
            assert lab.ssh(node, "test -e /opt/dlperf/envs").returncode == 1
            lab.said(node, "rm -r /srv/own")
        first = provision(lab, 0, **SHARED, **TIME)
        yield Cluster(lab, folder, before, nowhere, unshared, first)


shared = sharing(provisioned)


@pytest.fixture
def cluster(shared: Shared[Cluster]) -> Cluster:
    return shared.get()


@pytest.fixture
def lab(cluster: Cluster) -> Lab:
    return cluster.lab


def test_a_folder_that_is_not_shared_is_refused(cluster: Cluster) -> None:
    said = " ".join(cluster.nowhere.split())
    assert "/nowhere (dlperf_shared_dir) is no folder on this node" in said
    said = " ".join(cluster.unshared.split())
    assert "the file that node1 has written, in the folder that all nodes share" in said


def test_one_node_makes_the_environments_and_all_use_them(cluster: Cluster) -> None:
    lab = cluster.lab
    made = cluster.first.partition("TASK [framework : Install the frameworks")[2].partition(
        "TASK ["
    )[0]
    assert "changed: [node1]" in made
    assert "[node2]" not in made
    for node in NODES:
        assert lab.said(node, "readlink /opt/dlperf/envs") == "/shared/dlperf/envs"
        python = "/opt/dlperf/envs/mxnet/bin/python"
        code = "import mxnet, horovod.mxnet; print(mxnet.__file__)"
        shown = lab.said(node, f"runuser -u dlperf -- {python} -c '{code}'")
        assert shown.startswith("/opt/dlperf/envs/mxnet/lib/")
    assert [path.name for path in (cluster.folder / "dlperf/envs").iterdir()] == ["mxnet"]


def test_chrony_keeps_the_time_of_the_sites_server(lab: Lab) -> None:
    sources = lab.said("node2", "chronyc -n sources")
    assert re.search(r"(?m)^\^\* 10\.11\.0\.2 ", sources), sources
    for node in NODES:
        running = lab.said(node, "tr '\\0' ' ' < /proc/$(cat /run/chrony/chronyd.pid)/cmdline")
        assert running.split()[1:] == ["-F", "1", "-x"]


def test_the_second_run_changes_nothing(lab: Lab) -> None:
    output = provision(lab, 0, "--diff", **SHARED, **TIME)
    assert changed(output) == dict.fromkeys(NODES, "0"), output


def test_without_the_variable_each_node_has_its_own_again(cluster: Cluster) -> None:
    lab = cluster.lab
    provision(lab, 0, "--tags", "framework,horovod", **TIME)
    for node in NODES:
        assert lab.ssh(node, "test -L /opt/dlperf/envs").returncode == 1
        lab.said(node, "/opt/dlperf/envs/mxnet/bin/python -c 'import mxnet'")
    assert (cluster.folder / "dlperf/envs/mxnet").is_dir()
    # And back, to those that are still there.
    provision(lab, 0, "--tags", "framework,horovod", **SHARED, **TIME)


def test_no_time_service_of_somebody_else_is_replaced(lab: Lab) -> None:
    output = provision(lab, 2, "--tags", "time_service", dlperf_time="ntpd")
    assert "dlperf_time: expected chrony, or nothing; found ntpd" in " ".join(output.split())


def test_a_server_that_is_not_there_is_named_and_decommissioning_leaves_all_as_it_was(
    shared: Shared[Cluster],
) -> None:
    cluster = shared.last()
    lab = cluster.lab
    servers = {"dlperf_time_servers": ["10.11.0.99"], "time_service_timeout": 4}
    only = ("--limit", "node2", "--tags", "time_service")
    output = provision(lab, 2, *only, **(TIME | servers))
    assert "chrony has not synchronized the clock within 4 s" in " ".join(output.split())
    results = "/home/dlperf/runs/campaign/case"
    lab.said("node1", f"runuser -u dlperf -- mkdir -p {results}")
    given = json.dumps({**SHARED, **TIME})
    book = ("playbooks/decommission.yml", "-e", given)
    kept = lab.play(*book, "--limit", "node1")
    assert "node1: the user dlperf and its home are kept" in kept
    assert lab.said("node1", f"ls -d {results}")
    # The other node still uses it.
    lab.said("node2", "/opt/dlperf/envs/mxnet/bin/python -c 'import mxnet'")
    assert "node2: the user" not in lab.play(*book)
    assert differences(lab, "node2", cluster.before["node2"]) == []
    lab.play(*book, "-e", "dlperf_remove_results=true")
    for node in NODES:
        assert differences(lab, node, cluster.before[node]) == []
        assert lab.ssh(node, "grep dlperf /etc/passwd /etc/group /etc/shadow").stdout == ""
        assert lab.ssh(node, "pgrep -x chronyd").returncode != 0
    assert list((cluster.folder / "dlperf").iterdir()) == []
