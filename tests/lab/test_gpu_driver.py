"""A driver that is installed is not yet a driver that runs: headers, dkms, Secure Boot, reboots,
and the fabric manager of a board with NVSwitches, which always has the driver's version.

One node, which says that it is Ubuntu 22.04 and no container: its kernel, bus and firmware are a
tree in /srv/node. Stand-ins that do as the real ones when they fail: dkms, which skips a kernel
without headers, modinfo, modprobe, nvidia-smi, systemctl, shutdown, and a libcuda compiled for the
test, which answers 802 while the fabric manager is not running. Real are apt, dpkg, pins, holds,
the module that computes by that library, Ansible's reboot, idempotence and undo.
"""

import base64
import json
import platform
import re
from collections.abc import Iterator

import pytest
from cuda_standin import GCC, libcuda
from gpu_cluster import Cluster, claim
from gpu_packages import one, only_one
from gpu_standins import make_vendors
from lab_under_test import Lab
from rehearsed import entries, rehearsed_and_done
from standin_repository import flat_repository

pytestmark = [
    pytest.mark.lab,
    pytest.mark.heavy,
    pytest.mark.gpu_roles,
    pytest.mark.skipif(not GCC, reason="there is no gcc to compile the stand-in of libcuda"),
]

KERNEL = platform.release()
TREE = "/srv/node"
LOADED = f"{TREE}/proc/driver/nvidia/version"
OLD, NEW = "535.309.01", "580.173.02"
FABRIC = {"nvidia-fabricmanager": f"{NEW}-1ubuntu1", "libnvidia-nscq": f"{NEW}-1ubuntu1"}
FABRIC_535 = {
    "nvidia-fabricmanager-535": f"{OLD}-1ubuntu1",
    "libnvidia-nscq-535": f"{OLD}-1ubuntu1",
}
REBOOTS = "/var/log/standin-shutdown.log"
BUILT = f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko"
STARTED = "/srv/started-nvidia-fabricmanager"
REBOOTED = "/var/lib/dlperf/nvidia-driver.rebooted"
SOURCES = "/etc/apt/sources.list.d/site.list"
SITE = "deb [trusted=yes] http://10.11.0.1:8010/site /"  # has the kernel's headers
PROGRAMS = {
    "dkms": f"""
version=$(dpkg-query -W -f '${{Package}} ${{Version}} ${{Status}}\n' 'nvidia-dkms-*' \
  | sed -n 's/^\\S* \\(.*\\)-1ubuntu1 .* \\(unpacked\\|half-configured\\|installed\\)$/\\1/p')
case "$1" in
status) test -z "$version" && exit
  test -e {BUILT} && echo "nvidia/$version, {KERNEL}, x86_64: installed" \
    || echo "nvidia/$version: added" ;;
autoinstall) test -z "$version" && exit
  if [ ! -e /lib/modules/$3/build ]; then
    echo "Error! Your kernel headers for kernel $3 cannot be found." >&2; exit 21
  fi
  # As in the report: cc is older than the kernel's compiler.
  if grep -qs gcc-13 {TREE}/proc/version && [ "$CC" != /usr/bin/gcc-13 ]; then
    echo "gcc: error: unrecognized command-line option '-ftrivial-auto-var-init=zero'" >&2
    echo "Error! Bad return status for module build on kernel: $3 (x86_64)" >&2; exit 10
  fi
  mkdir -p $(dirname {BUILT}); echo $version > {BUILT} ;;
esac""",
    "modinfo": f'test "$2" = {KERNEL} && cat {BUILT} 2> /dev/null',
    "modprobe": f"""
printf '%s\\n' "$@" >> /srv/modprobed
test -s {LOADED} && exit
echo "NVRM version: NVIDIA UNIX x86_64 Kernel Module  $(cat {BUILT})  Wed Oct 29" > {LOADED}""",
    "nvidia-smi": f"sed 's/.*Module  \\(\\S*\\) .*/\\1/' {LOADED}",
    "update-initramfs": "true",
    # The fabric manager's service sets up the fabric: without it cuInit fails. It does not start
    # if it finds no NVSwitches (NVIDIA/gpu-operator#610), as without ib_umad on NVLink 5 (#2781).
    "systemctl": """
unit=${2%.service}
if [ "$1 $unit" = "start nvidia-fabricmanager" ] && ! grep -qsx ib_umad /srv/modprobed \\
  && grep -qs SW_MNG /srv/node/sys/bus/pci/devices/*/vpd; then
  echo "Job for $2 failed because the control process exited with error code." >&2
  exit 1
fi
case "$1" in
show) test -e /srv/started-$unit && state=active || state=inactive
  printf "Id=$2\\nLoadState=loaded\\nActiveState=$state\\n" ;;
is-enabled) test -e /srv/enabled-$unit && echo enabled || { echo disabled; exit 1; } ;;
enable | disable) rm -f /srv/enabled-$unit; test $1 = disable || touch /srv/enabled-$unit
  test "$3" = --no-reload || echo daemon-reload >> /srv/services ;;
start | stop | restart) rm -f /srv/started-$unit; echo $1 $unit >> /srv/services
  test $1 = stop || touch /srv/started-$unit ;;
esac
case "$1 $unit" in
"start nvidia-fabricmanager") rm -f /srv/cuda-fails ;;
"stop nvidia-fabricmanager") echo cuInit 802 > /srv/cuda-fails ;;
esac
true""",
    # The nodes of the lab may make no devices.
    "mknod": 'test "$1 $2 $4 $5 $6" = "-m 0666 c 234 0" && : > "$3"',
    # What a boot loads lies in /srv/boot/at: an initial file system may bring the old driver again.
    "shutdown": f"""
trap '' HUP
date +%s.%N >> {REBOOTS}
setsid sh -c 'sleep 2; . /srv/boot/at; echo $$ > /srv/boot/id' > /dev/null 2>&1 &""",
}
PREPARED = f"""
mkdir -p /etc/modprobe.d /srv/boot /run/systemd/system {TREE}/sys/bus/pci/devices/0000:05:00.0
mkdir -p $(dirname {LOADED}) && ln -s /lib /run /var /usr {TREE} && : > /srv/boot/at
printf 'Character devices:\n195 nvidia\n234 nvidia-caps-imex-channels\n' > {TREE}/proc/devices
echo 0x10de > {TREE}/sys/bus/pci/devices/0000:05:00.0/vendor
echo 0x068000 > {TREE}/sys/bus/pci/devices/0000:05:00.0/class
echo cuInit 802 > /srv/cuda-fails
echo before > /srv/boot/id && mount --bind /srv/boot/id /proc/sys/kernel/random/boot_id
rm -f /sbin/shutdown /usr/bin/systemctl
mkdir -p /etc/modules-load.d  # of kmod, which a node with a kernel has
"""


