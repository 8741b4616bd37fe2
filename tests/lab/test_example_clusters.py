"""The clusters of the example inventories in one play each: two bare nodes that say they are the
system of their stack, and copies of the example in which names and addresses are the lab's, and
the other two of its nodes are not there.

Stand-ins: the vendors' packages and files, the source of OpenMPI, cards, GPUs and the system
(gpu_standins.py, fabric_standins.py), and the frameworks' own wheels and Horovod's source
(framework_standins.py), whose real ones have gigabytes and are not proven without a GPU. Their
locks, in a copy of the project, have the stand-ins' checksums. Not built is the stack's Python,
which test_python_source.py builds: nodes have one of this machine, or their own. Real are the
inventory, the order of all roles in one play, what they install, every environment that the
example names, addresses of a second network, the mesh, the builds and mpirun across the nodes over
that network, `doctor` and undo.
"""

import dataclasses
import json
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from fabric_standins import (
    CONFIGURE_WITH_LIBRARY,
    NETPLAN,
    NVIDIA_SMI,
    OFED,
    OPENMPI,
    OPENMPI_5,
    ofed,
    openmpi,
    recorded_card,
)
from framework_standins import PIN, Locks
from gpu_cluster import Cluster, claim
from gpu_standins import make_vendors
from lab_under_test import PROJECT, Lab
from node_state import differences
from standins import fixture, index_of, portable, several

from dlperf_runner.provision import environments

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.gpu_roles]  # minutes

NODES = ("node1", "node2")
GPUS = range(8)
# The nodes' own, of Debian 12.
SYSTEM = "3.11"
OWN = "/srv/python/bin/python3"
TUNED = "/srv/tuning"
SMI = NVIDIA_SMI.replace("for gpu in 0 1;", f"for gpu in {' '.join(map(str, GPUS))};").replace(
    "  *) exit 16",
    '  "-q -x") cat /srv/smi/xml ;;\n  "topo -m") cat /srv/smi/topology ;;\n'
    '  "--query-gpu=index,uuid "*) cat /srv/smi/index ;;\n  *) exit 16',
)
PYTHON = f"""
cd /srv && /usr/lib/apt/apt-helper download-file http://10.11.0.1:8010/python.tar.gz python.tar.gz
tar -xzf python.tar.gz && rm python.tar.gz && {OWN} -m compileall -q python/lib
"""
# What the lab's mirror has of the stack's packages, and the mpirun that the stand-in hands on to.
PACKAGES = {
    "node_base_packages": [
        *("sudo", "ca-certificates", "openssh-client", "openssh-server"),
        *("libnuma1", "openmpi-bin", "python3-venv"),
    ],
    "python_env_packages": ["python3-venv"],
}


@dataclass(frozen=True)
class Site:
    """An example inventory, what stands in for its hardware, and the versions that it brings."""

    example: str
    suite: str
    gpu: str
    card: str
    interface: str
    openmpi: str
    versions: dict[str, str]
    python: str  # that of the lab, on which all of its frameworks run
    ofed: str = ""

    @property
    def wire(self) -> str:
        """A second network beside eth0, on the same wire, in place of the cards'."""
        return f"ip link add link eth0 name {self.interface} type macvlan mode bridge"


PUBLISHED = Site(
    example="example",
    suite="bionic",
    gpu="v100_440.xml",
    card="connectx4",
    interface="ib0",
    openmpi=OPENMPI,
    versions={
        "cuda-drivers": "440.33.01-1",
        "cuda-toolkit-10-2": "10.2.89-1",
        "libcudnn7": "7.6.5.32-1+cuda10.2",
        "libnccl2": "2.7.3-1+cuda10.2",
        "docker-ce": "5:20.10.7~3-0~ubuntu-bionic",
    },
    python="3.7",
    ofed="MLNX_OFED_LINUX-5.0-2.1.8.0",
)
H100 = Site(
    example="example-h100",
    suite="jammy",
    gpu="h100_580.xml",
    card="connectx7_roce",
    interface="eth2",
    openmpi=OPENMPI_5,
    versions={
        "nvidia-driver-580-open": "580.173.02-1ubuntu1",
        "cuda-toolkit-12-9": "12.9.1-1",
        "libcudnn9-cuda-12": "9.10.2.21-1",
        "libnccl2": "2.29.7-1+cuda12.9",
        "docker-ce": "5:29.8.1-1~ubuntu.22.04~jammy",
    },
    python=SYSTEM,
)


