"""Each stack with GPUs, and each Debian and Ubuntu that a stack names: check mode, converge, again,
verify, the newer versions not taken, and off again. The pairs that no node is are other rows of the
release tables; apt chooses their versions without a node.

What is a stand-in: the packages, and their repositories (vendors' names, versions and
dependencies; gpu_packages.py), their keys, and the system: every node is a Debian 12, of which
those for another suite say in /etc/os-release that they are that one, with Debian 12's apt, dpkg
and Python. No GPU and no systemd is there either: `systemctl` and `docker` are stand-ins that
write down what they are told, and units of a driver that does not run are not tested. Real are
the roles, apt, dpkg, keys, pins, holds, files, idempotence and undo.

One node for each pair, all in the same plays, whose results are fixtures; two nodes by the oldest
Ansible that is supported, the others by the controller's own.
"""

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from gpu_cluster import Cluster, claim
from gpu_standins import make_vendors
from lab_under_test import BIN, Lab
from system_plays import OF_NVLINK5, SYSTEMCTL, Pair, Played, States, pairs

from dlperf_runner.bundle import apt
from dlperf_runner.bundle.archives import Source
from dlperf_runner.bundle.release_tables import VendorFile, VendorRepository, wanted
from dlperf_runner.bundle.vendors import preferences
from dlperf_runner.catalog.reader import load_catalog

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.gpu_roles]  # minutes

ROLES = ("nvidia_driver", "cuda", "cudnn", "nccl", "container_runtime")
PLACED = {"/etc/modprobe.d/dlperf-nouveau.conf", "/etc/docker/daemon.json"}
RECORDS = {"container_engine", "container_toolkit", "nvidia_driver"}
LIBRARIES = {"cuda", "cudnn", "nccl"}  # those that the stack names
# On 16.04 the driver is one package; jammy's repository has the packages of three generations.
CURRENT = pairs(
    [
        ("v100-cuda10.2", "xenial"),
        ("a100-cuda11.8", "focal"),
        ("h100-cuda12.9", "jammy"),
        ("b200-cuda13", "noble"),
    ]
)
OLDEST = pairs([("v100-cuda10.2", "bionic"), ("h100-cuda12.9", "bookworm")])
# No node is one of these. AMD's: test_gpu_amd.py.
OTHERS = {
    (stack.name, suite)
    for stack in load_catalog().stacks.values()
    for suite in stack.suites
    if stack.driver
} - {(pair.stack, pair.system) for pair in (*CURRENT, *OLDEST)}


@dataclass(frozen=True)
class Policy:
    """What apt-cache policy says of a package."""

    installed: str
    candidate: str
    priorities: dict[str, int]


def policies(cluster: Cluster, node: str, names: list[str]) -> dict[str, Policy]:
    said = cluster.lab.said(node, "LC_ALL=C apt-cache policy " + " ".join(names))
    found = {}
    for block in re.split(r"(?m)^(?=\S)", said):
        if block:
            installed, candidate = re.findall(r"(?m)^  (?:Installed|Candidate): (\S+)", block)
            versions = re.findall(r"(?m)^ (?:\*\*\*|   ) (\S+) (-?\d+)$", block)
            name = block.partition(":")[0]
            priorities = {version: int(priority) for version, priority in versions}
            found[name] = Policy(installed, candidate, priorities)
    return found


def things_of(pair: Pair) -> list[VendorRepository | VendorFile]:
    """The vendors' items that the stack's roles install, with Docker as the engine."""
    stack = load_catalog().stack(pair.stack)
    assert stack.container_runtime
    docker = stack.container_runtime.model_copy(update={"engine": "docker"})
    things = wanted(stack.model_copy(update={"container_runtime": docker}), pair.system)
    return [one for one in things if one.wanted_by in ROLES]


def of_stack(pair: Pair) -> dict[str, str]:
    """Each package that the stack names for a node without NVSwitches, at its version."""
    said = " ".join(one.item.name for one in things_of(pair))
    packages = dict(re.findall(r"(\S+)=(\S+)", said))
    return {name: packages[name] for name in packages.keys() - OF_NVLINK5}


def packages_of(state: list[str]) -> dict[str, str]:
    """Name and version of each that is installed, out of a node's state."""
    lines = (line.split(" ") for line in state if line.endswith(" ok installed"))
    return {line[0].partition(":")[0]: line[1] for line in lines}