# Ubuntu's server driver with its signed modules (gpu-driver-container#35), which need the
# nvidia-kernel-common of their release (linuxmint/mintdrivers#71).
COMMON, SERVER = "nvidia-kernel-common-580-server", "580.95.05-0ubuntu1"
HEADLESS = "nvidia-headless-no-dkms-580-server-open"
SIGNED = "linux-modules-nvidia-580-server-open-generic"
UBUNTUS = [
    only_one("libnvidia-compute-580-server", SERVER, "libnvidia-compute"),
    only_one(COMMON, SERVER, "nvidia-kernel-common"),
    one(HEADLESS, SERVER, f"libnvidia-compute-580-server, {COMMON}"),
    one(SIGNED, "6.8.0-87.88", f"{COMMON} (<= 580.95.05-1)"),
]


def place(lab: Lab, path: str, content: bytes) -> None:
    text = base64.b64encode(content).decode()
    lab.said("node1", f"base64 -d > {path} <<'END'\n{text}\nEND\nchmod 755 {path}")


class DriverCluster(Cluster):
    def role(self, *options: str, version: str = NEW, **changed: object) -> str:
        """Driver and fabric manager, in the order in which provisioning runs them."""
        stack = {"driver": {"version": version}}
        given = {"role": "gpu_node", "gpu_node_stack": stack, **changed}
        return self.play("tests/lab/plays/role.yml", *options, **given)

    def runs(self, version: str = NEW) -> None:
        """The node runs a driver of this version, whichever test was there before."""
        self.lab.said("node1", f"rm -f {REBOOTED}; : > /srv/boot/at; echo '{SITE}' > {SOURCES}")
        if self.lab.ssh("node1", "nvidia-smi").stdout.strip() != version:
            self.lab.said("node1", f": > {LOADED}")
        self.role(version=version)

    def remove(self) -> None:
        for role in ("gpu_node", "node_base"):
            self.role(role=role, part="absent")

    def left(self, before: list[str]) -> list[str]:
        return [line for line in self.state("node1") if line not in before]

    def fabric(self) -> dict[str, str]:
        return self.versions("node1", FABRIC | FABRIC_535)

    def reboots(self) -> int:
        return len(self.lab.ssh("node1", f"cat {REBOOTS}").stdout.splitlines())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriverCluster]:
    scratch = tmp_path_factory.mktemp("driver")
    mirror, lab = scratch / "mirror", Lab(scratch / "lab")
    vendors = make_vendors(mirror, scratch, ["jammy"])
    headers = f"linux-headers-{KERNEL}"
    content = {f"/usr/lib/modules/{KERNEL}/build/Makefile": ""}
    site = [one(headers, "1", files=content), one("gcc-13", "13.3.0-1"), *UBUNTUS]
    flat_repository(mirror / "site", site, scratch / "site-key", "key.asc")
    with lab.running(1, mirror=mirror):
        claim(lab, "node1", "jammy")
        lab.said("node1", PREPARED)
        for name, script in PROGRAMS.items():
            place(lab, f"/usr/sbin/{name}", f"#!/bin/sh\n# stand-in\n{script}\n".encode())
        lab.said(
            "node1", "ln -sf /usr/sbin/systemctl /usr/sbin/nvidia-smi /usr/sbin/mknod /usr/bin"
        )
        library = libcuda(scratch, "/srv/cuda-fails")
        place(lab, "/usr/lib/x86_64-linux-gnu/libcuda.so.1", library.read_bytes())
        given = {"nvidia_driver_root": TREE, "fabric_manager_root": TREE, "imex_root": TREE}
        yield DriverCluster(lab, vendors, scratch, vendors.variables | given)


