"""Modules and playbooks executed on this machine."""

import getpass
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from captured import captured
from standins import LIBRARY, MODULE_UTILS, PROJECT

# As Ansible packs modules for a node: the project's module_utils beside Ansible's own.
RUN = """
import runpy, sys, ansible.module_utils
ansible.module_utils.__path__.append(sys.argv[1])
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
# test_old_interpreters.py says another one, and an Ansible that has modules for it.
PYTHON = os.environ.get("MODULES_PYTHON", sys.executable)
ME = getpass.getuser()
HAVE_RUNUSER = os.geteuid() == 0
# Before a module that shall not raise its limit of open files above 256.
FEW_FILES = ["prlimit", "--nofile=256:256"]
FEW_FILES += ["setpriv", "--bounding-set", "-sys_resource"] * HAVE_RUNUSER


def call(
    module: str,
    check: bool = False,
    prefix: Sequence[str] = (),
    within: int = 600,
    **arguments: Any,
) -> dict[str, Any]:
    """One execution of a module that ends within so many seconds; returns what it returns."""
    given = {"ANSIBLE_MODULE_ARGS": arguments | {"_ansible_check_mode": check}}
    environment = {**os.environ, "PYTHONPATH": os.environ.get("MODULES_PYTHONPATH", "")}
    argv = [*prefix, PYTHON, "-c", RUN, MODULE_UTILS, LIBRARY / f"{module}.py"]
    finished = captured(*argv, input=json.dumps(given), env=environment, timeout=within)
    assert finished.stdout, finished.stderr
    return json.loads(finished.stdout)


def playbook(
    *arguments: str | Path, within: int = 300, **environment: str
) -> subprocess.CompletedProcess[str]:
    """ansible-playbook with these arguments and the project's configuration."""
    given = {"ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "PYTHONPATH": str(PROJECT)}
    argv = [Path(sys.executable).with_name("ansible-playbook"), *arguments]
    return captured(*argv, env={**os.environ, **given, **environment}, cwd=PROJECT, timeout=within)


LOCAL = {
    "ansible_connection": "local",
    "ansible_become": False,
    "ansible_python_interpreter": sys.executable,
}


def inventory(folder: Path, *nodes: str, **variables: object) -> Path:
    """An inventory whose nodes are all this machine."""
    group = {"hosts": dict.fromkeys(nodes), "vars": LOCAL | variables}
    (folder / "hosts.yml").write_text(json.dumps({"nodes": group}))
    return folder / "hosts.yml"


def play(
    folder: Path,
    *tasks: object,
    nodes: str = "localhost",
    options: Sequence[str] = (),
    name: str = "play.yml",
    variables: Mapping[str, object] | None = None,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """A play of these tasks, with this machine as all nodes."""
    document = {"hosts": "all", "gather_facts": False, "tasks": tasks}
    document["vars"] = LOCAL | dict(variables or {})
    (folder / name).write_text(json.dumps([document]))
    return playbook("-i", f"{nodes},", folder / name, *options, **environment)
