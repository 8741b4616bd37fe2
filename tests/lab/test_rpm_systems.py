"""Stacks with GPUs on nodes of the RHEL family: check mode, converge, again, verify, newer versions
not taken, another stack, and off again. Never run on a real Rocky Linux, AlmaLinux or RHEL.

What is a stand-in: the packages and their repositories (vendors' names, versions, streams and
dependencies), their keys, and the system: every node is a Debian 12 with Debian's
dnf 4 and rpm, which says in /etc/os-release that it is Rocky Linux or AlmaLinux. No GPU, no systemd
and no SELinux are there. Real are the roles, dnf, rpm, keys, signatures, streams of modules, locks,
files, idempotence and undo. One node for each pair: both releases, both branches of the driver, and
each stack. The pairs that no node is are other rows of the release tables: their versions are
looked up in the repositories.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import yaml
from ansible.module_utils.rpm_family import transaction
from gpu_cluster import Cluster
from gpu_packages import DOCKER, DRIVER
from gpu_standins import Vendors
from lab_under_test import PROJECT, Lab
from node_state import FILES
from rehearsed import changes, untold
from system_plays import OF_NVLINK5, SYSTEMCTL, Pair, Played, States, pairs

from dlperf_runner.bundle.release_tables import VendorRepository, wanted
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.provision.nvidia_driver import headers_refusal

# ---- Stand-ins of the vendors' rpm packages

Package = dict[str, Any]
MIRROR = "/srv/vendors"
CUDA = "developer.download.nvidia.com/compute/cuda/repos"
# What the roles ask the distribution for, and dkms of EPEL.
DISTRIBUTION = (
    "ca-certificates dkms gcc-c++ infiniband-diags kernel-devel libgomp libibverbs-utils"
    " libquadmath numactl-libs openssh-clients openssh-server python3 rdma-core sudo"
)

# Of an earlier minor release: only the vault has its headers.
OLD_KERNEL = "5.14.0-427.13.1"


def one(name: str, version: str, requires: str = "", **more: Any) -> Package:
    return {"name": name, "version": version, "requires": requires, **more}


def fabric(names: Iterable[str], version: str, obsoletes: str = "") -> list[Package]:
    manager, library = names
    says = f"#!/bin/sh\necho 'Fabric Manager version is : {version}'\n"
    program = {"/usr/bin/nv-fabricmanager": says}
    return [
        one(manager, f"{version}-1", files=program, obsoletes=obsoletes),
        one(library, f"{version}-1"),
    ]


def driver(version: str, kmod: str, dist: str) -> list[Package]:
    exact = f"3:{version}-1.{dist}"
    parts = ("nvidia-driver-cuda-libs", "libnvidia-ml", "nvidia-persistenced", "nvidia-modprobe")
    requires = ", ".join(
        [*(f"{name} >= 3:{version}" for name in parts), f"nvidia-kmod = 3:{version}"]
    )
    return [
        one("nvidia-driver-cuda", exact, requires),
        one(
            kmod,
            exact,
            "dkms, nvidia-kmod-common = 3:" + version,
            provides=f"nvidia-kmod = 3:{version}",
            noarch=True,
        ),
        one("nvidia-kmod-common", exact, noarch=True),
        *(one(name, exact) for name in parts),
    ]


def driver_535(version: str, dist: str) -> list[Package]:
    names = ("nvidia-fabric-manager", "libnvidia-nscq-535")
    return [*driver(version, "kmod-nvidia-latest-dkms", dist), *fabric(names, version)]


def driver_580(version: str, dist: str) -> list[Package]:
    """Its fabric manager has another name than before, and takes the place of the former one."""
    names = ("nvidia-fabricmanager", "libnvidia-nscq")
    return [
        *driver(version, "kmod-nvidia-open-dkms", dist),
        *fabric(names, version, "nvidia-fabric-manager"),
    ]


def cuda(series: str, version: str, compiler: str, blas: str) -> list[Package]:
    dashed = series.replace(".", "-")
    nvcc = {f"/usr/local/cuda-{series}/bin/nvcc": DRIVER}
    requires = f"cuda-nvcc-{dashed} >= {compiler}, libcublas-devel-{dashed} >= {blas}"
    return [
        one(f"cuda-toolkit-{dashed}", f"{version}-1", requires),
        one(f"cuda-nvcc-{dashed}", f"{compiler}-1", files=nvcc),
        one(f"libcublas-{dashed}", f"{blas}-1"),
        one(f"libcublas-devel-{dashed}", f"{blas}-1", f"libcublas-{dashed} >= {blas}"),
    ]


def nccl(version: str) -> list[Package]:
    return [
        one("libnccl", version, files={"/usr/lib64/libnccl.so.2": version}),
        one("libnccl-devel", version, f"libnccl = {version}"),
    ]


def cudnn_8(version: str) -> list[Package]:
    return [
        one("libcudnn8", version, files={"/usr/lib64/libcudnn.so.8": version}),
        one("libcudnn8-devel", version, f"libcudnn8 = {version}"),
    ]


def cudnn_9(version: str) -> list[Package]:
    return [
        one("libcudnn9-cuda-12", version, files={"/usr/lib64/libcudnn.so.9": version}),
        one("libcudnn9-headers-cuda-12", version),
        one(
            "libcudnn9-devel-cuda-12",
            version,
            f"libcudnn9-cuda-12 = {version}, libcudnn9-headers-cuda-12",
        ),
    ]


def docker(version: str, containerd: str, dist: str) -> list[Package]:
    return [
        one("docker-ce", f"3:{version}-1.{dist}", "containerd.io, docker-ce-cli"),
        one("docker-ce-cli", f"1:{version}-1.{dist}", files={"/usr/bin/docker": DOCKER}),
        one("containerd.io", f"{containerd}.{dist}"),
    ]


def toolkit(version: str) -> list[Package]:
    base = f"nvidia-container-toolkit-base = {version}"
    return [
        one("nvidia-container-toolkit", version, f"{base}, libnvidia-container-tools >= {version}"),
        one("nvidia-container-toolkit-base", version, files={"/usr/bin/nvidia-ctk": DRIVER}),
        one("libnvidia-container-tools", version, f"libnvidia-container1 >= {version}"),
        one("libnvidia-container1", version),
    ]


def stream(name: str, packages: list[Package]) -> str:
    """A stream of NVIDIA's module. dnf hides its packages unless this stream is enabled."""
    artifacts = []
    for each in packages:
        version = each["version"] if ":" in each["version"] else f"0:{each['version']}"
        artifacts.append(f"{each['name']}-{version}.{'noarch' if each.get('noarch') else 'x86_64'}")
    data = {
        "name": "nvidia-driver", "stream": name, "version": 20251107000000, "context": "00000000",
        "arch": "x86_64", "summary": "stand-in", "description": "stand-in",
        "license": {"module": ["MIT"]}, "artifacts": {"rpms": artifacts},
    }  # fmt: skip
    document = {"document": "modulemd", "version": 2, "data": data}
    return yaml.safe_dump(document, explicit_start=True, explicit_end=True)