@pytest.fixture(scope="module")
def before(cluster: DriverCluster) -> list[str]:
    return cluster.state("node1")


@pytest.fixture
def bare(cluster: DriverCluster, before: list[str]) -> None:
    """The node has no driver and no source of headers, whichever test was there before."""
    made = f"{SOURCES} {REBOOTED} {REBOOTS} {BUILT}"
    cluster.lab.said("node1", f"rm -f {made}; : > {LOADED}; : > /srv/boot/at")
    if cluster.left(before):
        cluster.remove()
        assert cluster.left(before) == []
        assert cluster.lab.ssh("node1", f"ls {STARTED}").returncode != 0


@pytest.mark.usefixtures("bare")
def test_headers_that_no_source_has_are_named(cluster: DriverCluster) -> None:
    output = cluster.role(status=2)
    assert f"installing linux-headers-{KERNEL}" in output
    assert cluster.versions("node1", ["nvidia-driver-580-open"]) == {}


@pytest.mark.usefixtures("bare")
def test_a_kernel_that_dkms_has_skipped_is_a_failure(cluster: DriverCluster) -> None:
    """apt and dkms succeed; the kernel has no module. With the headers, the next run builds it, and
    the driver runs without a reboot."""
    output = cluster.role(nvidia_driver_build_packages=[], status=2)
    assert cluster.versions("node1", ["nvidia-driver-580-open"])
    assert f"the kernel {KERNEL} has no module of driver {NEW}, found none" in output
    assert f"install linux-headers-{KERNEL}" in output
    assert f"dkms status says: nvidia/{NEW}: added" in output
    assert "Your kernel headers for kernel" in output
    cluster.lab.said("node1", f"echo '{SITE}' > {SOURCES}")
    cluster.role()
    assert cluster.lab.said("node1", f"cat {BUILT}") == NEW
    assert cluster.reboots() == 0
    assert cluster.fabric() == FABRIC
    held = cluster.lab.said("node1", "apt-mark showhold").split()
    assert {*FABRIC, "nvidia-driver-580-open"} <= set(held)
    cluster.lab.said("node1", f"ls {STARTED} /srv/enabled-nvidia-fabricmanager")
    output = cluster.role()
    assert re.search(r"node1 : ok=\d+ changed=0 ", output), output


