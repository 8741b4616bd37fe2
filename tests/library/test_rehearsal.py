"""The list of what provisioning would change, made of results that modules give in check mode."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.nvidia_kernel import containers
from ansible.module_utils.package_family import Family, Lack
from executed_modules import play
from standins import tree

from dlperf_runner.control import playbooks
from dlperf_runner.provision.adoption import moved_refusals, work_refusal
from dlperf_runner.provision.rehearsal import listed, of_task


def diff(header: str, before: str, after: str) -> dict[str, Any]:
    sides = {"before_header": header, "after_header": header}
    return {"diff": [sides | {"before": before, "after": after}]}


BEFORE, AFTER = "libnccl2 2.30.7-1 held\nold 1\n", "libnccl2 2.29.7-1 held\nnew 2 held\n"
HELD = diff("packages of nccl", BEFORE, AFTER)
SOURCE = "/etc/apt/sources.list.d/dlperf-docker.sources"
GOVERNOR = diff("settings", "cpu_governor/0 powersave\n", "cpu_governor/0 performance\n")
SERVICE = {"name": "docker", "state": "reloaded"}
KEPT_USER = {"name": "dlperf", "shell": "/bin/bash", "create_home": False}


@pytest.mark.parametrize(
    ("action", "arguments", "result", "items"),
    [
        (
            *("package_family", {}, HELD),
            [
                *(("packages", "libnccl2 2.30.7-1 -> 2.29.7-1"), ("packages", "new 2 (new)")),
                *(("holds", "new"), ("packages", "old 1 removed")),
            ],
        ),
        ("node_files", {}, diff(SOURCE, "", "URIs: x\n"), [("package sources", f"{SOURCE} (new)")]),
        ("node_files", {}, diff("/etc/hosts", "a\n", "b\n"), [("files", "/etc/hosts")]),
        ("node_files", {}, diff("/x", "present\n", "absent\n"), [("files", "/x (removed)")]),
        ("node_tuning", {}, GOVERNOR, [("settings", "cpu_governor/0: powersave -> performance")]),
        ("ansible.builtin.systemd_service", SERVICE, {}, [("services", "docker: reloaded")]),
        ("node_service", {"name": "chrony"}, {}, [("services", "chrony: started, at boot")]),
        ("ansible.builtin.user", {"name": "dlperf"}, {}, [("users", "user dlperf")]),
        ("ansible.builtin.user", KEPT_USER, {}, [("users", "user dlperf: shell /bin/bash")]),
        ("ansible.builtin.copy", {"dest": "/etc/x"}, {}, [("files", "/etc/x")]),
        ("ansible.builtin.copy", {"dest": "{{ x }}"}, {}, [("other steps", "The task")]),
        ("ansible.builtin.command", {"argv": ["x"]}, {}, [("other steps", "The task")]),
    ],
)
def test_a_result_becomes_typed_changes(
    action: str, arguments: dict[str, Any], result: dict[str, Any], items: list[tuple[str, str]]
) -> None:
    assert of_task("The task", action, arguments, result) == items


def test_services_of_slurm_are_listed_and_started_without_reading_units_again(
    tmp_path: Path,
) -> None:
    log = tmp_path / "systemctl.log"
    program = tmp_path / "bin/systemctl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$*" >> {log}\ntest $1 != is-enabled\n')
    program.chmod(0o755)
    role = {"name": "slurm", "tasks_from": "start.yml"}
    start = {"name": "Start", "ansible.builtin.include_role": role}
    start["vars"] = {"__slurm_starts": ["munge", "slurmd"]}
    start["vars"]["__slurm_machine"] = {"has_systemd": True}
    given = {"nodes": "node1", "name": "provision.yml"}
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    done = play(tmp_path, start, **given, options=["--check"], PATH=path)
    assert "  services:\n    munge: started, at boot\n    slurmd: started, at boot\n" in done.stdout
    assert "start " not in log.read_text()
    done = play(tmp_path, start, **given, PATH=path)
    assert done.returncode == 0, done.stdout
    assert log.read_text().splitlines()[4:] == [
        *("show munge", "is-enabled munge", "enable munge --no-reload", "start munge"),
        *("show slurmd", "is-enabled slurmd", "enable slurmd --no-reload", "start slurmd"),
    ]


def test_nodes_with_equal_changes_have_one_list() -> None:
    items = [("files", "/b"), ("packages", "a 1 (new)"), ("files", "/b")]
    text = listed({"n1": items, "n2": items, "n3": [("notes", "a hole")]}, {"n4": "no room"})
    assert text == (
        "n1, n2: what would change\n  packages:\n    a 1 (new)\n  files:\n    /b\n"
        "  records:\n    /var/lib/dlperf, /opt/dlperf/stamps (this project's records)\n\n"
        "n3: nothing would change\n  notes:\n    a hole\n\nn4: refused\n  no room"
    )


def test_packages_of_others_move_with_consent_only() -> None:
    foreign = {"nccl": ["libnccl2 2.30.7-1 by 2.29.7-1"], "nvidia_driver": ["x 1 by 2"]}
    # The version of a running driver is compared, too, and asks for the same consent.
    (problem,) = moved_refusals(foreign, ["cuda"], ["the driver 1 ... (dlperf_replace: [driver])"])
    assert len(moved_refusals(foreign, [])) == 2
    assert problem.startswith("NCCL: provisioning did not install these packages")
    assert "libnccl2 2.30.7-1 by 2.29.7-1" in problem
    assert "dlperf_adopt: [nccl]" in problem
    assert "dlperf_replace: [nccl]" in problem
    assert moved_refusals(foreign, ["nccl", "driver"]) == []


def test_a_site_is_asked_for_its_containerd_of_which_no_docker_is(tmp_path: Path) -> None:
    """A node of Kubernetes: its containerd went down, or away, with the first Docker."""
    definition = {"name": "container_engine", "packages": {"containerd.io": "1.7.29-1"}}
    definition |= {"pins": [], "repository": None, "undo": str(tmp_path)}
    definition |= {"replaces": ["docker.io", "containerd", "runc"]}
    family = Family(None, definition)
    for has, moved in (
        ({"containerd.io": "2.2.6-1"}, ["containerd.io 2.2.6-1 by 1.7.29-1"]),
        (
            {"containerd": "1.7.24", "runc": "1.2"},
            ["containerd 1.7.24 by others", "runc 1.2 by others"],
        ),
    ):
        family.snapshot = lambda has=has: has
        present = {
            name: (version, False) for name, version in has.items() if name == "containerd.io"
        }
        lack = Lack(present, False, {}, [], definition["packages"], [], [], True)
        assert family.moved(lack) == moved
        assert len(moved_refusals({"container_engine": moved}, [])) == 1


def test_services_of_snaps_are_no_containers(tmp_path: Path) -> None:
    """Ubuntu's livepatch has a root of its own with all devices."""
    livepatch = "0::/system.slice/snap.canonical-livepatch.canonical-livepatchd.service"
    for pid, name, cgroup in (("7", "python3", "0::/docker/1f"), ("8", "livepatchd", livepatch)):
        files = {f"proc/{pid}/comm": name, f"proc/{pid}/cgroup": cgroup, f"{pid}/dev/nvidia0": ""}
        tree(tmp_path, files)
        (tmp_path / f"proc/{pid}/root").symlink_to(tmp_path / pid)
    assert containers(str(tmp_path)) == ["python3 (7)"]


