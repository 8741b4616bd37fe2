"""OpenMPI from source, InfiniBand and tuning on two bare nodes, which say they are Ubuntu 18.04.

Stand-ins are named in fabric_standins.py: no source is OpenMPI's, no installer the vendor's, no
card is there. Real are the compiler, the shipping of what was built, mpirun across the nodes (the
distribution's, which the stand-in hands on to), dpkg, order, idempotence, errors and undo.
"""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from fabric_standins import (
    CONFIGURE,
    NETPLAN,
    NVIDIA_SMI,
    OFED,
    OPENMPI,
    ofed,
    openmpi,
    recorded_card,
    untuned,
)
from gpu_cluster import Cluster
from lab_under_test import PROJECT, Lab
from node_state import differences

# ---- Two nodes with InfiniBand's stand-ins, and plays on them; see tests/lab/test_gpu_fabric.py

NODES = ("node1", "node2")
MIRROR = "http://10.11.0.1:8010"
NUMA = "/srv/tuning/proc/sys/kernel/numa_balancing"
TAGS = "node_base,ssh_mesh,infiniband,openmpi,node_tuning"
PACKAGES = (
    *("sudo", "ca-certificates", "openssh-client", "openssh-server"),
    *("libnuma1", "openmpi-bin"),
)
UBUNTU = (
    "sed -i 's/^NAME=.*/NAME=Ubuntu/; s/^ID=.*/ID=ubuntu/; s/^VERSION_ID=.*/VERSION_ID=18.04/'"
    " /etc/os-release"
)


class FabricCluster(Cluster):
    def provision(self, *options: str, tags: str = TAGS, **changed: object) -> str:
        return self.play("provision.yml", "--tags", tags, *options, **changed)

    def refused(self, *said: str, node: str = "node2", tags: str = TAGS, **changed: object) -> None:
        output = self.provision("--limit", node, tags=tags, status=2, **changed)
        assert f"fatal: [{node}]" in output
        for text in said:
            assert text in output, output

    def place(self, node: str, files: Mapping[str, str]) -> None:
        lines = ["set -e"]
        for path, content in files.items():
            lines += [f"mkdir -p {Path(path).parent}", f"cat > {path} <<'END'\n{content}\nEND"]
        self.lab.said(node, "\n".join(lines))


def prepare(cluster: FabricCluster, deb: str) -> None:
    """A card and GPUs, which are not there, another system, and what MLNX_OFED will remove."""
    fetch = f"import urllib.request as r; r.urlretrieve('{deb}', '/root/it.deb')"
    programs = {"/usr/sbin/netplan": NETPLAN, "/usr/bin/nvidia-smi": NVIDIA_SMI}
    for node in NODES:
        interface = "ip link add ib0 type veth peer name ib0peer && ip link set ib0peer up"
        cluster.lab.said(node, f"mkdir -p /etc/netplan /etc/modules-load.d; {interface}; {UBUNTU}")
        cluster.place(node, {**programs, **recorded_card(), **untuned()})
        install = f'python3 -c "{fetch}"; dpkg -i /root/it.deb && rm /root/it.deb'
        cluster.lab.said(node, f"chmod 755 {' '.join(programs)}; {install}")


def site_variables(mirror: Path, scratch: Path) -> dict[str, Any]:
    return {
        "dlperf_stack": "v100-cuda10.2",
        "dlperf_frameworks": [],
        "dlperf_lock_timeout": 20,
        "node_base_packages": list(PACKAGES),
        "node_base_mirror_suite": "bookworm",
        "node_base_mirror_key": str(PROJECT / ".cache/mirror/cpu-bookworm/apt/dlperf-mirror.asc"),
        # What this test does not install is only refused without them.
        "nccl_archive_sha256": "0" * 64,
        "openmpi_sha256": openmpi(mirror / OPENMPI),
        "openmpi_build_packages": ["gcc", "libc6-dev", "make"],
        "openmpi_cache": str(scratch / "cache"),
        "infiniband_archive_sha256": ofed(mirror / OFED, scratch / "debs"),
        "infiniband_peer_memory_archive": "/nowhere/nv_peer_mem.tar.gz",
        "infiniband_peer_memory_sha256": "0" * 64,
        "infiniband_interface": "ib0",
        "infiniband_address": "10.12.0.{{ inventory_hostname[-1] }}/24",
        "infiniband_root": "/srv/fabric",
        "node_tuning_root": "/srv/tuning",
        "dlperf_tuning": {"application_clocks": {"memory": 877, "graphics": 1530}},
    }