@pytest.mark.usefixtures("bare")
def test_the_module_is_built_by_the_kernels_compiler(cluster: DriverCluster) -> None:
    """NVIDIA/open-gpu-kernel-modules#805, aws-deep-learning-ami-ubuntu-dcv-desktop#30."""
    line = "Linux version 6.8.0 (buildd@lcy02) (x86_64-linux-gnu-gcc-13 (Ubuntu 13.3.0-6) 13.3.0)"
    cluster.lab.said("node1", f"echo '{SITE}' > {SOURCES}; echo '{line}' > {TREE}/proc/version")
    cluster.role(status=None)
    repeated = cluster.role(status=None)
    cluster.lab.said("node1", f"rm {TREE}/proc/version")
    assert cluster.versions("node1", ["gcc-13"])
    assert cluster.lab.said("node1", f"cat {BUILT}") == NEW
    assert re.search(r"node1 : ok=\d+ changed=0 unreachable=0 failed=0 ", repeated), repeated


@pytest.mark.usefixtures("bare")
def test_ubuntus_server_driver_and_its_modules_are_replaced_together(
    cluster: DriverCluster,
) -> None:
    """ansible-role-nvidia-driver#24, gpu-driver-container#35."""
    theirs = {each.name: each.version for each in UBUNTUS}
    install = f"apt-get update && apt-get install -y {' '.join(theirs)}"
    cluster.lab.said("node1", f"echo '{SITE}' > {SOURCES} && {install}")
    was = cluster.state("node1")
    assert SIGNED in cluster.role(status=2)
    # Nor is the stack's version replaced by itself without consent.
    running = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {NEW}  Wed Oct 29"
    cluster.lab.said("node1", f"echo '{running}' > {LOADED}")
    output = cluster.role(status=2)
    assert f"the driver {NEW} (" in output and SIGNED in output
    cluster.lab.said("node1", f": > {LOADED}")
    assert cluster.state("node1") == was
    cluster.role(dlperf_replace=["driver"])
    wanted = {**FABRIC, "nvidia-driver-580-open": f"{NEW}-1ubuntu1"}
    assert cluster.versions("node1", [*theirs, *wanted]) == wanted
    cluster.remove()
    assert cluster.versions("node1", [*theirs, *wanted]) == theirs
    cluster.lab.said("node1", f"apt-get purge -y {' '.join(theirs)}")


def test_a_newer_point_release_of_somebody_else_stays(cluster: DriverCluster) -> None:
    """A security update of the branch (NVIDIA/gpu-operator#2207)."""
    cluster.runs(NEW)
    was = cluster.state("node1")
    cluster.lab.said("node1", f"cp {LOADED} /srv/loaded; sed -i s/{NEW}/580.178.04/ {LOADED}")
    output = cluster.role(dlperf_fabric_manager=False)
    assert "driver 580.178.04 is a newer point release of" in output
    assert re.search(r"node1 : ok=\d+ changed=0 ", output), output
    # The fabric manager must follow.
    output = cluster.role(status=None)
    cluster.lab.said("node1", f"cp /srv/loaded {LOADED}")
    assert "Check that the fabric manager has the driver's version" in output
    assert cluster.state("node1") == was


def test_a_version_that_the_operator_states_is_installed(cluster: DriverCluster) -> None:
    """A newer point release has the packages of its branch; test_vendor_filters.py has those that
    an operator states."""
    cluster.runs(NEW)
    cluster.lab.said("node1", f": > {LOADED}")  # so that the new one needs no reboot
    cluster.role(gpu_node_stack={"driver": {"version": "580.178.04"}})
    wanted = [*FABRIC, "nvidia-driver-580-open", "nvidia-dkms-580-open"]
    assert cluster.versions("node1", wanted) == dict.fromkeys(wanted, "580.178.04-1ubuntu1")
    assert cluster.lab.said("node1", "nvidia-smi") == "580.178.04"


