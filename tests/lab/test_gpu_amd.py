"""AMD's driver and ROCm from signed repositories of stand-in packages (names, versions and
dependencies are AMD's), on one node that says that it is Ubuntu 24.04 and no container: its kernel
is a tree in /srv/node. dkms, modinfo, modprobe, libamdhip64 and shutdown are stand-ins that fail
as the real ones do. Real are apt, dpkg, keys, pins, holds, Ansible's reboot, idempotence and undo.
"""

import base64
import json
import platform
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cuda_standin import GCC
from gpu_cluster import Cluster, claim
from gpu_packages import TREE, one
from gpu_standins import amd_repositories, linked_mirror
from lab_under_test import Lab
from rehearsed import entries, rehearsed_and_done
from standin_repository import flat_repository

pytestmark = [
    pytest.mark.lab,
    pytest.mark.heavy,
    pytest.mark.gpu_roles,
    pytest.mark.skipif(not GCC, reason="there is no gcc to compile the stand-in of libamdhip64"),
]

KERNEL = platform.release()
VERSION = f"{TREE}/sys/module/amdgpu/version"
BUILT = f"/lib/modules/{KERNEL}/updates/dkms/amdgpu.ko"
STACK = {"rocm": {"version": "7.2.4", "driver": "30.30.4"}}
ENDING = "70204-93~24.04"
PACKAGES = {
    "rocm": f"7.2.4.{ENDING}",
    "rocminfo": f"1.0.0.{ENDING}",
    "rccl": f"2.27.7.{ENDING}",
    "hipcc": f"1.1.1.{ENDING}",
    "amdgpu-dkms": "1:6.16.13.30300400-2341068.24.04",
    "amdgpu-dkms-firmware": "30.30.4.0.30300400-2341068.24.04",
}
# Which Ubuntu has under the same names, in higher versions.
UBUNTUS = [one("rocminfo", "5.7.1-3build1"), one("hipcc", "5.7.1-3"), one("rccl", "5.4.3-3")]
REBOOTS = "/var/log/standin-shutdown.log"
PROGRAMS = {
    "dkms": f"""
if [ "$1" = status ]; then test ! -e {BUILT} || echo "amdgpu/6.16.13-2341068.24.04: installed"
elif [ -e /srv/broken ]; then
  echo "Error! Bad return status for module build on kernel: $3 (x86_64)" >&2; exit 10
else mkdir -p $(dirname {BUILT}); echo 6.16.13 > {BUILT}; fi""",
    "modinfo": f'test "$2" = {KERNEL} && cat {BUILT} 2> /dev/null',
    # A module that is loaded stays, whichever it is.
    "modprobe": f"""
test -e {TREE}/sys/module/amdgpu && exit
mkdir -p {TREE}/sys/module/amdgpu && cat {BUILT} > {VERSION}""",
    "shutdown": f"""
trap '' HUP
echo >> {REBOOTS}
setsid sh -c 'sleep 2; cat {BUILT} > {VERSION}; echo $$ > /srv/boot/id' > /dev/null 2>&1 &""",
}
PREPARED = f"""
mkdir -p /srv/boot {TREE}/sys/module {TREE}/proc && ln -s /lib /var /usr {TREE}
echo before > /srv/boot/id && mount --bind /srv/boot/id /proc/sys/kernel/random/boot_id
rm -f /sbin/shutdown; groupadd -fr render; useradd -m dlperf
echo 'deb [trusted=yes] http://10.11.0.1:8010/site /' > /etc/apt/sources.list.d/site.list
echo 'deb [trusted=yes] http://10.11.0.1:8010/apt bookworm main' > /etc/apt/sources.list
apt-get update
"""


class AmdCluster(Cluster):
    def role(self, *options: str, **changed: object) -> str:
        given = {"role": "gpu_node", "gpu_node_stack": STACK, **changed}
        return self.play("tests/lab/plays/role.yml", *options, **given)

    def bare(self) -> None:
        """The node has nothing of AMD's, whichever test was there before."""
        self.lab.said("node1", f"rm -rf {TREE}/sys/module/amdgpu {BUILT} {REBOOTS} /srv/broken")
        if self.versions("node1", PACKAGES):
            self.role(part="absent")
            assert self.versions("node1", PACKAGES) == {}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, mirror: Path) -> Iterator[AmdCluster]:
    scratch = tmp_path_factory.mktemp("amd")
    served, lab = linked_mirror(mirror, scratch), Lab(scratch / "lab")
    keys = amd_repositories(served, scratch, "noble")
    content = {f"/usr/lib/modules/{KERNEL}/build/Makefile": ""}
    kernels = [
        one(f"linux-headers-{KERNEL}", "1", files=content),
        one(f"linux-modules-extra-{KERNEL}", "1"),
    ]
    flat_repository(served / "site", [*UBUNTUS, *kernels], scratch / "site-key", "key.asc")
    with lab.running(1, mirror=served):
        claim(lab, "node1", "noble")
        lab.said("node1", PREPARED)
        for name, script in PROGRAMS.items():
            text = base64.b64encode(f"#!/bin/sh\n{script}\n".encode()).decode()
            path = f"/usr/sbin/{name}"
            lab.said("node1", f"echo {text} | base64 -d > {path}; chmod 755 {path}")
        given = {
            "dlperf_mirror": "http://10.11.0.1:8010",
            "dlperf_vendor_keys": {name: [key] for name, key in keys.items()},
            "dlperf_lock_timeout": 2,
            "rocm_root": TREE,
        }
        yield AmdCluster(lab, None, scratch, given)