def test_running_work_refuses_a_change() -> None:
    """nvidia-container-toolkit#1227: after daemon-reload containers lose their GPUs."""
    with_gpus = {"jobs": [], "gpu_containers": ["python3 (7)"]}
    assert "daemon-reload" in work_refusal(with_gpus, ["cuda"], drains=False)
    assert work_refusal(with_gpus, [], drains=False) == ""
    jobs = {"jobs": ["12", "13"], "gpu_containers": []}
    assert "12, 13" in work_refusal(jobs, [], drains=False)
    assert work_refusal(jobs, ["cuda"], drains=True) == ""
    assert "To remove packages makes" in work_refusal(with_gpus, [], drains=True, removes=True)
    assert "(-e dlperf_drain=true)" in work_refusal(jobs, [], drains=False, removes=True)


def test_sudos_password_is_asked_for_once_and_stays_out_of_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("getpass.getpass", lambda _: "a b$c")
    for name in ("DLPERF_BECOME_PASSWORD", "ANSIBLE_BECOME_PASSWORD_FILE"):
        monkeypatch.setenv(name, "")  # restored afterwards
    playbooks.ask_become_password()
    # Ansible starts the file if it is executable, and reads its output.
    program = os.environ["ANSIBLE_BECOME_PASSWORD_FILE"]
    assert subprocess.check_output([program], text=True) == "a b$c\n"