def repositories(release: str) -> dict[str, dict[str, Any]]:
    """The vendors' repositories of RHEL 8 or 9, for rpm_repository.py: all generations, and newer
    versions of each."""
    dist = f"el{release}"
    branches = {
        "535-dkms": [*driver_535("535.309.01", dist), *driver_535("535.999.01", dist)],
        "580-open": [*driver_580("580.173.02", dist), *driver_580("580.178.04", dist)],
        "latest-dkms": driver("590.48.01", "kmod-nvidia-latest-dkms", dist),
    }
    libraries = [
        *cuda("11.8", "11.8.0", "11.8.89", "11.11.3.6"),
        *cuda("11.8", "11.8.1", "11.8.99", "11.11.4.1"),
        *cuda("12.9", "12.9.1", "12.9.86", "12.9.1.4"),
        *cuda("12.9", "12.9.2", "12.9.92", "12.9.2.10"),
        *cuda("13.0", "13.0.2", "13.0.88", "13.1.0.3"),
        *cuda("13.0", "13.0.3", "13.0.98", "13.1.1.3"),
        *cudnn_8("8.9.6.50-1.cuda11.8"),
        *cudnn_8("8.9.7.29-1.cuda12.2"),
        *cudnn_9("9.10.2.21-1"),
        *cudnn_9("9.15.0.57-1"),
        *nccl("2.15.5-1+cuda11.8"),
        *nccl("2.28.9-1+cuda13.0"),
        *nccl("2.29.7-1+cuda12.9"),
        *nccl("2.30.0-1+cuda13.0"),
    ]
    engines = [
        *docker("28.1.1", "1.7.27-3.1", dist),
        *docker("29.8.1", "2.3.5-1", dist),
        *docker("99.0.0", "9.9.9-1", dist),
    ]
    cuda_folder = f"{MIRROR}/{CUDA}/rhel{release}/x86_64"
    docker_folder = f"{MIRROR}/download.docker.com/linux/rhel"
    container = f"{MIRROR}/nvidia.github.io/libnvidia-container"
    return {
        cuda_folder: {
            "packages": [package for each in branches.values() for package in each] + libraries,
            "modules": "".join(stream(name, each) for name, each in branches.items()),
            "key": "nvidia-cuda", "key_path": f"{cuda_folder}/D42D0685.pub", "signed": "packages",
        },
        f"{docker_folder}/{release}/x86_64/stable": {
            "packages": engines,
            "key": "docker", "key_path": f"{docker_folder}/gpg", "signed": "packages",
        },
        f"{container}/stable/rpm/x86_64": {
            "packages": [*toolkit("1.18.2-1"), *toolkit("1.98.2-1")],
            "key": "nvidia-container", "key_path": f"{container}/gpgkey", "signed": "index",
        },
        "/srv/foreign": {
            "packages": [
                one("foreign", f"1-1.{dist}"),
                one("needing", f"1-1.{dist}", "needed >= 2"),
                one("needed", f"1-1.{dist}"),
                one("needed", f"2-1.{dist}"),
            ],
            "key": "foreign", "key_path": "/srv/foreign.asc", "signed": "packages",
        },
        "/srv/distribution": {
            "packages": [one(name, f"1-1.{dist}") for name in DISTRIBUTION.split()],
            "key": "distribution", "key_path": "/srv/distribution.asc", "signed": "packages",
        },
        "/srv/vault": {
            "packages": [one("kernel-devel", f"{OLD_KERNEL}.{dist}_4")],
            "key": "distribution", "key_path": "/srv/distribution.asc", "signed": "packages",
        },
    }  # fmt: skip