# ---- tests

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.gpu_roles]  # minutes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, mirror: Path) -> Iterator[FabricCluster]:
    scratch = tmp_path_factory.mktemp("fabric")
    own_mirror, lab = scratch / "mirror", Lab(scratch / "lab")
    own_mirror.mkdir()
    (own_mirror / "apt").symlink_to(mirror / "apt")
    with lab.running(2, mirror=own_mirror):
        made = FabricCluster(lab, None, scratch, site_variables(own_mirror, scratch))
        (removed,) = (own_mirror / "apt/pool").rglob("libyajl2_*.deb")
        prepare(made, f"{MIRROR}/{removed.relative_to(own_mirror)}")
        yield made


def states(cluster: FabricCluster) -> dict[str, list[str]]:
    return {node: cluster.state(node) for node in NODES}


@pytest.fixture(scope="module")
def before(cluster: FabricCluster) -> dict[str, list[str]]:
    return states(cluster)


@pytest.fixture
def bare(cluster: FabricCluster, before: dict[str, list[str]]) -> None:
    """The nodes and the controller's cache have nothing, whichever test was there before."""
    if any(differences(cluster.lab, node, before[node]) for node in NODES):
        shutil.rmtree(cluster.scratch / "cache", ignore_errors=True)
        cluster.play("playbooks/decommission.yml")
    for node in NODES:
        # As netplan does, which is a stand-in.
        cluster.lab.said(node, "ip addr flush dev ib0; rm -f /var/log/standin-ofed.log")


@pytest.fixture
def installed(cluster: FabricCluster, before: dict[str, list[str]]) -> None:
    """The nodes are provisioned, whichever test was there before."""
    assert before
    probe = "/usr/local/openmpi/bin/ompi_info && ofed_info -s"
    if any(cluster.lab.ssh(node, probe).returncode != 0 for node in NODES):
        cluster.provision()


@pytest.mark.usefixtures("bare")
def test_what_cannot_work_is_refused_before_anything_changes(cluster: FabricCluster) -> None:
    was = states(cluster)
    cluster.refused("Remove dlperf_mpirun from the inventory", dlperf_mpirun="/usr/bin/mpirun")
    assert states(cluster) == was


@pytest.mark.usefixtures("bare")
def test_a_network_that_the_node_keeps_is_only_verified(cluster: FabricCluster) -> None:
    """As the inventory's changes of the stack say, which its own variables lost against."""
    keeps = {"dlperf_adopt": ["infiniband"], "infiniband_address": "", "infiniband_interface": ""}
    was = states(cluster)
    output = cluster.provision(tags="infiniband", **keeps)
    assert "infiniband: MLNX_OFED none (the stack has 5.0-2.1.8.0)" in output
    assert "the cards read GPU memory through nv_peer_mem; DMA-BUF needs" in output
    for changes, variables, said in (
        ({"rate_gbps": 200}, {}, "node2: link rate: mlx5_0 port 1 100 Gb/s"),
        ({"rails": "=mlx5_0,mlx5_1"}, {}, "rails: no port mlx5_1, only mlx5_0 port 1 instead"),
        (
            {"rails": "=mlx5_1"},
            {"NCCL_IB_HCA": "mlx5_7"},
            "rails: no port mlx5_7, only mlx5_0 port 1 instead",
        ),
    ):
        given = {"dlperf_stack_overrides": {"infiniband": changes}, "dlperf_env": variables}
        cluster.refused(said, tags="infiniband", **keeps, **given)
    given = {"dlperf_stack_overrides": {"infiniband": None}}
    cluster.provision(tags="infiniband", **keeps | {"dlperf_adopt": []}, **given)
    for node in NODES:
        cluster.lab.said(node, "rmdir /var/lib/dlperf")  # the record of what it kept is gone
    assert states(cluster) == was


@pytest.mark.usefixtures("bare")
def test_drivers_that_are_not_loaded_are_restarted_with_consent_before_they_are_tested(
    cluster: FabricCluster,
) -> None:
    """A run before this one has installed MLNX_OFED; the role is told that no container is here."""
    was = states(cluster)
    loaded, restarts = "/srv/fabric/sys/module/mlx5_core/version", "/srv/restarts"
    programs = {
        "/usr/bin/ofed_info": "#!/bin/sh\necho MLNX_OFED_LINUX-5.0-2.1.8.0:",
        "/etc/init.d/openibd": f"#!/bin/sh\necho $1 >> {restarts}; echo 5.0-2.1.8 > {loaded}",
    }
    cluster.place("node2", {**programs, loaded: "5.0-0"})
    cluster.lab.said("node2", f"chmod 755 {' '.join(programs)}")
    given = {
        "role": "infiniband",
        "infiniband_method": "mlnx_ofed",
        "infiniband_version": "5.0-2.1.8.0",
        "infiniband_interface": "",
        "infiniband_address": "",
        "__infiniband_is_container": False,
    }
    role = ("tests/lab/plays/role.yml", "--limit", "node2")
    output = cluster.play(*role, **given, status=2)
    assert "restart needed: MLNX_OFED 5.0-2.1.8.0 is installed" in output
    assert "the loaded mlx5_core is 5.0-0. Allow the restart with -e dlperf_reboot=true" in output
    for changed in (1, 0):
        output = cluster.play(*role, **given, dlperf_reboot=True)
        assert re.search(rf"node2 : ok=\d+ changed={changed} ", output), output
    assert cluster.lab.said("node2", f"cat {restarts}") == "restart"
    cluster.lab.said("node2", f"rm {restarts} {' '.join(programs)}")
    assert states(cluster) == was