def test_nvswitches_of_nvlink_5_get_their_subnet_manager(cluster: DriverCluster) -> None:
    """HGX B200: they are behind a function of ConnectX (NVIDIA/gpu-operator#2781)."""
    cluster.runs(NEW)
    device = f"{TREE}/sys/bus/pci/devices/0000:0c:00.0"
    cluster.lab.said(
        "node1",
        f"mkdir -p {device}; echo 0x15b3 > {device}/vendor; echo 0x020700 > {device}/class;"
        f" echo SMDL=SW_MNG > {device}/vpd;"
        " systemctl stop nvidia-fabricmanager; rm -f /srv/modprobed",
    )
    cluster.role()
    assert cluster.lab.said("node1", "tail -1 /srv/services") == "start nvidia-fabricmanager"
    wanted = {"libnvsdm": f"{NEW}-1ubuntu1", "nvlsm": "2025.06.5-1"}
    assert cluster.versions("node1", wanted) == wanted
    modules = cluster.lab.said("node1", "cat /etc/modules-load.d/dlperf-nvlink.conf")
    assert modules.split()[-2:] == ["mlx5_ib", "ib_umad"]
    output = cluster.role(status=None)
    cluster.lab.said("node1", f"rm -r {device}")
    assert re.search(r"node1 : ok=\d+ changed=0 unreachable=0 failed=0 ", output), output


@pytest.mark.usefixtures("bare")
def test_what_is_not_in_the_list_does_not_happen(cluster: DriverCluster) -> None:
    """Another driver is running, so that a reboot comes before the services."""
    device = f"{TREE}/sys/bus/pci/devices/0000:0c:00.0"
    cluster.lab.said(
        "node1",
        f"echo '{SITE}' > {SOURCES}; echo ': > {LOADED}' > /srv/boot/at;"
        " rm -f /srv/services /srv/started-nvidia-* /srv/enabled-nvidia-*\n"
        f"echo 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  {OLD}  Wed Oct 29' > {LOADED}\n"
        f"mkdir -p {device}; echo 0x15b3 > {device}/vendor; echo 0x020700 > {device}/class;"
        f" echo SMDL=SW_MNG > {device}/vpd; apt-get -q update",
    )
    given = {
        "dlperf_stack": "b200-cuda13",
        "dlperf_mirror": "",
        "dlperf_reboot": True,
        "dlperf_vendor_mirror": "http://10.11.0.1:8010/vendor",
        "dlperf_replace": ["driver"],
        "dlperf_nvlink_domain": "rack1",
    }
    options = ["-e", f"@{cluster.variables}", "-e", json.dumps(given), "--tags", "nvidia_driver"]
    output = rehearsed_and_done(cluster.lab, "node1", options)
    cluster.lab.said("node1", f"rm -r {device}")
    packages = {*FABRIC, "nvidia-driver-580-open", "nvlsm", "nvidia-imex"}
    assert packages <= entries(output, "packages")
    assert FABRIC.keys() <= entries(output, "holds")
    services = {"nvidia-persistenced:", "nvidia-fabricmanager:", "nvidia-imex:"}
    assert services <= entries(output, "services")
    assert "/etc/modules-load.d/dlperf-nvlink.conf" in entries(output, "files")
    assert "reboots:\n    one, unless the driver can be loaded without" in output
    # As the test of running work asks: containers lose their GPUs after it.
    assert "daemon-reload" not in cluster.lab.said("node1", "cat /srv/services")


def test_nodes_of_an_nvlink_domain_share_gpu_memory(cluster: DriverCluster) -> None:
    """GB200 NVL72 (NVIDIA/nccl#2186)."""
    cluster.remove()  # what earlier tests installed
    cluster.runs(NEW)
    was = cluster.state("node1")
    rack = {"dlperf_nvlink_domain": "rack1"}
    two = rack | {"imex_domains": {"rack1": ["10.11.0.2", "10.11.0.3"]}}
    nodes, channel = "/etc/nvidia-imex/nodes_config.cfg", "/dev/nvidia-caps-imex-channels/channel0"
    # A domain of somebody else, which has other nodes, too.
    cluster.lab.said("node1", f"mkdir /etc/nvidia-imex; printf '# rack\n10.11.0.9\n' > {nodes}")
    output = cluster.role(role="imex", imex_driver_version=NEW, **two, status=2)
    assert f"Somebody else has configured the nodes of the NVLink domain ({nodes}): 10.11.0.9." in (
        " ".join(output.split())
    )
    cluster.lab.said("node1", "rm -r /etc/nvidia-imex")
    cluster.role(**two)
    wanted = {"nvidia-imex": f"{NEW}-1ubuntu1"}
    assert cluster.versions("node1", wanted) == wanted
    said = cluster.lab.said
    assert said("node1", f"cat {nodes}").split() == ["10.11.0.2", "10.11.0.3"]
    assert "NVreg_CreateImexChannel0=1" in said("node1", "cat /etc/modprobe.d/dlperf-imex.conf")
    said("node1", f"ls {channel} /srv/enabled-nvidia-imex /srv/started-nvidia-imex")
    assert "nvidia-imex" in said("node1", "apt-mark showhold").split()
    output = cluster.role(**two)
    assert re.search(r"node1 : ok=\d+ changed=0 ", output), output

    # Another node of the rack: the service reads the list when it starts, which would end work.
    three = rack | {"imex_domains": {"rack1": ["10.11.0.2", "10.11.0.3", "10.11.0.4"]}}
    process = f"{TREE}/proc/41327"
    said("node1", f"mkdir -p {process}/fd; echo python3 > {process}/comm")
    said("node1", f"ln -s /dev/nvidia0 {process}/fd/3")
    now = cluster.state("node1")
    output = cluster.role(**three, status=None)
    said("node1", f"rm -r {process}")
    assert "IMEX restarts, while processes use the GPUs: python3 (41327)" in output
    assert cluster.state("node1") == now
    cluster.role(**three)
    assert said("node1", "tail -1 /srv/services") == "restart nvidia-imex"

    cluster.role(role="imex", part="absent")
    assert said("node1", f"ls {nodes} /srv/*-nvidia-imex 2> /dev/null || true") == ""
    cluster.remove()
    said("node1", f"rm {channel}")
    cluster.runs(NEW)
    assert cluster.state("node1") == was


