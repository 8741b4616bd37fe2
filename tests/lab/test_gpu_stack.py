"""What goes wrong with GPU nodes, on two that were in use before: each ends in a clear error, and
the next run repairs it. Against signed repositories of stand-in packages, as in
test_gpu_systems.py, which has what goes well, on every system.

No payload here is NVIDIA's or Docker's: apt, dpkg, keys, pins, holds, order, idempotence, errors
and undo are real, and so are names, versions and dependencies. node1 is a Debian 12; node2 says in
its /etc/os-release that it is Ubuntu 18.04, which it is not.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu_cluster import OF_STACK, V100, VERSIONS, UsedCluster, claim
from gpu_packages import cublas, nccl
from gpu_standins import CUDA, Vendors, make_vendors
from lab_under_test import Lab
from standin_repository import flat_repository

# ---- Two nodes that were in use before anybody provisions them; see tests/lab/test_gpu_stack.py

DOCKER = {"engine": "docker", "version": "20.10.7", "toolkit": "1.13.5"}
# Each role by itself, and what nobody else gives them; the versions are those of OF_STACK.
ALONE: dict[str, object] = {
    "role": [
        *("nvidia_driver", "cuda", "cudnn", "nccl", "container_runtime"),
        *("node_tuning", "gpu_node"),
    ],
    "nvidia_driver_version": "440.33.01",
    **{f"{name}_version": version for name, version in OF_STACK.items()},
    "container_runtime_engine": DOCKER["engine"],
    "container_runtime_engine_version": DOCKER["version"],
    "container_runtime_toolkit_version": DOCKER["toolkit"],
    "node_tuning_settings": {},
    "gpu_node_stack": {
        "driver": {"version": "440.33.01"},
        **{name: {"version": version} for name, version in OF_STACK.items()},
        "container_runtime": DOCKER,
    },
}


def make_vendors_and_site(mirror: Path, scratch: Path) -> Vendors:
    vendors = make_vendors(mirror, scratch, ("bionic", "jammy"))
    # The site's own repository has another NCCL, which node2 had before anybody provisioned it.
    site = [*nccl("2.8.4-1+cuda10.2"), *cublas("10.2.3.254-1")]
    flat_repository(mirror / "site", site, scratch / "site-key", "key.asc")
    return vendors


def use_nodes(lab: Lab) -> None:
    lab.said("node1", "mkdir -p /etc/modprobe.d")
    claim(lab, "node2", "bionic")
    lab.said(
        "node2",
        """
        mkdir -p /etc/modprobe.d /etc/docker
        echo '{"log-driver": "local"}' > /etc/docker/daemon.json
        echo 'deb [trusted=yes] http://10.11.0.1:8010/site /' > /etc/apt/sources.list.d/site.list
        apt-get update && apt-get install -y libnccl2 """,
    )


# ---- tests

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.gpu_roles]  # minutes

H100 = "h100-cuda12.9"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UsedCluster]:
    mirror, scratch = tmp_path_factory.mktemp("mirror"), tmp_path_factory.mktemp("vendors")
    vendors = make_vendors_and_site(mirror, scratch)
    given = vendors.variables | vendors.archive_of("bionic") | {"dlperf_replace": ["nccl"]}
    with Lab(tmp_path_factory.mktemp("gpu") / "lab").running(2, mirror=mirror) as lab:
        use_nodes(lab)
        yield UsedCluster(lab, vendors, scratch, given)


@pytest.fixture(scope="module")
def before(cluster: UsedCluster) -> list[str]:
    return cluster.state("node2")


def apart_from_ours(state: list[str]) -> list[str]:
    """The state without the records of this project."""
    return [line for line in state if "/var/lib/dlperf" not in line]


@pytest.fixture
def bare(cluster: UsedCluster, before: list[str]) -> None:
    """node2 has nothing of this project, whichever test was there before."""
    cluster.lab.said("node2", "apt-get clean")
    if apart_from_ours(cluster.state("node2")) != before:
        cluster.play("playbooks/decommission.yml", "--limit", "node2")


@pytest.fixture
def installed(cluster: UsedCluster, before: list[str]) -> None:
    """node2 is provisioned, whichever test was there before."""
    assert before
    if cluster.versions("node2", VERSIONS) != VERSIONS:
        cluster.provision()


def test_what_a_system_does_not_take_is_refused_before_anything_changes(
    cluster: UsedCluster,
) -> None:
    was = cluster.state("node1")
    output = cluster.provision(node="node1", status=2)
    assert "440.33.01 does not support Debian 12" in output
    assert "only Ubuntu 16.04 or Ubuntu 18.04" in output
    assert cluster.state("node1") == was


@pytest.mark.usefixtures("bare")
def test_a_file_of_the_controller_serves_too(cluster: UsedCluster) -> None:
    """And one that was cut off does not."""
    cut = cluster.scratch / "cut.deb"
    cut.write_bytes(cluster.vendors.archives["bionic"].read_bytes()[:-100])
    cluster.refused("nccl", "it is incomplete or another file", nccl_archive=str(cut))
    whole = cluster.scratch / "whole.deb"
    whole.write_bytes(cluster.vendors.archives["bionic"].read_bytes())
    cluster.alone("nccl", nccl_archive=str(whole))
    assert cluster.versions("node2", ["libnccl2"]) == {"libnccl2": VERSIONS["libnccl2"]}


@pytest.mark.usefixtures("bare")
def test_a_node_that_is_lost_in_the_middle_is_repaired_by_the_next_run(
    cluster: UsedCluster,
) -> None:
    """Before dpkg can start, apt, the module that called it and the connection are gone."""
    die = r"""
    end() {
      for p in /proc/[0-9]*; do
        case "$(tr '\0' ' ' < $p/cmdline)" in $1) kill -9 ${p#/proc/} ;; esac
      done
    }
    end "sshd: root*"; end "*AnsiballZ*"; end "/usr/bin/python3*"; end "apt-get*"
    """
    cluster.lab.said("node2", f"cat > /root/die <<'EOF'\n{die}\nEOF")
    hook = """echo 'DPkg::Pre-Invoke {"sh /root/die";};' > /etc/apt/apt.conf.d/99die"""
    cluster.lab.said("node2", hook)
    output = cluster.alone("cuda", status=4)
    assert re.search(r"node2 : ok=\d+ changed=\d+ unreachable=1", output)
    cluster.lab.said("node2", "rm /etc/apt/apt.conf.d/99die /root/die")
    cluster.alone("cuda")
    assert cluster.versions("node2", ["libcublas10"]) == {"libcublas10": VERSIONS["libcublas10"]}


@pytest.mark.usefixtures("bare")
def test_a_run_brings_everything_and_a_second_one_nothing(cluster: UsedCluster) -> None:
    output = cluster.provision()
    assert "driver 440.33.01 is installed, but the running driver is none" in output
    assert cluster.versions("node2", VERSIONS) == VERSIONS
    assert set(VERSIONS) <= set(cluster.lab.said("node2", "apt-mark showhold").split())
    daemon = json.loads(cluster.lab.said("node2", "cat /etc/docker/daemon.json"))
    assert daemon["log-driver"] == "local"
    assert daemon["runtimes"]["nvidia"]["path"] == "nvidia-container-runtime"
    output = cluster.provision("--diff")
    assert re.search(r"node2 : ok=\d+ changed=0 ", output), output


@pytest.mark.usefixtures("installed")
def test_each_role_alone_finds_its_own_and_changes_nothing(cluster: UsedCluster) -> None:
    given = {"dlperf_stack": V100, **ALONE}
    output = cluster.play("tests/lab/plays/role.yml", "--limit", "node2", **given)
    assert re.search(r"node2 : ok=\d+ changed=0 ", output), output


MIRROR = "http://10.11.0.1:8010/vendor"
SITE_CUDA = f"http://10.11.0.1:8010/{CUDA}/ubuntu1804/x86_64"
SITE_TOOLKIT = f"{MIRROR}/nvidia.github.io/libnvidia-container"
RINGS = "/usr/share/keyrings"
# As cuda-keyring, NVIDIA's and Docker's documentation set them up, but with the mirror's addresses.
SITE_SOURCES = f"""
set -e
python3 - <<'EOF'
import urllib.request as r
keys = {{
    "cuda": "{SITE_CUDA}/3bf863cc.pub",
    "toolkit": "{SITE_TOOLKIT}/gpgkey",
    "docker": "{MIRROR}/download.docker.com/linux/ubuntu/gpg",
}}
for name, url in keys.items():
    r.urlretrieve(url, f"{RINGS}/site-{{name}}.asc")