class SiteCluster(Cluster):
    site: Site
    environments: list[dict[str, Any]]

    @property
    def inventories(self) -> list[str]:
        return ["-i", "inventory/lab", "-i", str(self.inventory.parent)]

    def tried(self, book: str, *options: str) -> tuple[int, str]:
        given = ("-e", json.dumps(PACKAGES))
        done = self.lab.command("ansible-playbook", book, *self.inventories, *given, *options)
        return done.returncode, done.stdout

    def run(self, book: str, *options: str) -> str:
        status, output = self.tried(book, *options)
        assert status == 0, output
        return output

    def doctor(self) -> tuple[int, set[tuple[str, str]], dict[tuple[str, str], dict[str, str]]]:
        """Its exit status, and what it found amiss."""
        argv = [sys.executable, "-m", "dlperf_runner", "doctor", "--json", *self.inventories]
        done = self.lab.command(*argv)
        told = json.loads(done.stdout)
        findings = {(found["node"], found["check"]): found for found in told["findings"]}
        failed = {key for key, found in findings.items() if found["status"] == "failed"}
        return done.returncode, failed, findings


def gpus(site: Site, count: int) -> dict[str, str]:
    """What nvidia-smi says of so many GPUs."""
    return {
        "/srv/smi/xml": several(fixture(f"gpu/{site.gpu}"), count),
        "/srv/smi/index": index_of(count),
        "/srv/smi/topology": fixture(f"gpu/{site.gpu.partition('_')[0]}_topo.txt"),
    }


def place(lab: Lab, node: str, files: dict[str, str]) -> None:
    lines = ["set -e"]
    for path, content in files.items():
        lines += [f"mkdir -p {Path(path).parent}", f"cat > {path} <<'END'\n{content}\nEND"]
    lab.said(node, "\n".join(lines))


def prepare(lab: Lab, node: str, site: Site) -> None:
    governors = f"{TUNED}/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
    tuning = {governors: "powersave", f"{TUNED}/proc/sys/kernel/numa_balancing": "1"}
    settings = {f"/srv/smi/pm.{n}": "Disabled" for n in GPUS}
    programs = {"/usr/sbin/netplan": NETPLAN, "/usr/bin/nvidia-smi": SMI}
    claim(lab, node, site.suite)
    if site.python != SYSTEM:
        lab.said(node, PYTHON)
    folders = "/etc/netplan /etc/modules-load.d /etc/modprobe.d /etc/docker"
    lab.said(node, f"mkdir -p {folders}; {site.wire}")
    card = recorded_card(site.card)
    place(lab, node, {**programs, **card, **tuning, **settings, **gpus(site, len(GPUS))})
    lab.said(node, f"chmod 755 {' '.join(programs)}")


def variables(site: Site, mirror: Path, scratch: Path, vendors: dict[str, Any]) -> dict[str, Any]:
    """What a site adds to the example's variables: its mirror, and checksums of its files."""
    return {
        **{key: value for key, value in vendors.items() if key != "dlperf_frameworks"},
        "openmpi_sha256": openmpi(mirror / site.openmpi, CONFIGURE_WITH_LIBRARY),
        **(
            {"infiniband_archive_sha256": ofed(mirror / OFED, scratch / "debs")}
            if site.ofed
            else {}
        ),
        # Of the lab and its stand-ins.
        "openmpi_cache": str(scratch / "cache"),
        "openmpi_build_packages": ["gcc", "libc6-dev", "make"],
        "python_env_interpreter": "/usr/bin/python3" if site.python == SYSTEM else OWN,
        "node_base_mirror_suite": "bookworm",
        "node_base_mirror_key": str(PROJECT / ".cache/mirror/cpu-bookworm/apt/dlperf-mirror.asc"),
        "infiniband_packages": ["libibverbs-dev"],
        "infiniband_root": "/srv/fabric",
        "node_tuning_root": TUNED,
    }