@pytest.mark.usefixtures("bare")
def test_check_mode_passes_on_fresh_nodes_and_changes_nothing(cluster: FabricCluster) -> None:
    was = states(cluster)
    output = cluster.provision("--check", "--diff")
    assert "+cpu_governor/cpu0 performance" in output
    assert "addresses: [10.12.0.2/24]" in output
    assert states(cluster) == was


@pytest.mark.usefixtures("bare")
def test_a_source_that_does_not_build_is_told_of_and_leaves_nothing(cluster: FabricCluster) -> None:
    path = cluster.scratch / "broken.tar.gz"
    broken = (
        "#!/bin/sh\necho checking for libnuma; echo 'configure: error: no libnuma' >&2; exit 77\n"
    )
    given = {"openmpi_archive": str(path), "openmpi_sha256": openmpi(path, broken)}
    output = cluster.provision(tags="node_base,ssh_mesh,openmpi", **given, status=2)
    assert (
        "Cannot build OpenMPI 4.0.0 on node1 (Configure the build): configure: error: no libnuma"
        in output
    )
    assert "There is no build of OpenMPI for openmpi-4.0.0_" in output
    for node in NODES:
        assert cluster.lab.ssh(node, "ls /usr/local/openmpi /opt/dlperf/build").stdout == ""


@pytest.mark.usefixtures("bare")
def test_it_is_built_on_one_node_and_runs_across_both(cluster: FabricCluster) -> None:
    cluster.provision()
    (record,) = (cluster.scratch / "cache").glob("*/build.json")
    assert json.loads(record.read_text())["built_on"] == "node1"
    options = "--prefix=/usr/local/openmpi --enable-orterun-prefix-by-default --with-cuda="
    sums = set()
    for node in NODES:
        said = cluster.lab.said(node, "/usr/local/openmpi/bin/ompi_info")
        assert options + "/usr/local/cuda-10.2" in said
        sums.add(
            cluster.lab.said(node, "cd /usr/local/openmpi; tar -cf - --sort=name . | sha256sum")
        )
        assert cluster.lab.said(node, "stat -c %U /usr/local/openmpi/bin/mpirun") == "root"
        stamp = json.loads(cluster.lab.said(node, "cat /opt/dlperf/stamps/openmpi.json"))
        assert stamp["inputs"]["build"] == record.parent.name
        assert cluster.lab.ssh(node, "ls -d /opt/dlperf/build /var/lib/dlperf/files/*").stdout == ""
        log = cluster.lab.said(node, "cat /var/log/standin-ofed.log").splitlines()
        assert log == ["--force --without-fw-update --user-space-only"]
    assert len(sums) == 1
    # What builds it is on the node that has built it only.
    assert cluster.lab.ssh("node1", "command -v make").returncode == 0
    assert cluster.lab.ssh("node2", "command -v make").returncode != 0


@pytest.mark.usefixtures("installed")
def test_infiniband_and_tuning_are_as_they_shall_be(cluster: FabricCluster) -> None:
    for node in NODES:
        assert cluster.lab.ssh(node, "dpkg -L libyajl2").returncode != 0
        address = cluster.lab.said(node, "ip -o -4 addr show dev ib0")
        assert f"10.12.0.{node[-1]}/24" in address
        assert cluster.lab.said(node, "stat -c %a /etc/netplan/*") == "600"
        assert (
            cluster.lab.said(node, "cat /srv/smi/*.?") == "877, 1530\n877, 1530\nEnabled\nEnabled"
        )
        tuned = f"cat {NUMA} /srv/tuning/sys/devices/system/cpu/*/*/*"
        assert cluster.lab.said(node, tuned) == "0\nperformance\nperformance"


@pytest.mark.usefixtures("installed")
def test_the_second_run_changes_nothing(cluster: FabricCluster) -> None:
    output = cluster.provision("--diff")
    for node in NODES:
        assert re.search(rf"{node} : ok=\d+ changed=0 ", output), output


@pytest.mark.usefixtures("installed")
def test_the_role_infiniband_alone_finds_its_own_and_changes_nothing(
    cluster: FabricCluster,
) -> None:
    stack = {"method": "mlnx_ofed", "version": "5.0-2.1.8.0", "peer_memory": "nv_peer_mem"}
    given = {f"infiniband_{name}": value for name, value in stack.items()}
    output = cluster.play("tests/lab/plays/role.yml", role="infiniband", **given)
    assert re.findall(r"node\d : ok=\d+ changed=(\d+)", output) == ["0", "0"]