EOF
cd /etc/apt/sources.list.d
cat > cuda-ubuntu1804-x86_64.list <<'EOF'
deb [signed-by={RINGS}/site-cuda.asc] {SITE_CUDA}/ /
EOF
cat > nvidia-container-toolkit.list <<'EOF'
deb [signed-by={RINGS}/site-toolkit.asc] {SITE_TOOLKIT}/stable/ubuntu18.04/$(ARCH) /
EOF
cat > docker.sources <<'EOF'
Types: deb
URIs: {MIRROR}/download.docker.com/linux/ubuntu
Suites: bionic
Components: stable
Architectures: amd64
Signed-By: /usr/share/keyrings/site-docker.asc
EOF
"""
NO_SITE_SOURCES = """
cd /etc/apt/sources.list.d
rm -f cuda-ubuntu1804-x86_64.list nvidia-container-toolkit.list docker.sources
rm -f /usr/share/keyrings/site-*.asc
apt-get -q update
"""


# As a site may have changed them: packages without verification, another key, no component.
WRONG_SOURCES = {
    "node1": "sed -i 's/^Components: stable$/Components: test/' docker.sources",
    "node2": "sed -i 's/signed-by=[^] ]*/trusted=yes/' cuda-ubuntu1804-x86_64.list"
    f" && cp {RINGS}/site-cuda.asc {RINGS}/site-toolkit.asc",
}


@pytest.fixture
def wrong_sources(cluster: UsedCluster, bare: None) -> Iterator[dict[str, list[str]]]:
    """Two bare nodes of the same system whose sources cannot serve; their states."""
    cluster.lab.said("node1", "cp -P /etc/os-release /root/os-release")
    claim(cluster.lab, "node1", "bionic")
    for node, change in WRONG_SOURCES.items():
        cluster.lab.said(node, f"{SITE_SOURCES}\n{change}")
    yield {node: cluster.state(node) for node in WRONG_SOURCES}
    cluster.lab.said("node1", "mv /root/os-release /etc/os-release")
    for node in WRONG_SOURCES:
        cluster.lab.said(node, NO_SITE_SOURCES)


def test_sources_that_cannot_serve_are_refused_on_all_nodes_before_any_of_them_changes(
    cluster: UsedCluster, wrong_sources: dict[str, list[str]]
) -> None:
    output = cluster.provision(node="node1,node2", status=2)
    folder = "/etc/apt/sources.list.d"
    docker = f"container_engine: {folder}/docker.sources:1 has {MIRROR}/download.docker.com/"
    cuda = f"{folder}/cuda-ubuntu1804-x86_64.list:1 has {SITE_CUDA}/ with trusted=yes"
    toolkit = f"container_toolkit: {folder}/nvidia-container-toolkit.list:1 has {SITE_TOOLKIT}/"
    refusals = dict(re.findall(r"fatal: \[(node\d)\]: (.*?)(?= \[ERROR\]| fatal:| PLAY )", output))
    assert f"{docker}linux/ubuntu/ without component stable" in refusals["node1"]
    # One message for the families of one source; all of a node's at once.
    both = f"2 problems, and nothing was changed: - nvidia_driver, cuda: {cuda}"
    assert both in refusals["node2"]
    assert f"- {toolkit}" in refusals["node2"]
    assert "with another key: expected fingerprint" in refusals["node2"]
    assert "Set up the base of every node" not in output
    for node, was in wrong_sources.items():
        assert re.search(rf"{node} : ok=\d+ changed=0 ", output), output
        assert cluster.state(node) == was


@pytest.mark.usefixtures("installed")
def test_no_secret_is_in_argv_logs_or_on_the_node(cluster: UsedCluster) -> None:
    secret = "planted-" + hashlib.sha256(b"planted").hexdigest()
    password, vault = cluster.scratch / "password", cluster.scratch / "vault.yml"
    password.write_text("open sesame\n")
    vault.write_text(json.dumps({"container_runtime_registry_token": secret}))
    sealed = ["ansible-vault", "encrypt", "--vault-password-file", str(password), str(vault)]
    assert cluster.lab.command(*sealed).returncode == 0
    image = "registry.example/tensorflow@sha256:" + "1" * 64
    options = ("-vvv", "-e", f"@{vault}", "--vault-password-file", str(password))
    output = cluster.provision(
        *options,
        tags="container_runtime",
        container_runtime_registry="registry.example",
        container_runtime_images=[image],
    )
    log = cluster.lab.said("node2", "cat /var/log/standin-docker.log")
    assert "argv: login --username $oauthtoken --password-stdin registry.example\n" in log
    assert f"stdin: {hashlib.sha256(secret.encode()).hexdigest()}" in log
    assert f"argv: pull {image}\n" in log
    assert log.splitlines()[-1] == "argv: logout registry.example"
    assert secret not in output
    assert secret not in log
    found = cluster.lab.ssh(
        "node2", f"grep -rlF -D skip {secret} /etc /root /home /tmp /var/log /var/lib"
    )
    assert found.stdout == ""


@pytest.mark.usefixtures("installed")
def test_another_stack_and_back(cluster: UsedCluster) -> None:
    """The node says that it is Ubuntu 22.04 now: no system takes both stacks."""
    claim(cluster.lab, "node2", "jammy")
    cluster.provision(stack=H100)
    new = {
        "nvidia-driver-580-open": "580.173.02-1ubuntu1",
        "cuda-toolkit-12-9": "12.9.1-1",
        "libcudnn9-cuda-12": "9.10.2.21-1",
        "libnccl2": "2.29.7-1+cuda12.9",
        "docker-ce": "5:29.8.1-1~ubuntu.22.04~jammy",
        "nvidia-container-toolkit": "1.18.2-1",
    }
    old = ("nvidia-driver-440", "cuda-drivers", "cuda-toolkit-10-2", "libcudnn7", "libcublas10")
    assert cluster.versions("node2", new) == new
    assert cluster.versions("node2", old) == {}
    claim(cluster.lab, "node2", "bionic")
    cluster.provision()
    assert cluster.versions("node2", VERSIONS) == VERSIONS
    assert cluster.versions("node2", set(new) - set(VERSIONS)) == {}


@pytest.mark.usefixtures("installed")
def test_decommissioning_leaves_the_node_as_it_was(cluster: UsedCluster, before: list[str]) -> None:
    there = cluster.state("node2")
    cluster.play("playbooks/decommission.yml", "--limit", "node2", "--check")
    assert cluster.state("node2") == there
    cluster.play("playbooks/decommission.yml", "--limit", "node2")
    assert cluster.state("node2") == before


def test_the_run_file_serves_a_system_without_packages(cluster: UsedCluster) -> None:
    run = cluster.scratch / "driver.run"
    run.write_text(
        "#!/bin/sh\n# stand-in\necho $* > /var/log/nvidia-installer.log\n"
        "printf '#!/bin/sh\\nrm /usr/bin/nvidia-*\\n' > /usr/bin/nvidia-uninstall\n"
        "echo '#!/bin/sh' > /usr/bin/nvidia-smi; chmod 755 /usr/bin/nvidia-*\n"
    )
    was = cluster.state("node1")
    given: dict[str, object] = {
        "nvidia_driver_version": "580.105.08",
        "nvidia_driver_method": "runfile",
        "nvidia_driver_runfile": str(run),
    }
    output = cluster.alone("nvidia_driver", "node1", **given, status=2)
    assert "has no known checksum" in output
    assert "Set nvidia_driver_sha256" in output
    given["nvidia_driver_sha256"] = hashlib.sha256(run.read_bytes()).hexdigest()
    cluster.alone("nvidia_driver", "node1", **given)
    assert "--silent" in cluster.lab.said("node1", "cat /var/log/nvidia-installer.log")
    output = cluster.alone("nvidia_driver", "node1", **given)
    assert re.search(r"node1 : ok=\d+ changed=0 ", output), output
    cluster.alone("nvidia_driver", "node1", part="absent", **given)
    cluster.lab.said("node1", "rmdir /var/lib/dlperf/files /var/lib/dlperf")
    assert cluster.state("node1") == was
    assert cluster.lab.ssh("node1", "ls /usr/bin/nvidia-smi").returncode != 0
