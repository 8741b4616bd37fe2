"""What provision.yml tells, at once and before any change, of an inventory that lacks something."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from executed_modules import LOCAL, play, playbook
from modules import load
from standin_repository import needs_apt
from standins import PROJECT

from dlperf_runner.provision import vendor

refuse = load("playbooks/action_plugins/refuse.py")
SUM = "0" * 64
PEER_MEMORY = {"infiniband_peer_memory_archive": "/srv/nv_peer_mem.tar.gz"}
# What the published stack needs, with an optional module.
VARIABLES = {
    "infiniband_archive_sha256": SUM,
    "infiniband_peer_memory_sha256": SUM,
    "dlperf_interface_address": "10.11.0.2/24",
}
ROLES = ("nvidia_driver", "infiniband", "cuda", "cudnn", "nccl", "container_runtime")


def refused(inventory: Path, *options: str, **values: object) -> str:
    """The end of provision.yml, in check mode, with this machine as all nodes of an inventory."""
    systems = {f"{role}_system": "ubuntu18.04" for role in ROLES}
    variables = json.dumps(systems | LOCAL | values)
    done = playbook(
        PROJECT / "provision.yml", "--check", "-i", inventory, "-e", variables, *options
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Set up the base of every node" not in done.stdout
    assert re.search(r"NODE1 +: .* changed=0 ", done.stdout), done.stdout
    return done.stdout


def copied_example(tmp_path: Path) -> Path:
    mine = tmp_path / "mine"
    shutil.copytree(PROJECT / "inventory/example", mine)
    (mine / "hosts.yml").write_text("nodes: {hosts: {NODE1: {ansible_host: 127.0.0.1}}}\n")
    return mine


@pytest.mark.heavy
@pytest.mark.gpu_roles
def test_a_copied_example_is_refused_once_for_all_that_it_lacks(tmp_path: Path) -> None:
    mine = copied_example(tmp_path)
    # Both clocks, so that another role refuses, too, and the play ends whatever else is given.
    clocks = {"application_clocks": {"graphics": 1}, "locked_clocks": {"graphics": 1}}
    variables = mine / "group_vars/nodes.yml"
    variables.write_text(variables.read_text() + f"dlperf_tuning: {json.dumps(clocks)}\n")
    said = " ".join(refused(mine, **PEER_MEMORY).split())
    for name in (*VARIABLES, "application_clocks"):
        assert name in said, name
    (first,) = re.findall(r"msg: \|- (\d+) problems, and nothing was changed: - ", said)
    said = " ".join(refused(mine, **PEER_MEMORY, **VARIABLES).split())
    for name in VARIABLES:
        assert name not in said, name
    # The driver may have a problem of its own with this machine.
    assert "application_clocks and locked_clocks both set" in said
    left = re.findall(r"msg: \|- (\d+) problems, and nothing was changed: - ", said) or ["1"]
    assert int(first) - int(left[0]) == 3


def test_a_task_is_chosen_by_the_tags_of_the_run() -> None:
    variables = {"ansible_run_tags": ["all"], "ansible_skip_tags": ["infiniband"]}
    of_role = {"ansible_role_name": "openmpi"}
    assert not refuse.is_chosen(["always", "infiniband"], variables)
    assert refuse.is_chosen(["always"], variables | of_role)
    assert not refuse.is_chosen(["always"], {"ansible_run_tags": ["nccl"]} | of_role)
    assert refuse.is_chosen(["always"], {"ansible_run_tags": ["openmpi"]} | of_role)
    assert refuse.is_chosen(["always", "nccl", "gpu"], {"ansible_run_tags": ["gpu"]})
    assert not refuse.is_chosen(["always", "gpu"], {"ansible_skip_tags": ["gpu"]} | of_role)
    assert refuse.is_chosen(["always"], {"ansible_run_tags": ["nccl"]})


def test_a_role_variable_is_a_consent_too() -> None:
    variables = {"nvidia_driver_replace": "yes", "container_runtime_replace": False}
    assert refuse.allowed(variables, lambda value: value) == ["driver"]
    assert refuse.allowed({"dlperf_replace": ["cuda"]}, lambda value: value) == ["cuda"]


def test_a_node_with_an_arm_processor_is_told_at_once_what_its_stack_lacks(tmp_path: Path) -> None:
    shutil.copytree(PROJECT / "inventory/example-h100", mine := tmp_path / "mine")
    (mine / "hosts.yml").write_text("nodes: {hosts: {NODE1: {ansible_host: 127.0.0.1}}}\n")
    systems = {f"{role}_system": "rhel9" for role in (*ROLES, "node_base")}
    given = {"gpu_node_system": "rhel9 aarch64", "dlperf_mirror": "/srv/mirror"}
    said = " ".join(refused(mine, **systems, **given).split())
    assert (
        "NODE1 is RHEL 9 on aarch64, and the release tables have that system's packages of this"
        " stack for x86_64 only. Missing for stack"
        " h100-cuda12.9: the driver 580.173.02, CUDA 12.9.1, cuDNN 9.10.2.21, NCCL 2.29.7, the"
        " container engine, NVIDIA's container toolkit 1.18.2. For aarch64, use the stack"
        " b200-cuda13 (dlperf_stack) on Ubuntu; or install them yourself"
    ) in said
    # The bundle has no rpm packages.
    assert "dlperf_mirror has packages of Debian and Ubuntu, and NODE1 is rhel9." in said
    assert "does not support" not in said


def test_a_file_without_source_and_checksum_is_refused_once() -> None:
    both = vendor.file_refusal("x.deb", "", "", "x_archive x_sha256")
    assert "x_archive" in both and "x_sha256" in both
    assert "x_sha256" not in vendor.file_refusal("x.deb", "", SUM, "x_archive x_sha256")
    unverified = vendor.file_refusal("x.deb", "/x.deb", "", "x_archive x_sha256")
    assert "x_archive" not in unverified and "Set x_sha256" in unverified
    assert vendor.file_refusal("x.deb", "/x.deb", SUM, "x_archive x_sha256") == ""


COLLECTS = {"vars": {"provision_collects": True}, "tags": ["always"]}
FAMILY = {
    "name": "cuda",
    "packages": {"no-such-package": "1"},
    "repository": {
        "name": "x",
        "uri": "https://x.example/",
        "key": "/k",
        "fingerprints": ["A" * 40],
    },
}


@needs_apt
@pytest.mark.parametrize(
    ("tags", "is_examined"), [("all", False), ("gpu", True)], ids=["mirror", "without mirror"]
)
def test_sources_that_apt_will_not_read_are_not_examined(
    tmp_path: Path, tags: str, is_examined: bool
) -> None:
    """With dlperf_mirror, node_base makes apt read the mirror only, unless --tags leaves it out."""
    tasks = [
        {"name": "Cuda", "refuse": {"problems": [""], "families": [FAMILY]}, **COLLECTS},
        {"name": "Base", "refuse": {"problems": [""], "own_sources": False}, **COLLECTS}
        | {"tags": ["always", "node_base"]},
        {
            "name": "All",
            "refuse": {"problems": [], "families": "{{ ansible_facts.refuse_families }}"},
            "tags": ["always"],
        },
        {
            "name": "Examined",
            "ansible.builtin.debug": {"msg": "{{ ansible_facts.refuse_examined | default([]) }}"},
            "tags": ["always"],
        },
    ]
    done = play(tmp_path, *tasks, options=["--tags", tags])
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("no-such-package" in done.stdout.partition("TASK [Examined]")[2]) == is_examined


@needs_apt
def test_running_work_counts_with_a_mirror_too(tmp_path: Path) -> None:
    """dlperf_mirror replaces the node's sources; what is installed from it reloads systemd, too."""
    work = {"work": {"jobs": [], "gpu_containers": ["python3 (7)"]}}
    tasks = [
        {"name": "Work", "ansible.builtin.set_fact": {"dlperf_node": work, "cacheable": True}},
        {
            "name": "Cuda",
            "refuse": {"problems": [""], "families": [FAMILY], "installs": ["no-rdma", "dpkg"]},
            **COLLECTS,
        },
        {"name": "Base", "refuse": {"problems": [""], "own_sources": False}, **COLLECTS},
        {
            "name": "All",
            "refuse": {
                "problems": [],
                "work": True,
                "families": "{{ ansible_facts.refuse_families }}",
                "installs": "{{ ansible_facts.refuse_installs }}",
            },
        },
    ]
    done = play(tmp_path, *tasks)
    text = " ".join(done.stdout.split())
    assert f"have GPUs: python3 (7). To install {FAMILY['name']}, no-rdma makes" in text, text