@pytest.fixture(scope="module", params=[H100, PUBLISHED], ids=lambda site: site.example)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, mirror: Path
) -> Iterator[SiteCluster]:
    site: Site = request.param
    scratch = tmp_path_factory.mktemp("site")
    served, lab = scratch / "mirror", Lab(scratch / "lab")
    (served / "wheels").mkdir(parents=True)
    (served / "apt").symlink_to(mirror / "apt")
    # Another wheel of a stand-in's name and version would be taken in its place.
    for path in (mirror / "wheels").glob("uv-*.whl"):
        (served / "wheels" / path.name).symlink_to(path)
    vendors = make_vendors(served, scratch, [site.suite])
    given = variables(site, served, scratch, vendors.variables | vendors.archive_of(site.suite))
    if site.python != SYSTEM and not portable(site.python, served / "python.tar.gz"):
        pytest.skip(f"there is no Python {site.python} on this machine")
    copy = copied(scratch)
    group = copy / "inventory" / site.example / "group_vars/nodes"
    group.mkdir()
    example = group.with_suffix(".yml").rename(group / "example.yml")
    (group / "site.yml").write_text(json.dumps(given))
    said = yaml.safe_load(example.read_text())
    chosen = environments.installed(said["dlperf_frameworks"], said["dlperf_stack"])
    Locks(copy, served / "wheels").replace(chosen, site.python)
    hosts = group.parents[1] / "hosts.yml"
    hosts.write_text(json.dumps(of_the_lab(yaml.safe_load(hosts.read_text()))))
    with lab.running(len(NODES), mirror=served):
        made = SiteCluster(dataclasses.replace(lab, project=copy), vendors, scratch, {})
        made.site, made.environments, made.inventory = site, chosen, hosts
        for node in NODES:
            prepare(lab, node, site)
        yield made


def copied(scratch: Path) -> Path:
    """The project, in which the test may change locks and an inventory."""

    def leave_out(folder: str, names: list[str]) -> list[str]:
        top = {"tests", "docs", "results"} if Path(folder) == PROJECT else set()
        return [name for name in names if name in top | {"__pycache__"} or name.startswith(".")]

    return Path(shutil.copytree(PROJECT, scratch / "project", ignore=leave_out))


def of_the_lab(inventory: dict[str, Any]) -> dict[str, Any]:
    """Names of its own, and addresses for ib0, of which the published example has none."""
    hosts = {
        name.lower(): {key: value for key, value in host.items() if key != "ansible_host"}
        or {"dlperf_interface_address": f"10.12.0.{number}/24"}
        for number, (name, host) in enumerate(inventory["nodes"]["hosts"].items(), 1)
        if number <= len(NODES)
    }
    assert tuple(hosts) == NODES
    return {"nodes": {"hosts": hosts}}


@pytest.fixture(scope="module")
def before(cluster: SiteCluster) -> dict[str, list[str]]:
    return {node: cluster.state(node) for node in NODES}


@pytest.fixture
def bare(cluster: SiteCluster, before: dict[str, list[str]]) -> None:
    """The nodes have nothing of this project, whichever test was there before."""
    if any(differences(cluster.lab, node, before[node]) for node in NODES):
        cluster.run("playbooks/decommission.yml")


@pytest.fixture
def installed(cluster: SiteCluster, before: dict[str, list[str]]) -> None:
    """The nodes are provisioned, whichever test was there before."""
    assert before
    if cluster.lab.ssh(NODES[0], "ls /opt/dlperf/stamps/openmpi.json").returncode != 0:
        cluster.run("provision.yml")