def test_an_older_driver_knows_no_nvlink_domain(cluster: DriverCluster) -> None:
    was = cluster.state("node1")
    given = {"dlperf_nvlink_domain": "rack1", "imex_domains": {"rack1": ["10.11.0.2"]}}
    output = cluster.role(version=OLD, **given, status=2)
    assert "need the package nvidia-imex, and none is known for driver 535" in output
    assert cluster.state("node1") == was


def test_driver_and_fabric_manager_move_in_one_transaction(cluster: DriverCluster) -> None:
    """The old one is still in the kernel: that is a failure, which says what is needed."""
    cluster.runs(NEW)
    output = cluster.role(version=OLD, status=2)
    assert f"reboot needed: driver {OLD} is installed, but the running driver is {NEW}" in output
    assert cluster.fabric() == FABRIC_535
    assert cluster.versions("node1", ["nvidia-driver-535"])
    log = cluster.lab.said("node1", "cat /var/log/apt/history.log").split("\n\n")[-1]
    assert "nvidia-driver-535" in log and "nvidia-fabricmanager-535" in log
    assert "nvidia-fabricmanager:" in log.partition("Remove: ")[2]


def test_a_node_is_rebooted_once_for_a_cause(cluster: DriverCluster) -> None:
    """The boot brings the other driver again."""
    cluster.runs(NEW)
    reboots = cluster.reboots()
    for _ in range(2):
        output = cluster.role(version=OLD, dlperf_reboot=True, status=2)
        assert "was rebooted for this already, and another reboot would not help" in output
        assert cluster.reboots() == reboots + 1


def test_for_another_cause_it_is_rebooted_again(cluster: DriverCluster) -> None:
    cluster.runs(NEW)
    reboots = cluster.reboots()
    cluster.lab.said("node1", f"echo ': > {LOADED}' > /srv/boot/at")
    cluster.lab.said("node1", f"echo driver 1 on kernel 2 > {REBOOTED}")
    cluster.role(version=OLD, dlperf_reboot=True)
    assert cluster.reboots() == reboots + 1
    assert cluster.lab.ssh("node1", f"ls {REBOOTED}").returncode != 0


def test_a_reboot_that_takes_too_long_is_not_tried_again(cluster: DriverCluster) -> None:
    cluster.runs(OLD)
    reboots = cluster.reboots()
    cluster.lab.said("node1", "echo 'sleep 20' > /srv/boot/at")
    output = cluster.role(dlperf_reboot=True, dlperf_reboot_timeout=4, status=2)
    assert "Timed out waiting for last boot time check" in output or "timeout" in output.lower()
    assert cluster.reboots() == reboots + 1
    output = cluster.role(dlperf_reboot=True, status=2)
    assert "was rebooted for this already" in output
    assert cluster.reboots() == reboots + 1
    # Somebody has helped.
    cluster.lab.said("node1", f": > {LOADED}")
    cluster.role()
    assert cluster.fabric() == FABRIC
