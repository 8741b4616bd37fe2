"""The Python that runs Ansible's modules on a node: which is chosen, installed or refused."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from executed_modules import playbook
from standins import PROJECT, program, tree

from dlperf_runner.provision import preflight

XENIAL, BIONIC = "system ubuntu16.04\r\n", "system ubuntu18.04\r\n"


@pytest.mark.parametrize(
    ("found", "core", "given", "path", "package"),
    [
        ("/usr/bin/python3 3.10.12\r\nsystem ubuntu22.04", "2.19.4", "", "/usr/bin/python3", ""),
        ("/usr/bin/python3 3.6.9\n" + BIONIC, "2.16.19", "", "/usr/bin/python3", ""),
        # A second interpreter, as an administrator installs it.
        (
            "/usr/bin/python3 3.6.9\n/usr/local/bin/python3.9 3.9.1\n" + BIONIC,
            *("2.19.4", "", "/usr/local/bin/python3.9", ""),
        ),
        (
            "/usr/bin/python3 3.5.2\n/usr/bin/python2.7 2.7.12\n" + XENIAL,
            *("2.16.19", "", "/usr/bin/python2.7", ""),
        ),
        # No Python, or one that no Ansible supports: the system's own that fits.
        (BIONIC, "2.16.19", "", "", "python3"),
        (XENIAL, "2.16.19", "", "", "python2.7"),
        ("/usr/bin/python3 3.5.2\n" + XENIAL, "2.16.19", "", "", "python2.7"),
        ("system debian12", "2.19.4", "/usr/bin/python3", "", "python3"),
        # What would be installed would not be started, or does not fit.
        ("system debian12", "2.19.4", "/opt/python", "", ""),
        (BIONIC, "2.19.4", "", "", ""),
        (XENIAL, "2.19.4", "", "", ""),
        ("system rocky9.4", "2.19.4", "", "", ""),
        ("", "2.99.1", "", "", ""),
    ],
)
def test_the_python_that_fits(found: str, core: str, given: str, path: str, package: str) -> None:
    chosen = preflight.choice(found, core, given)
    assert (chosen["path"], chosen["package"]) == (path, package)
    assert bool(chosen["suite"]) == any(name in found for name in ("ubuntu", "debian"))
    assert bool(chosen["refusal"]) == (not path)
    assert "\n" not in chosen["refusal"]


SCRIPT = (PROJECT / "roles/bootstrap/files/find_python.sh").read_text()
CENTOS = 'ID="centos"\nID_LIKE="rhel fedora"\nVERSION_ID="7"\nPRETTY_NAME="CentOS Linux 7 (Core)"\n'


def found_on(root: Path, files: dict[str, str], *pythons: str) -> str:
    tree(root / "etc", files)
    argv = ["sh", "-c", SCRIPT, "find_python", str(root), *pythons]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def rhel(name: str, version: str, release: str) -> dict[str, str]:
    said = f'ID="{name}"\nID_LIKE="rhel centos fedora"\nVERSION_ID="{version}"\n'
    return {"os-release": said, "redhat-release": release}


@pytest.mark.parametrize(
    ("files", "name"),
    [
        # The nodes of the two reports that were not published on Ubuntu.
        ({"redhat-release": "CentOS release 6.3 (Final)"}, "CentOS 6.3 (Final)"),
        (
            {"redhat-release": "CentOS Linux release 7.5.1804 (Core)", "os-release": CENTOS},
            "CentOS 7.5.1804 (Core)",
        ),
        ({"os-release": 'ID=sles\nPRETTY_NAME="SLES 15"\n'}, "SLES 15"),
        ({"os-release": "ID=linuxmint\nID_LIKE='ubuntu debian'\n"}, ""),
        ({"os-release": "ID=debian\nVERSION_ID=12\n"}, ""),
        (rhel("rocky", "9.4", "Rocky Linux release 9.4 (Blue Onyx)"), ""),
        (rhel("almalinux", "8.10", "AlmaLinux release 8.10 (Cerulean Leopard)"), ""),
        (rhel("rhel", "9.5", "Red Hat Enterprise Linux release 9.5 (Plow)"), ""),
        (rhel("rocky", "10.0", "Rocky Linux release 10.0 (Red Quartz)"), "Rocky 10.0 (Red Quartz)"),
        (rhel("centos", "9", "CentOS Stream release 9"), "CentOS Stream 9"),
    ],
)
@pytest.mark.parametrize("core", ["2.16.19", "2.19.4"])
def test_a_system_whose_packages_are_unknown_is_told_by_its_name(
    tmp_path: Path, files: dict[str, str], name: str, core: str
) -> None:
    old = program(tmp_path, "python2.6", "echo 2.6.6") / "python2.6"
    found = found_on(tmp_path, files, str(old), "no-such-python")
    assert found.startswith(f"{old} 2.6.6\nsystem ")
    assert preflight.choice(found, core)["unsupported"] == name


def test_rhel_8_is_told_which_ansible_manages_it(tmp_path: Path) -> None:
    old = program(tmp_path, "platform-python", "echo 3.6.8") / "platform-python"
    release = "Rocky Linux release 8.10 (Green Obsidian)"
    found = found_on(tmp_path, rhel("rocky", "8.10", release), str(old))
    for core, path in {"2.16.19": str(old), "2.19.4": ""}.items():
        chosen = preflight.choice(found, core)
        assert (chosen["path"], chosen["package"], chosen["unsupported"]) == (path, "", "")
    assert chosen["refusal"] == (
        "it has Python 3.6.8 (rocky8.10); ansible-core 2.19.4 needs Python 3.8 to 3.13 on nodes."
        " Manage it with ansible-core 2.16 (in a clone: make setup ANSIBLE=2.16, then"
        " .venv-2.16/bin/ansible-playbook provision.yml)."
    )


def refused(folder: Path, **values: Any) -> str:
    """What provision.yml says on this machine as the only node, in its first role."""
    (folder / "group_vars").mkdir()
    given = {"ansible_connection": "local", "dlperf_stack": "cpu", "dlperf_frameworks": ["mxnet"]}
    (folder / "group_vars/nodes.yml").write_text(json.dumps(given | values))
    (folder / "hosts.yml").write_text("nodes: {hosts: {NODE1: {}}}\n")
    done = playbook(PROJECT / "provision.yml", "-i", folder / "hosts.yml")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Gather facts about the nodes" not in done.stdout
    return " ".join(done.stdout.split())


def test_provisioning_refuses_a_python_that_is_too_old_in_one_line(tmp_path: Path) -> None:
    old = program(tmp_path, "python3", "echo 3.6.9") / "python3"
    # As the interpreter of the inventory, in whose place nothing is installed on this machine.
    said = refused(tmp_path, ansible_python_interpreter=str(old))
    assert "NODE1: it has Python 3.6.9 (" in said
    assert "needs Python 3.8 to 3.13 on nodes. Manage it with ansible-core 2.16" in said
    assert "make setup ANSIBLE=2.16, then .venv-2.16/bin/ansible-playbook" in said


def test_the_advice_names_what_the_makefile_can_do() -> None:
    said = subprocess.run(
        ["make", "--dry-run", "--always-make", "setup", "ANSIBLE=2.16"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "-r requirements/ansible-2.16.txt" in said
    assert f"{PROJECT}/.venv-2.16/bin/python -m pip install" in said
    assert f"{PROJECT}/.venv/bin" not in said