def test_a_rehearsal_lists_what_provisioning_then_changes(cluster: AmdCluster) -> None:
    cluster.bare()
    given = {
        "dlperf_stack": "mi300-rocm7",
        "dlperf_frameworks": [],
        "dlperf_mirror": "",
        "dlperf_vendor_mirror": "http://10.11.0.1:8010/vendor",
    }
    options = ["-e", f"@{cluster.variables}", "-e", json.dumps(given)]
    options += ["--tags", "node_base,gpu", "--limit", "node1"]
    output = rehearsed_and_done(cluster.lab, "node1", options)
    listed = entries(output, "packages")
    assert set(PACKAGES) <= listed and set(PACKAGES) <= entries(output, "holds"), output
    assert "reboot" not in output


def test_driver_and_rocm_come_in_exact_versions_and_go_again(cluster: AmdCluster) -> None:
    before = cluster.state("node1")
    cluster.role()
    assert cluster.versions("node1", PACKAGES) == PACKAGES
    assert set(PACKAGES) <= set(cluster.lab.said("node1", "apt-mark showhold").split())
    upgrade = cluster.lab.said("node1", "apt-get -s --ignore-hold dist-upgrade")
    assert not re.search("Inst (roc|rccl|hip|amdgpu)", upgrade), upgrade
    assert "render" in cluster.lab.said("node1", "id -nG dlperf").split()
    output = cluster.role()
    assert re.search(r"node1 : ok=\d+ changed=0 ", output), output
    cluster.lab.said("node1", "echo wrong 1 > /srv/hip-fails")
    output = cluster.role(status=None)
    cluster.lab.said("node1", "rm /srv/hip-fails")
    assert "GPU 0: 1 of 256 numbers are wrong (Stand-in 0)" in output, output
    cluster.bare()
    # What builds modules stays, and the base removes its records and the user with its groups.
    base = "/var/lib/dlperf|/etc/g(roup|shadow)-?|/home/dlperf/.ansible"
    kernels = f"linux-(headers|modules-extra)-{re.escape(KERNEL)}|/lib/modules|{base}"
    left = [line for line in cluster.state("node1") if line not in before]
    assert [line for line in left if not re.search(kernels, line)] == []


def test_the_kernels_own_module_is_replaced_by_one_reboot(cluster: AmdCluster) -> None:
    cluster.bare()
    cluster.lab.said("node1", f"mkdir -p {TREE}/sys/module/amdgpu")
    output = cluster.role(status=2)
    assert "reboot needed: driver 6.16.13 is installed, but the running driver is none" in output
    cluster.role(dlperf_reboot=True)
    assert cluster.lab.said("node1", f"wc -l < {REBOOTS}") == "1"
    assert cluster.lab.said("node1", f"cat {VERSION}") == "6.16.13"


def test_a_kernel_for_which_the_module_does_not_build_is_told(cluster: AmdCluster) -> None:
    """ROCm/legacy-rocm-build#6193: apt fails, because dkms does; the next run repairs it."""
    cluster.bare()
    cluster.lab.said("node1", "touch /srv/broken")
    output = cluster.role(status=2)
    assert "amdgpu_driver: installing amdgpu-dkms=" in output
    assert "Bad return status for module build" in output
    cluster.lab.said("node1", "rm /srv/broken")
    cluster.role()
    assert cluster.versions("node1", PACKAGES) == PACKAGES


@pytest.mark.parametrize(
    ("prepared", "stack", "message"),
    [
        (f"echo 6.14.14 > {VERSION}", STACK, "the driver 6.14.14 was not installed by"),
        ("true", {"rocm": {"version": "7.9.9"}}, "ROCm 7.9.9 is unknown (rocm.version of"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_changes(
    cluster: AmdCluster, prepared: str, stack: object, message: str
) -> None:
    cluster.bare()
    cluster.lab.said("node1", f"mkdir -p {TREE}/sys/module/amdgpu; {prepared}")
    was = cluster.state("node1")
    output = cluster.role(gpu_node_stack=stack, status=2)
    assert message in output
    assert cluster.state("node1") == was