# ---- tests

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.gpu_roles]  # minutes

BASE = PROJECT / ".cache/lab/bookworm-rpm.tar"
MAKE_BASE = """
import sys; sys.path.insert(0, "roles/lab/files")
import lab_machine, pathlib
lab_machine.PACKAGES += ",dnf,rpm,createrepo-c,dnf-plugins-core,gnupg"
lab_machine.make_base("bookworm", pathlib.Path(sys.argv[1]), None)
"""
LOCKS = "/etc/dnf/plugins/versionlock.list"
# Debian's own settings of dnf and rpm are taken away, and the distribution's repository is added.
CLAIM = r"""
set -e
cat > /etc/os-release <<'EOF'
NAME="{title}"
ID="{name}"
ID_LIKE="rhel centos fedora"
VERSION_ID="{release}.4"
PLATFORM_ID="platform:el{release}"
EOF
mkdir -p /etc/yum.repos.d /etc/rpm /etc/pki/rpm-gpg
echo '%_dbpath /var/lib/rpm' > /etc/rpm/macros
echo {release} > /etc/dnf/vars/releasever
for plugin in local copr debuginfo-install; do
  printf '[main]\nenabled=0\n' > /etc/dnf/plugins/$plugin.conf
done
cat > /etc/dnf/dnf.conf <<'EOF'
[main]
gpgcheck=1
installonly_limit=3
clean_requirements_on_remove=True
best=True
EOF
cat > /etc/yum.repos.d/distribution.repo <<'EOF'
[distribution]
name=distribution
baseurl=file:///srv/distribution
gpgkey=file:///srv/distribution.asc
EOF
dnf -q -y install sudo
rm -f /usr/bin/dpkg-query /usr/bin/apt-get /usr/bin/apt-cache /usr/bin/apt-mark /usr/bin/apt-config
"""
STATE = rf"""
rpm -qa | sort
python3 - <<'EOF'
{FILES}
EOF
"""