@pytest.mark.usefixtures("bare")
def test_one_play_makes_a_cluster_of_bare_nodes(cluster: SiteCluster) -> None:
    output = cluster.run("provision.yml")
    assert output.rpartition("PLAY RECAP")[2].count("failed=0") == len(NODES)
    site = cluster.site
    for node in NODES:
        assert cluster.versions(node, site.versions) == site.versions
        if site.ofed:
            assert site.ofed in cluster.lab.said(node, "ofed_info -s")
        shown = cluster.lab.said(node, f"ip -o -4 addr show dev {site.interface}")
        assert re.search(r"inet (10\.12\.0|198\.51\.100)\.[1-5]/24", shown), shown
        proven = json.loads(cluster.lab.said(node, "cat /opt/dlperf/stamps/openmpi.json"))
        assert proven["inputs"]["interface"] == site.interface
        for item in cluster.environments:
            by = "horovod" if "horovod" in item else "framework"
            assert proven_on(cluster, node, item) == {by}
    assert cluster.lab.said(NODES[0], "/opt/dlperf/uv/bin/uv --version").startswith("uv ")


def proven_on(cluster: SiteCluster, node: str, environment: dict[str, Any]) -> set[str]:
    """What was proven of an environment, whose packages are those of its lock."""
    name, path = environment["name"], environment["path"]
    lock = (PROJECT / "requirements" / Path(environment["requirements"]).name).read_text()
    pinned = {
        pin["name"]: pin["version"]
        for pin in PIN.finditer(lock)
        if not pin["marker"] or cluster.site.python in pin["marker"]
    }
    listed = f"ls {path}/lib/python*/site-packages"
    wheels = re.findall(r"(?m)^([^-\n]+)-([^-\n]+)\.dist-info$", cluster.lab.said(node, listed))
    has = {re.sub("[-_.]+", "-", wheel).lower(): version for wheel, version in wheels}
    assert pinned.items() <= has.items()
    return {
        kind
        for kind in ("framework", "horovod")
        if cluster.lab.ssh(node, f"test -e /opt/dlperf/stamps/{kind}-{name}.json").returncode == 0
    }


@pytest.mark.usefixtures("installed")
def test_the_second_play_changes_nothing(cluster: SiteCluster) -> None:
    output = cluster.run("provision.yml", "--diff")
    assert output.rpartition("PLAY RECAP")[2].count("changed=0 ") == len(NODES)


# What does not depend on the example. test_gpu_fabric.py and test_gpu_stack.py have what the other
# one leaves behind.
of_one_example = pytest.mark.parametrize(
    "cluster", [H100], ids=lambda site: site.example, indirect=True
)


@of_one_example
@pytest.mark.usefixtures("installed")
def test_another_gpu_count_is_told_of_and_nothing_else(cluster: SiteCluster) -> None:
    """Of a driver that is not there, doctor tells in both cases."""
    _, always, _ = cluster.doctor()
    assert not {check for _, check in always} & {"gpu count", "gpu model", "ssh mesh", "all-reduce"}
    place(cluster.lab, "node2", gpus(cluster.site, 7))
    status, failed, findings = cluster.doctor()
    place(cluster.lab, "node2", gpus(cluster.site, 8))
    assert status == 1
    assert failed - always == {("node2", "gpu count"), ("", "gpu count")}
    found = findings["node2", "gpu count"]
    assert (found["expected"], found["found"]) == ("8 (dlperf_devices_per_node)", "7")
    assert "lspci" in found["hint"]
    assert "node2" in findings["", "gpu count"]["found"]


@of_one_example
@pytest.mark.usefixtures("installed")
def test_frameworks_that_find_no_gpu_are_no_proof(cluster: SiteCluster) -> None:
    cluster.lab.said("node2", "mv /usr/bin/nvidia-smi /srv/nvidia-smi")
    framework = ("provision.yml", "--tags", "framework", "-l", "node2")
    status, output = cluster.tried(*framework, "-e", '{"framework_prove_again": true}')
    cluster.lab.said("node2", "mv /srv/nvidia-smi /usr/bin/nvidia-smi")
    assert status == 2, output
    assert re.search(r"computed on \S*cpu\S*, not on the GPU", output), output
    cluster.run(*framework)


@of_one_example
@pytest.mark.usefixtures("installed")
def test_decommissioning_leaves_the_nodes_as_they_were(
    cluster: SiteCluster, before: dict[str, list[str]]
) -> None:
    cluster.run("playbooks/decommission.yml")
    for node in NODES:
        assert differences(cluster.lab, node, before[node]) == []