@pytest.mark.usefixtures("installed")
def test_an_installer_that_does_not_say_that_it_passed_has_failed(cluster: FabricCluster) -> None:
    """And the next run repairs it."""
    cluster.lab.said(
        "node2", "dpkg --purge mlnx-ofed-kernel-utils ofed-scripts; touch /root/ofed-fails"
    )
    cluster.refused(
        "mlnx_ofed: ./mlnxofedinstall ended with exit status 1",
        "without printing 'Installation passed successfully'",
        tags="infiniband",
    )
    cluster.lab.said(
        "node2", "dpkg --purge mlnx-ofed-kernel-utils ofed-scripts; rm /root/ofed-fails"
    )
    cluster.provision("--limit", "node2", tags="infiniband")
    assert "MLNX_OFED_LINUX-5.0-2.1.8.0" in cluster.lab.said("node2", "ofed_info -s")


def test_what_lies_there_and_is_not_ours_is_left_alone(cluster: FabricCluster) -> None:
    cluster.lab.said("node2", "mkdir -p /opt/other/bin; touch /opt/other/bin/mpirun")
    cluster.refused(
        "/opt/other exists, and this role did not create it",
        tags="openmpi",
        openmpi_prefix="/opt/other",
        openmpi_mpirun="/opt/other/bin/mpirun",
    )
    assert cluster.lab.said("node2", "ls -R /opt/other && rm -r /opt/other").endswith("mpirun")


@pytest.mark.usefixtures("installed")
def test_another_source_takes_the_place_of_the_one_before(cluster: FabricCluster) -> None:
    builds = len(list((cluster.scratch / "cache").glob("*/build.json")))
    path = cluster.scratch / "other.tar.gz"
    changed = openmpi(path, CONFIGURE + "\n# another file\n")
    cluster.provision(tags="openmpi", openmpi_archive=str(path), openmpi_sha256=changed)
    stamps = {cluster.lab.said(node, "cat /usr/local/openmpi/.dlperf-build") for node in NODES}
    assert len(stamps) == 1
    cluster.provision(tags="openmpi")
    assert len(list((cluster.scratch / "cache").glob("*/build.json"))) == builds + 1


@pytest.mark.usefixtures("installed")
def test_a_stack_with_the_distributions_openmpi_takes_the_build_off(cluster: FabricCluster) -> None:
    cluster.provision(tags="openmpi", dlperf_stack="cpu")
    for node in NODES:
        assert cluster.lab.ssh(node, "ls /usr/local/openmpi").stdout == ""
        stamp = json.loads(cluster.lab.said(node, "cat /opt/dlperf/stamps/openmpi.json"))
        assert "build" not in stamp["inputs"]


def test_mpi_goes_over_ucx_with_which_debian_builds_its_openmpi(cluster: FabricCluster) -> None:
    # The nodes have one kernel, so UCX takes them for one machine and would use shared memory.
    # Without InfiniBand or RoCE, OpenMPI must be told that UCX may use any device.
    anything = [f"--mca opal_common_ucx_{what} any".split() for what in ("tls", "devices")]
    # UCX would take any interface, and ib0 leads nowhere.
    told = ["-x", "UCX_TLS=tcp,self", "-x", "UCX_NET_DEVICES=eth0"]
    arguments = [*told, *anything[0], *anything[1]]
    given = {"dlperf_stack": "cpu", "dlperf_mpi_transport": "ucx", "dlperf_mpirun_args": arguments}
    cluster.provision(tags="node_base,ssh_mesh,openmpi", **given)
    for node in NODES:
        stamp = json.loads(cluster.lab.said(node, "cat /opt/dlperf/stamps/openmpi.json"))
        assert stamp["inputs"]["transport"] == "ucx"
    output = cluster.provision(tags="openmpi", **given | {"dlperf_mpirun_args": []}, status=2)
    assert "all-reduce of node" in output and "PML ucx cannot be selected" in output


@pytest.mark.usefixtures("installed")
def test_decommissioning_leaves_the_nodes_as_they_were(
    cluster: FabricCluster, before: dict[str, list[str]]
) -> None:
    shutil.rmtree(cluster.scratch / "cache")
    cluster.play("playbooks/decommission.yml")
    for node in NODES:
        assert differences(cluster.lab, node, before[node]) == []
        assert (
            cluster.lab.said(node, "cat /srv/smi/*.?") == "877, 1290\n877, 1290\nDisabled\nDisabled"
        )
        assert cluster.lab.said(node, f"cat {NUMA}") == "1"
