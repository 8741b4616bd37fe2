"""What the provisioning playbook and its roles compute."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

PROJECT = Path(__file__).parents[2]


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem + "_filters", PROJECT / path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


provision = load("playbooks/filter_plugins/provision.py")
base = load("roles/node_base/filter_plugins/node_base.py")
python_env = load("roles/python_env/filter_plugins/python_env.py")
mesh = load("roles/ssh_mesh/filter_plugins/ssh_mesh.py")

FRAMEWORK = {
    "name": "net",
    "import_name": "net",
    "tensor": "net.array",
    "environments": {
        "cpu": {
            "python": ">=3.8",
            "requirements": "requirements/net.txt",
            "horovod": {"version": "1", "requirements": "r.txt", "build_requirements": "b.txt"},
        },
        "gpu": {"python": "==3.7", "requirements": "g.txt", "distribution": "net-cu102"},
    },
}


def test_an_environment_names_its_files_on_the_controller() -> None:
    (found,) = provision.environments([FRAMEWORK], "cpu", "/p")
    assert found["path"] == "/opt/dlperf/envs/net"
    assert found["requirements"] == "/p/requirements/net.txt"
    assert found["distribution"] == "net"
    assert found["horovod"] == {
        "version": "1",
        "requirements": "/p/r.txt",
        "build_requirements": "/p/b.txt",
    }


def test_what_has_no_horovod_is_left_out_where_horovod_is_asked_for() -> None:
    (found,) = provision.environments([FRAMEWORK], "gpu", "/p")
    assert found["distribution"] == "net-cu102"
    assert provision.only([found], "name", "horovod") == []
    assert provision.only([found], "name") == [{"name": "net"}]


def test_a_stack_without_an_environment_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(ValueError, match=r"net has no environment for the stack rocm.*cpu, gpu"):
        provision.environments([FRAMEWORK], "rocm", "/p")


def test_members_carry_the_keys_that_this_run_has_seen() -> None:
    hosts = {
        "a": {
            "ansible_host": "10.0.0.1",
            "dlperf_address": "192.168.0.1",
            "__ssh_mesh_identity": {"public_key": "k", "host_keys": ["h"]},
        },
        "down": {"ansible_host": "10.0.0.2", "dlperf_address": "10.0.0.2"},
    }
    a, down = mesh.members(["a", "down"], hosts)
    assert a == {
        "name": "a",
        "addresses": ["192.168.0.1", "10.0.0.1"],
        "public_key": "k",
        "host_keys": ["h"],
    }
    assert down["addresses"] == ["10.0.0.2"]
    assert down["public_key"] is None


def test_a_large_mesh_is_proven_from_the_first_to_all_and_from_each_to_the_next() -> None:
    names = [f"n{number}" for number in range(10)]
    assert mesh.partners(names[:4], "n2", 8) == ["n0", "n1", "n3"]
    assert mesh.partners(names, "n0", 8) == names[1:]
    assert mesh.partners(names, "n4", 8) == ["n5"]
    assert mesh.partners(names, "n9", 8) == ["n0"]
    assert mesh.partners(["n0"], "n0", 8) == []


def test_hosts_are_named_by_their_address_in_the_cluster() -> None:
    hosts = {
        "a": {"ansible_host": "10.0.0.1", "dlperf_address": "192.168.0.1"},
        "b": {"ansible_host": "10.0.0.2"},
        "named": {"ansible_host": "named.example"},
        "localhost": {"dlperf_address": "127.0.0.1"},
    }
    assert base.hosts(list(hosts), hosts) == {"a": "192.168.0.1", "b": "10.0.0.2"}


def refusal(takes: str, **node: object) -> str:
    state = {"interpreter": "/usr/bin/python3", "python_version": "3.13.5", "interpreters": []}
    environments = [{"name": "net", "requires_python": takes}]
    return str(python_env.refusal(environments, state | node))


def test_a_python_in_range_is_not_refused() -> None:
    assert refusal(">=3.8,<3.14") == ""
    assert refusal(">=3.8,<3.12", python_version="3.11.2") == ""


def test_a_python_out_of_range_is_refused_with_the_nearest_that_fits() -> None:
    message = refusal(">=3.8,<3.12")
    assert message.startswith(
        "the environment of net takes Python >=3.8,<3.12; this node's /usr/bin/python3 is 3.13.5;"
        " the nearest release whose Python fits is Debian 12 (bookworm) with 3.11"
    )
    message = refusal(">=3.8,<3.12", interpreters=["/usr/bin/python3.9", "/usr/bin/python3.11"])
    assert "this node also has /usr/bin/python3.11" in message
    assert "not there" in refusal(">=3.8", python_version=None)
