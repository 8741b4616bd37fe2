"""Each role that any node gets, by itself and as its README says: there, again, and off again."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from filters import environments, provision
from gpu_packages import shared_library
from lab_under_test import PROJECT, Lab, Shared, sharing
from node_state import differences, node_state
from standins import wheel

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.nodes]  # minutes

# In the order of provision.yml; what each brings, as a command that shows it.
ROLES = {
    "node_base": ("id -un dlperf", "dlperf"),
    "ssh_mesh": ("runuser -u dlperf -- ssh -o BatchMode=yes node1 hostname", "node1"),
    "openmpi": ("mpirun --version", "mpirun (Open MPI)"),
    "python_env": ("/opt/dlperf/uv/bin/uv --version", "uv "),
    "framework": (
        "/opt/dlperf/envs/mxnet/bin/python -c 'print(__import__(\"mxnet\").nd.array([3]))'",
        "[3.]",
    ),
    "horovod": (
        "/opt/dlperf/envs/mxnet/bin/python -c"
        " 'import horovod.mxnet as hvd; hvd.init(); print(\"ranks:\", hvd.size())'",
        "ranks: 1",
    ),
    "container": (
        "cd / && runuser -u dlperf -- podman images --format '{{.Names}}'",
        "[localhost/dlperf-",
    ),
}
# What the roles want to know of an environment, as provision.yml tells them.
ENVIRONMENT = {
    "framework": [
        *("name", "path", "requirements", "import_name", "tensor", "operator_wheels"),
        *("libraries", "variables"),
    ],
    "horovod": ["name", "path", "distribution", "tensor", "requirements", "horovod"],
    "container": ["name", "path", "import_name", "tensor", "horovod"],
}


@dataclass(frozen=True)
class Nodes:
    """`before`: what node2 was; `changes`: how many tasks of a role changed something on each
    node, at first and again."""

    lab: Lab
    before: list[str]
    changes: dict[str, tuple[list[str], list[str]]] = field(default_factory=dict)

    def bring(self, last: str) -> None:
        """Roles by themselves, up to this one."""
        for role in ROLES:
            if role not in self.changes:
                self.changes[role] = play(self.lab, role), play(self.lab, role)
            if role == last:
                return


@contextmanager
def bare(scratch: Path, mirror: Path) -> Iterator[Nodes]:
    with Lab(scratch / "lab").running(nodes=2, mirror=mirror) as lab:
        yield Nodes(lab, node_state(lab, "node2"))


shared = sharing(bare)


@pytest.fixture
def nodes(shared: Shared[Nodes]) -> Nodes:
    return shared.get()


@pytest.fixture
def lab(nodes: Nodes) -> Lab:
    """With the environment tools, which frameworks need."""
    nodes.bring("python_env")
    return nodes.lab


def play(
    lab: Lab, role: str, part: str = "main", chosen: Sequence[Mapping[str, Any]] = ()
) -> list[str]:
    """Run a part of the role alone; how many tasks changed something on each node."""
    variables: dict[str, object] = {"role": role, "part": part}
    if role in ENVIRONMENT:
        chosen = chosen or environments.installed(["mxnet"], "cpu", str(PROJECT))
        variables[f"{role}_environments"] = provision.only(chosen, *ENVIRONMENT[role])
    output = lab.play("tests/lab/plays/role.yml", "-e", json.dumps(variables))
    return re.findall(
        r"^node\d+ .*changed=(\d+) ", output.rpartition("PLAY RECAP")[2], re.MULTILINE
    )


@pytest.mark.parametrize("role", ROLES)
def test_a_role_alone_brings_what_it_says_and_then_nothing(nodes: Nodes, role: str) -> None:
    nodes.bring(role)
    first, again = nodes.changes[role]
    assert "0" not in first
    assert again == ["0", "0"]
    command, shown = ROLES[role]
    assert nodes.lab.said("node2", command).startswith(shown)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """OneFlow 0.1.8 as it was released for CUDA 10.2; a stand-in for it, which computes nothing."""
    folder = tmp_path_factory.mktemp("wheels")
    path, sha256 = wheel(folder, "oneflow_cu102", "0.1.8")
    given = {"oneflow": {"path": str(path), "sha256": sha256}}
    stack, root = "v100-cuda10.2", str(PROJECT)
    (environment,) = environments.installed(["oneflow"], stack, root, given)
    locked = (PROJECT / "requirements/mxnet-cpu.txt").read_text().replace("\\\n", "")
    pins = folder / "numpy.txt"
    pins.write_text("".join(line for line in locked.splitlines(True) if line.startswith("numpy==")))
    return {**environment, "requirements": str(pins)}


def test_a_wheel_of_the_operator_is_installed_under_its_own_name(
    lab: Lab, published: dict[str, Any]
) -> None:
    assert "0" not in play(lab, "framework", chosen=[published])
    shown = "import oneflow; print(oneflow.__version__, oneflow.__file__)"
    said = lab.said("node2", f"/opt/dlperf/envs/oneflow/bin/python -c '{shown}'")
    assert said.startswith("0.1.8 /opt/dlperf/envs/oneflow/lib/")
    assert play(lab, "framework", chosen=[published]) == ["0", "0"]


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs a compiler")
def test_libraries_that_a_framework_opens_are_proven(lab: Lab, published: dict[str, Any]) -> None:
    """As TensorFlow's of CUDA 10.0; a stand-in for one of them."""
    folder, name = "/opt/dlperf/cuda-10.0/lib", "libcudart.so.10.0"
    variables = {"LD_LIBRARY_PATH": folder}
    opens = {**published, "libraries": [name], "variables": variables}
    with pytest.raises(AssertionError, match=rf"{name}: cannot open shared object file"):
        play(lab, "framework", chosen=[opens])
    content = base64.b64encode(shared_library()).decode()
    for node in ("node1", "node2"):
        place = f"mkdir -p {folder} && echo {content} | base64 -d > {folder}/{name}"
        lab.said(node, place)
    assert "0" not in play(lab, "framework", chosen=[opens])
    assert play(lab, "framework", chosen=[opens]) == ["0", "0"]
    for node in ("node1", "node2"):
        lab.said(node, "rm -r /opt/dlperf/cuda-10.0")


def test_each_goes_alone_too(shared: Shared[Nodes]) -> None:
    nodes = shared.last()
    nodes.bring(list(ROLES)[-1])
    for role in reversed(ROLES):
        play(nodes.lab, role, "absent")
    assert differences(nodes.lab, "node2", nodes.before) == []