PAIRS = pairs([("a100-cuda11.8", "rhel9"), ("h100-cuda12.9", "rhel8"), ("b200-cuda13", "rhel9")])
ALL = pairs(
    (stack.name, name) for stack in load_catalog().stacks.values() for name in stack.systems
)
of_each_pair = pytest.mark.parametrize("pair", PAIRS, ids=str)


def state(lab: Lab, node: str) -> list[str]:
    return [line.rstrip() for line in lab.said(node, STATE).splitlines()]


def sent(lab: Lab, node: str, command: str, content: bytes) -> bytes:
    argv = lab.ssh_argv(node, command)
    done = subprocess.run(argv, input=content, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def prepare(lab: Lab, release: str) -> dict[str, list[str]]:
    """Make a release's repositories on the first of its nodes, copy them to the others, and make
    each node's system; the fingerprints by the repository's name."""
    chosen = [pair for pair in PAIRS if pair.system == f"rhel{release}"]
    program = (PROJECT / "tests/support/rpm_repository.py").read_bytes()
    sent(lab, chosen[0].node, "cat > /root/make.py", program)
    content = json.dumps(repositories(release)).encode()
    made = json.loads(sent(lab, chosen[0].node, "python3 /root/make.py", content))
    packed = sent(lab, chosen[0].node, "tar -C / -c srv", b"")
    for pair in chosen:
        if pair != chosen[0]:
            sent(lab, pair.node, "tar -C / -x", packed)
        is_alma = pair.stack.startswith("b200")
        name, title = ("almalinux", "AlmaLinux") if is_alma else ("rocky", "Rocky Linux")
        claim = CLAIM.format(name=name, title=title, release=release) + SYSTEMCTL
        sent(lab, pair.node, "bash -s", claim.encode())
    return {key: [fingerprint] for key, fingerprint in made.items()}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    scratch = tmp_path_factory.mktemp("rpm")
    subprocess.run([sys.executable, "-c", MAKE_BASE, BASE], cwd=PROJECT, check=True)
    lab = Lab(scratch / "lab")
    made = ["--nodes", len(PAIRS), "--suite", "bookworm", "--base", BASE, "--mirror-dir", scratch]
    lab.control("up", *made)
    try:
        with ThreadPoolExecutor(2) as pool:
            keys = dict(zip("89", pool.map(partial(prepare, lab), "89"), strict=True))
        variables = {
            "dlperf_mirror": "",
            "dlperf_vendor_mirror": MIRROR,
            "dlperf_frameworks": [],
            "dlperf_fabric_manager": True,
            "dlperf_lock_timeout": 2,
        }
        cluster = Cluster(lab, Vendors(scratch, variables, {}), scratch, variables)
        hosts = {
            pair.node: {"dlperf_stack": pair.stack, "dlperf_vendor_keys": keys[pair.system[-1]]}
            for pair in PAIRS
        }
        cluster.inventory.write_text(json.dumps({"nodes": {"hosts": hosts}}))
        yield cluster
    finally:
        lab.down()


@pytest.fixture(scope="module")
def states(cluster: Cluster) -> Callable[[], States]:
    return lambda: {pair.node: state(cluster.lab, pair.node) for pair in PAIRS}


def of_stack(pair: Pair) -> dict[str, str]:
    """Each package that the stack's roles name for a node without NVSwitches, at its version."""
    things = wanted(load_catalog().stack(pair.stack), pair.system)
    found = [one for one in things if isinstance(one, VendorRepository)]
    packages = {name: version for one in found for name, version in one.packages}
    return {name: packages[name] for name in packages.keys() - OF_NVLINK5}


def packages_of(lines: list[str]) -> set[str]:
    """libnccl-2.29.7-1+cuda12.9.x86_64"""
    return {line for line in lines if re.search(r"\.(x86_64|noarch)$", line) and " " not in line}


def upgrades(cluster: Cluster, node: str, *options: str) -> str:
    command = " ".join(["LC_ALL=C dnf --assumeno", *options, "upgrade"])
    return cluster.lab.ssh(node, command).stdout


def said_by(module: str, cluster: Cluster, node: str, *options: str, **arguments: object) -> str:
    """What an execution of a module says, in one line."""
    argv = ["ansible", node, "-i", "inventory/lab", "-b", "-m", module, "-a", json.dumps(arguments)]
    return " ".join(cluster.lab.command(*argv, *options).stdout.split())


@pytest.mark.parametrize("pair", ALL, ids=str)
def test_the_repositories_have_what_a_stack_names(pair: Pair) -> None:
    assert {each.system for each in PAIRS} == {each.system for each in ALL}
    assert {each.stack for each in PAIRS} == {each.stack for each in ALL}
    made = repositories(pair.system.removeprefix("rhel")).values()
    has = {
        (each["name"], each["version"].rpartition(":")[2])
        for one in made
        for each in one["packages"]
    }
    assert of_stack(pair).items() <= has


@of_each_pair
def test_check_mode_changes_nothing(fresh: States, checked: Played, pair: Pair) -> None:
    assert checked.changed(pair.node) > 0
    assert "+gpgcheck=1" in checked.output
    for name, version in of_stack(pair).items():
        assert f"+{name} {version} held" in checked.output
    assert checked.states[pair.node] == fresh[pair.node]


@of_each_pair
def test_it_converges_at_the_exact_versions(converged: Played, pair: Pair) -> None:
    assert converged.changed(pair.node) > 0
    names = {f"{name}-{version}" for name, version in of_stack(pair).items()}
    here = {line.rpartition(".")[0] for line in packages_of(converged.states[pair.node])}
    assert len(names) > 5
    assert names <= here


@of_each_pair
def test_the_rehearsal_lists_dependencies_too(
    fresh: States, checked: Played, converged: Played, pair: Pair
) -> None:
    _before, *lists = re.split(r"(node\d[, node\d]*): what would change ", checked.output)
    of_node = dict(zip(lists[::2], lists[1::2], strict=True))
    listed = next(text for nodes, text in of_node.items() if pair.node in nodes)
    packages = set(listed.partition("packages: ")[2].partition(" holds: ")[0].split())
    states = converged.states[pair.node], fresh[pair.node]
    came = {line.rpartition(".")[0] for line in packages_of(states[0]) - packages_of(states[1])}
    names = {line if line in packages else line.rsplit("-", 2)[0] for line in came}
    assert names - set(of_stack(pair)) - set(DISTRIBUTION.split())
    assert names <= packages


@of_each_pair
def test_the_faq_names_what_no_package_has(
    cluster: Cluster, fresh: States, converged: Played, pair: Pair
) -> None:
    _packages, paths = changes(fresh[pair.node], converged.states[pair.node])
    owned = set(cluster.lab.said(pair.node, "rpm -qal").splitlines())
    assert any(path.startswith("/etc/yum.repos.d/") for path in paths - owned)
    assert untold(paths - owned) == []


@of_each_pair
def test_the_second_run_changes_nothing(converged: Played, again: Played, pair: Pair) -> None:
    assert again.changed(pair.node) == 0
    assert again.states[pair.node] == converged.states[pair.node]


@of_each_pair
def test_no_upgrade_takes_a_newer_version_because_of_the_locks(
    cluster: Cluster, installed: Played, pair: Pair
) -> None:
    assert installed
    assert "Nothing to do." in upgrades(cluster, pair.node)
    unlocked = upgrades(cluster, pair.node, "--disableplugin=versionlock")
    newer = {name for name, *_others in transaction(unlocked)["Upgrading"]}
    assert set(of_stack(pair)) <= newer


@pytest.mark.parametrize("pair", PAIRS[:1], ids=str)
def test_a_node_whose_lock_is_gone_fails_the_verification(
    cluster: Cluster, installed: Played, pair: Pair
) -> None:
    """The proof asks dnf, not the records of the module that wrote the locks."""
    assert installed
    proof = partial(said_by, "family_proof", cluster, pair.node, name="container_engine")
    packages = {"docker-ce": of_stack(pair)["docker-ce"]}
    cluster.lab.said(pair.node, f"cp -p {LOCKS} /root/locks; sed -i /^docker-ce/d {LOCKS}")
    assert "dnf would install another version of docker-ce" in proof(packages=packages)
    cluster.lab.said(pair.node, f"mv /root/locks {LOCKS}")
    assert "SUCCESS" in proof(packages=packages)


@of_each_pair
def test_decommissioning_leaves_packages_and_files_as_they_were(
    fresh: States, decommissioned: Played, pair: Pair
) -> None:
    assert decommissioned.changed(pair.node) > 0
    assert decommissioned.states[pair.node] == fresh[pair.node]


def test_headers_that_only_the_vault_has_are_refused_before_anything_changes(
    cluster: Cluster, fresh: States
) -> None:
    """GoogleCloudDataproc/initialization-actions#1206. dnf has kernel-devel, of another kernel; the
    command of the message installs those of the vault. By /srv/node, the node is no container;
    test_driver_of_images.py has the vaults' addresses."""
    node = PAIRS[0].node
    assert fresh
    cluster.lab.said(node, "mkdir -p /srv/node/proc && ln -sfn /etc /usr /var /srv/node")
    before = state(cluster.lab, node)
    limited = ("--tags", "nvidia_driver", "--limit", node)
    output = cluster.play("provision.yml", *limited, status=2, nvidia_driver_root="/srv/node")
    kernel = cluster.lab.said(node, "uname -r")
    assert "No repository of the node has the headers of its running kernel" in output
    assert f"headers of its running kernel (kernel-devel-{kernel})" in output
    assert "Boot the newest kernel (dnf update kernel, then reboot)" in output
    assert f"{node} : " in output and "changed=0 " in output.rpartition("PLAY RECAP")[2]
    assert state(cluster.lab, node) == before

    kernel = f"{OLD_KERNEL}.el{PAIRS[0].system.removeprefix('rhel')}_4.x86_64"
    facts = {"kernel": kernel, "is_container": False, "offers_headers": False}
    command = headers_refusal(facts, "Rocky").partition("vault of its release: ")[2]
    command = re.sub("https://[^ ]*", "file:///srv/vault", command)
    assert f"kernel-devel-{kernel}" not in cluster.lab.said(node, "rpm -qa")
    cluster.lab.said(node, f"{command} --assumeyes")
    assert f"kernel-devel-{kernel}" in cluster.lab.said(node, "rpm -qa")
    cluster.lab.said(node, "dnf --assumeyes remove kernel-devel")


def test_packages_that_another_key_signed_are_refused(cluster: Cluster, fresh: States) -> None:
    node = PAIRS[0].node
    assert fresh
    before = state(cluster.lab, node)
    keys = json.loads(cluster.inventory.read_text())["nodes"]["hosts"][node]["dlperf_vendor_keys"]
    release = PAIRS[0].system.removeprefix("rhel")
    key = f"{MIRROR}/{CUDA}/rhel{release}/x86_64/D42D0685.pub"
    repository = {"name": "other", "uri": "file:/srv/foreign", "key": key}
    family = partial(said_by, "package_family", cluster, node, name="foreign")
    packages = {"foreign": f"1-1.el{release}"}

    wrong = family(packages=packages, repository=repository | {"fingerprints": ["A" * 40]})
    assert f"expected fingerprint {'A' * 40}, found {keys['nvidia-cuda'][0]}" in wrong
    assert state(cluster.lab, node) == before
    right = repository | {"fingerprints": keys["nvidia-cuda"]}
    said = family(packages=packages, repository=right)
    assert "its packages are not signed with the repository's configured key" in said
    assert "foreign-1" not in cluster.lab.said(node, "rpm -qa")
    assert "CHANGED" in family(state="absent")
    assert state(cluster.lab, node) == before


HIDING = {
    "lock": (LOCKS, "needed-0:1-1.*"),
    "exclude": ("/etc/dnf/dnf.conf", "excludepkgs=needed-2*"),
}


@pytest.mark.parametrize("hiding", HIDING)
def test_a_rehearsal_obeys_what_the_administrator_locks_and_excludes(
    cluster: Cluster, fresh: States, hiding: str
) -> None:
    """Before, check mode listed a package that a lock hides, and the run failed at it."""
    lab, node, (path, line) = cluster.lab, PAIRS[0].node, HIDING[hiding]
    assert fresh
    keys = json.loads(cluster.inventory.read_text())["nodes"]["hosts"][node]["dlperf_vendor_keys"]
    repository = {"name": "other", "uri": "file:/srv/foreign", "key": "file:/srv/foreign.asc"}
    family = partial(said_by, "package_family", cluster, node)
    wanted = {
        "name": "foreign",
        "packages": {"needing": f"1-1.el{PAIRS[0].system.removeprefix('rhel')}"},
        "repository": repository | {"fingerprints": keys["foreign"]},
    }
    was = state(lab, node)
    lab.said(node, f"cp -p {path} /root/kept; echo '{line}' >> {path}")
    hidden = state(lab, node)
    for options in (("--check", "--diff"), ()):
        output = family(*options, **wanted)
        assert "choosing the packages: the node's dnf hides the package" in output, output
        assert "dnf versionlock list" in output
        assert state(lab, node) == hidden
    lab.said(node, f"mv /root/kept {path}")
    assert "+needed 2-1" in family("--check", "--diff", **wanted)
    assert state(lab, node) == was
    assert "CHANGED" in family(**wanted)
    assert "needed-2-1" in lab.said(node, "rpm -qa")
    assert "CHANGED" in family(name="foreign", state="absent")
    assert state(lab, node) == was


# Serves /srv as packages.example, to those that ask it as a proxy: GET http://packages.example/...
PROXY = "http://127.0.0.1:3128"
SERVE = """
set -e
mkdir -p /root/proxy/http: && ln -s /srv /root/proxy/http:/packages.example
cd /root/proxy
setsid python3 -m http.server 3128 --bind 127.0.0.1 > /root/proxy.log 2>&1 < /dev/null &
echo $!
"""


def test_dnf_and_keys_go_through_the_proxy(cluster: Cluster) -> None:
    """NVIDIA/deepops#35. The node has no name service; the proxy is in dnf.conf or dlperf_proxy."""
    lab, node = cluster.lab, PAIRS[0].node
    keys = json.loads(cluster.inventory.read_text())["nodes"]["hosts"][node]["dlperf_vendor_keys"]
    before, uri = state(lab, node), "http://packages.example/foreign"
    release = PAIRS[0].system.removeprefix("rhel")
    repository = {"name": "other", "uri": uri, "key": f"{uri}.asc", "fingerprints": keys["foreign"]}
    family = {"packages": {"foreign": f"1-1.el{release}"}, "repository": repository}
    play = {
        "hosts": node,
        "environment": "{{ dlperf_proxy | default('') | provision_proxy }}",
        "tasks": [{"package_family": {"name": "foreign", **family}}],
    }
    book = cluster.scratch / "family.json"
    book.write_text(json.dumps([play]))
    install = partial(cluster.play, str(book), "-b")
    assert "the proxy (dlperf_proxy; none is set)" in install(status=2)
    # The plays of provisioning say the proxy to their modules; none answers at this one.
    vendors = {"dlperf_vendor_mirror": "", "dlperf_proxy": "http://127.0.0.1:9"}
    provision = ("provision.yml", "--tags", "nccl", "--limit", node)
    assert "the proxy http://127.0.0.1:9" in cluster.play(*provision, status=2, **vendors)
    pid = lab.said(node, SERVE)
    try:
        lab.said(node, f"echo proxy={PROXY} >> /etc/dnf/dnf.conf")
        install()
        lab.said(node, "sed -i '/^proxy=/d' /etc/dnf/dnf.conf")
        absent = partial(said_by, "package_family", cluster, node, name="foreign", state="absent")
        assert "CHANGED" in absent()
        install(dlperf_proxy=PROXY)
        asked = lab.said(node, "rpm -q foreign; cat /root/proxy.log")
        assert f"foreign-1-1.el{release}" in asked
        assert (
            len(re.findall(r"GET http://packages.example/foreign/repodata/repomd.xml", asked)) == 2
        )
        assert "CHANGED" in absent()
    finally:
        lab.said(node, f"kill {pid}; rm -r /root/proxy /root/proxy.log")
    assert state(lab, node) == before