@pytest.fixture(scope="module", params=["current", "2.16"])
def chosen(request: pytest.FixtureRequest) -> list[Pair]:
    """The pairs that the controller's own Ansible gets, or the oldest that is supported."""
    return CURRENT if request.param == "current" else OLDEST


@pytest.fixture(params=[*CURRENT, *OLDEST], ids=str)
def pair(request: pytest.FixtureRequest, chosen: list[Pair]) -> Pair:
    if request.param not in chosen:
        pytest.skip("a node of the other Ansible")
    return request.param


@pytest.fixture(scope="module")
def cluster(
    request: pytest.FixtureRequest, chosen: list[Pair], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    programs = request.getfixturevalue("old_ansible") if chosen is OLDEST else BIN
    scratch = tmp_path_factory.mktemp("systems")
    mirror, lab = scratch / "mirror", Lab(scratch / "lab", programs)
    vendors = make_vendors(mirror, scratch, [pair.system for pair in chosen])
    with lab.running(len(chosen), mirror=mirror):
        for pair in chosen:
            claim(lab, pair.node, pair.system)
            lab.said(pair.node, SYSTEMCTL)
        made = Cluster(lab, vendors, scratch, vendors.variables)
        hosts = {
            pair.node: {"dlperf_stack": pair.stack, **vendors.archive_of(pair.system)}
            for pair in chosen
        }
        made.inventory.write_text(json.dumps({"nodes": {"hosts": hosts}}))
        yield made


@pytest.fixture(scope="module")
def states(cluster: Cluster, chosen: list[Pair]) -> Callable[[], States]:
    nodes = [pair.node for pair in chosen]

    def found() -> States:
        with ThreadPoolExecutor(2) as pool:
            return dict(zip(nodes, pool.map(cluster.state, nodes), strict=True))

    return found


@pytest.mark.parametrize("suite", sorted({suite for _, suite in OTHERS}))
def test_apt_chooses_the_versions_of_the_other_stacks(tmp_path: Path, suite: str) -> None:
    """Under the pins of each; the repositories have newer ones, and those of other stacks."""
    nodes = (*CURRENT, *OLDEST)
    assert {name for name, _ in OTHERS} <= {pair.stack for pair in nodes}
    assert suite in {pair.system for pair in nodes}
    make_vendors(tmp_path / "mirror", tmp_path, [suite])
    served = f"{tmp_path}/mirror/vendor/"
    for stack, system in sorted(OTHERS):
        if system != suite:
            continue
        pair = Pair(stack, suite, "")
        families = [one for one in things_of(pair) if isinstance(one, VendorRepository)]
        root, names = apt.Root(tmp_path / stack, "amd64"), of_stack(pair)
        places = {
            (one.uri, one.suite, one.components, one.key.replace("https://", served))
            for one in families
        }
        apt.prepare(
            root,
            [
                Source(uri.replace("https://", f"file:{served}"), (name,), components, key)
                for uri, name, components, key in sorted(places)
            ],
            preferences(families),
        )
        assert not apt.update(root)
        resolved = apt.resolve(root, names, where=str(pair))
        assert names.items() <= {one.name: one.version for one in resolved}.items()
        assert len(resolved) > len(names)


def test_check_mode_on_a_fresh_node_fails_nothing_and_changes_nothing(
    fresh: States, checked: Played, pair: Pair
) -> None:
    assert checked.changed(pair.node) > 0
    assert "+Pin-Priority: 1001" in checked.output
    for name, version in of_stack(pair).items():
        assert f"+{name} {version} held" in checked.output
    assert checked.states[pair.node] == fresh[pair.node]


def test_it_converges_at_the_exact_versions_and_holds_them(
    fresh: States, converged: Played, pair: Pair
) -> None:
    assert converged.changed(pair.node) > 0
    here, wanted = packages_of(converged.states[pair.node]), of_stack(pair)
    assert {name: here.get(name) for name in wanted} == wanted
    # What came with them, too.
    new = set(here) - set(packages_of(fresh[pair.node]))
    assert new > set(wanted)
    holds = [line for line in converged.states[pair.node] if line.endswith(" hold ok installed")]
    assert new == set(packages_of(holds))


def test_the_second_run_changes_nothing(converged: Played, again: Played, pair: Pair) -> None:
    assert again.changed(pair.node) == 0
    assert again.states[pair.node] == converged.states[pair.node]


def test_apt_prefers_what_is_there_to_newer_versions_of_it(
    cluster: Cluster, fresh: States, installed: Played, pair: Pair
) -> None:
    new = set(packages_of(installed.states[pair.node])) - set(packages_of(fresh[pair.node]))
    said = policies(cluster, pair.node, sorted(new))
    assert set(said) == new
    for policy in said.values():
        assert policy.candidate == policy.installed
        assert policy.priorities[policy.installed] == 1001
        # The newer ones that the repository has, and on jammy those of the other generation.
        others = set(policy.priorities) - {policy.installed}
        assert others
        assert all(policy.priorities[other] < 1001 for other in others)


def test_an_upgrade_takes_no_newer_version_by_pin_alone_and_by_hold_alone(
    cluster: Cluster, fresh: States, installed: Played, pair: Pair
) -> None:
    new = set(packages_of(installed.states[pair.node])) - set(packages_of(fresh[pair.node]))

    def upgraded(*options: str) -> set[str]:
        argv = ["apt-get", "-s", *options, "dist-upgrade"]
        return set(re.findall(r"(?m)^Inst (\S+)", cluster.lab.said(pair.node, " ".join(argv))))

    ignore, unpinned = "--ignore-hold", "-oDir::Etc::PreferencesParts=/nowhere"
    assert upgraded() & new == set()
    assert upgraded(ignore) & new == set()
    assert upgraded(unpinned) & new == set()
    # It would take them all, were it not for both.
    assert upgraded(ignore, unpinned) >= new


def test_each_repository_has_its_own_key_and_no_other(
    cluster: Cluster, installed: Played, pair: Pair
) -> None:
    assert installed
    listing = cluster.lab.said(pair.node, "grep -H Signed-By /etc/apt/sources.list.d/dlperf-*")
    signed = dict(
        re.findall(r"(?m)^\S+/dlperf-(\S+)\.sources:Signed-By: (\S+)$", listing),
    )
    keys = cluster.vendors.variables["dlperf_vendor_keys"]
    archive = {"nccl-2.7.3"} if pair.system in cluster.vendors.archives else set()
    assert {"nvidia-cuda", "docker", *archive} < set(signed) <= set(keys)
    for name, keyring in signed.items():
        assert keyring == f"/etc/apt/keyrings/dlperf-{name}.gpg"
        assert cluster.fingerprints(pair.node, name) == keys[name]
    assert cluster.lab.ssh(pair.node, "ls /etc/apt/trusted.gpg.d | grep -v debian").stdout == ""


def test_files_have_their_modes_and_docker_read_its_settings_again(
    cluster: Cluster, fresh: States, installed: Played, pair: Pair
) -> None:
    new = [line for line in installed.states[pair.node] if line not in fresh[pair.node]]
    modes = {
        line.split(" ")[2]: line.split(" ")[0:2] for line in new if re.match(r"[-d]\S{9} ", line)
    }
    configured = {path for path in modes if path.startswith("/etc/")}
    stack = load_catalog().stack(pair.stack)
    libraries = {name for name in LIBRARIES if getattr(stack, name)}
    assert configured >= PLACED | ({"/etc/profile.d/dlperf-cuda.sh"} if stack.cuda else set())
    assert {path for path in modes if "/undo/" in path} == {
        f"/var/lib/dlperf/undo/{name}.json" for name in RECORDS | libraries
    }
    for path, (mode, owner) in modes.items():
        assert owner == "root:root", path
        private = "/var/lib/dlperf/undo" in path
        allowed = {"-": "-rw-------"} if private else {"-": "-rw-r--r--", "d": "drwxr-xr-x"}
        if path in configured or private:
            assert mode == allowed.get(mode[0], mode), path
    daemon = json.loads(cluster.lab.said(pair.node, "cat /etc/docker/daemon.json"))
    assert daemon["runtimes"]["nvidia"]["path"] == "nvidia-container-runtime"
    systemctl = cluster.lab.said(pair.node, "cat /var/log/standin-systemctl.log").splitlines()
    assert [line for line in systemctl if not line.startswith("show")] == ["reload docker"]
    assert "argv: info " in cluster.lab.said(pair.node, "cat /var/log/standin-docker.log")


def test_decommissioning_leaves_packages_and_files_as_they_were(
    fresh: States, decommissioned: Played, pair: Pair
) -> None:
    assert decommissioned.changed(pair.node) > 0
    assert decommissioned.states[pair.node] == fresh[pair.node]
