"""Each role that any node gets, by itself and as its README says: there, again, and off again."""

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from gpu_packages import shared_library
from lab_under_test import PROJECT, Lab, Shared, sharing
from node_state import differences, node_state
from tiny_index import module_wheel

from dlperf_runner.provision import arguments, environments

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
NODES = ("node1", "node2")
# Gloo asks for the address of the host's own name, and other nodes connect to it there.
ADDRESS = "python3 -c 'import socket; print(socket.gethostbyname(socket.gethostname()))'"
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
        for node in NODES:  # as Debian's installer writes it, without the other node
            lines = f"127.0.0.1 localhost\\n127.0.1.1 {node}.example.org {node}\\n"
            lab.said(node, f"printf '{lines}' > /etc/hosts")
            assert lab.said(node, ADDRESS) == "127.0.1.1"
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
    lab: Lab, *roles: str, part: str = "main", chosen: Sequence[Mapping[str, Any]] = ()
) -> list[str]:
    """Run a part of each role alone; how many tasks changed something on each node."""
    variables: dict[str, object] = {"role": roles, "part": part}
    chosen = chosen or environments.installed(["mxnet"], "cpu")
    for role in set(roles) & ENVIRONMENT.keys():
        variables[f"{role}_environments"] = arguments.only(chosen, *ENVIRONMENT[role])
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


MEET = """python3 -c 'import socket, sys
if len(sys.argv) == 1:
    with socket.create_server((socket.gethostbyname(socket.gethostname()), 29500)) as own:
        own.settimeout(30)
        print(own.accept()[1][0])
else:
    socket.create_connection((sys.argv[1], 29500), 30).close()' """


def test_nodes_whose_own_names_were_loopback_addresses_meet_by_them(nodes: Nodes, lab: Lab) -> None:
    assert "/etc/hosts" in " ".join(nodes.before)
    addresses = [lab.said(node, ADDRESS) for node in NODES]
    assert not any(address.startswith("127.") for address in addresses)
    for own, other, address in ((*NODES, addresses[1]), (*NODES[::-1], addresses[0])):
        with subprocess.Popen(
            lab.ssh_argv(own, MEET), text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        ) as server:
            lab.said(other, f"until {MEET} {own}; do sleep 0.2; done 2> /dev/null")
            told, _ = server.communicate(timeout=60)
        assert told.strip() == address
        assert lab.said(own, "hostname -f") == f"{own}.example.org"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """OneFlow 0.1.8 as it was released for CUDA 10.2; a stand-in for it, which computes nothing."""
    folder = tmp_path_factory.mktemp("wheels")
    path, sha256 = module_wheel(folder, "oneflow_cu102", "0.1.8")
    given = {"oneflow": {"path": str(path), "sha256": sha256}}
    (environment,) = environments.installed(["oneflow"], "v100-cuda10.2", given)
    locked = (PROJECT / "requirements/mxnet-cpu.txt").read_text().replace("\\\n", "")
    pins = folder / "numpy.txt"
    pins.write_text("".join(line for line in locked.splitlines(True) if line.startswith("numpy==")))
    return {**environment, "requirements": str(pins)}


def test_a_wheel_of_the_operator_is_installed_under_its_own_name(
    nodes: Nodes, lab: Lab, published: dict[str, Any]
) -> None:
    """Beside the environments that are there."""
    mxnet = "stat -c %Y /opt/dlperf/envs/mxnet/pyvenv.cfg"
    nodes.bring("framework")
    before = lab.said("node2", mxnet)
    assert "0" not in play(lab, "framework", chosen=[published])
    assert lab.said("node2", mxnet) == before
    assert lab.said("node2", "ls /opt/dlperf/envs").split() == ["mxnet", published["name"]]
    shown = "import oneflow; print(oneflow.__version__, oneflow.__file__)"
    said = lab.said("node2", f"{published['path']}/bin/python -c '{shown}'")
    assert said.startswith(f"0.1.8 {published['path']}/lib/")
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
    play(nodes.lab, *reversed(ROLES), part="absent")
    assert differences(nodes.lab, "node2", nodes.before) == []