@pytest.mark.parametrize(
    ("work", "drains", "refusal"),
    [
        ({"gpu_containers": ["python3 (7)"]}, True, "containers on the node have GPUs: python3"),
        ({"jobs": ["12"]}, False, "jobs of Slurm run on the node: 12. Drain it first"),
        ({"jobs": ["12"]}, True, ""),
        ({}, False, ""),
    ],
)
def test_a_node_in_use_is_not_decommissioned(
    tmp_path: Path, work: dict[str, list[str]], drains: bool, refusal: str
) -> None:
    (book,) = yaml.safe_load((PROJECT / "playbooks/decommission.yml").read_text())
    before = [task["name"] for task in book["pre_tasks"]]
    at = before.index("Refuse a node that is in use")
    assert "node_facts" in book["pre_tasks"][at - 1]
    assert not [task for task in book["pre_tasks"][:at] if "node_files" in task]
    facts = {"dlperf_node": {"work": work}, "cacheable": True}
    tasks = [{"name": "Work", "ansible.builtin.set_fact": facts}, book["pre_tasks"][at]]
    done = play(tmp_path, *tasks, variables={"dlperf_drain": drains})
    text = " ".join(done.stdout.split())
    assert (done.returncode != 0) == bool(refusal), text
    assert refusal in text
    rehearsed = play(tmp_path, *tasks, variables={"dlperf_drain": drains}, options=["--check"])
    assert rehearsed.returncode == 0
    assert refusal in " ".join((rehearsed.stdout + rehearsed.stderr).split())
