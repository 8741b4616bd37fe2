"""Slurm on two nodes of a lab, and campaigns that an ordinary user runs on it from a login node:
node1, on which this package is installed without Ansible."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab_under_test import PROJECT, Lab
from node_state import differences, node_state

NODES = ("node1", "node2")
# A lost node is noticed after 10 s instead of 5 minutes, and a job is killed after 2 s.
SETTINGS = {"SlurmdTimeout": 10, "KillWait": 2, "MinJobAge": 30}
SITE = """\
dlperf_stack: cpu
dlperf_accelerator: cpu
dlperf_devices_per_node: 2
dlperf_interface: eth0
dlperf_matrix: smoke
dlperf_frameworks: [{frameworks}]
dlperf_mpirun_args: [--oversubscribe]
"""
PYTHON = "cd /shared && runuser -u dlperf -- env PYTHONPATH=/shared/python /usr/bin/python3"
# The program below as a workload of the user's own. A step of it takes 0.05 s.
MINE = (
    *("--catalog", "/shared/catalog", "--workload", "mine", "--matrix", "published"),
    *("--repeats", "1"),
)
# Its processes, one on each node, meet as JAX's launcher says. With 13 steps, the second one fails;
# with 17, it takes memory without end.
OWN = """\
import os, socket, sys, time
steps, batch = map(int, sys.argv[1:])
host, port = os.environ["JAX_COORDINATOR_ADDRESS"].split(":")
rank, count = int(os.environ["JAX_PROCESS_ID"]), int(os.environ["JAX_NUM_PROCESSES"])
print(f"process {rank} of {count} on {socket.gethostname()}", flush=True)
if rank == 1 and steps == 13:
    time.sleep(1)
    sys.exit(3)
taken = []
while steps == 17:
    taken.append(b"." * 10**7)
    time.sleep(0.05)
if rank == 0:
    server = socket.create_server((host, int(port)))
    peers = [server.accept()[0] for _ in range(count - 1)]
while rank:
    try:
        peers = [socket.create_connection((host, int(port)))]
        break
    except OSError:
        time.sleep(0.1)
for step in range(1, steps + 1):
    began = time.perf_counter()
    for peer in peers:
        peer.sendall(b".")
    assert all(peer.recv(1) == b"." for peer in peers)
    time.sleep(0.05)
    rate = batch / (time.perf_counter() - began)
    if rank == 0:
        print(f"it {step}/{steps} | {rate:.2f} img/s | loss {9 - step / steps:.4f}", flush=True)
"""


def given(*frameworks: str, **settings: object) -> dict[str, object]:
    """The variables of provision.yml."""
    own = {"lab_slurm": True, "dlperf_frameworks": list(frameworks)}
    return own | {"slurm_settings": SETTINGS | settings}


def shared_folder(made: Path, *frameworks: str, python: str = "3.11") -> Path:
    """What all nodes see as /shared: this package with what it needs, for the version of Python
    that the nodes have, and without Ansible."""
    uv = Path(sys.executable).with_name("uv")
    install = [uv, "pip", "install", "--quiet", "--python", sys.executable]
    install += ["--python-version", python]
    package = f"{PROJECT}[report]"
    subprocess.run([*install, "--target", made / "python", package], check=True, timeout=600)
    assert not (made / "python" / "ansible").exists()
    (made / "site.yml").write_text(SITE.format(frameworks=", ".join(frameworks)))
    made.chmod(0o777)
    return made


@contextmanager
def lab_with(folder: Path, directory: Path, **variables: object) -> Iterator[Lab]:
    common: dict[str, object] = {"lab_nodes": len(NODES), "lab_shared_dir": folder}
    with Lab(directory).is_up(**common, **variables) as made:
        yield made


@dataclass(frozen=True)
class SlurmNodes:
    """Two nodes that were provisioned with these variables. `said` is what was printed then."""

    lab: Lab
    folder: Path
    given: str
    before: dict[str, list[str]]
    said: str

    def check_decommissioning(self, *processes: str) -> None:
        """The nodes are as they were, without any of these processes."""
        options = ("-e", self.given, "-e", "dlperf_remove_results=true")
        self.lab.play("playbooks/decommission.yml", *options)
        for node in NODES:
            assert differences(self.lab, node, self.before[node]) == []
            assert self.lab.ssh(node, f"pgrep '{'|'.join(processes)}'").stdout == ""


@contextmanager
def provisioned_as(
    variables: dict[str, object], frameworks: tuple[str, ...], scratch: Path, mirror: Path
) -> Iterator[SlurmNodes]:
    assert mirror.is_dir()
    folder, words = scratch / "folder", json.dumps(variables)
    folder.mkdir()
    with lab_with(shared_folder(folder, *frameworks), scratch / "lab") as lab:
        before = {node: node_state(lab, node) for node in NODES}
        said = lab.play("provision.yml", "-vvv", "-e", words)
        add_own_workload(lab, folder)
        yield SlurmNodes(lab, folder, words, before, said)


def start(
    lab: Lab, *arguments: str, node: str = "node1", within: str = ""
) -> subprocess.Popen[str]:
    """dlperf as the ordinary user on the login node; `within`: a command that starts it."""
    # Without a shell between, which would not pass signals on.
    python = PYTHON.replace("/usr/bin/", f"{within} /usr/bin/")
    command = f"{python} -m dlperf_runner {' '.join(arguments)}"
    return subprocess.Popen(
        lab.ssh_argv(node, command), text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def dlperf(lab: Lab, *arguments: str, **where: str) -> tuple[int, str]:
    process = start(lab, *arguments, **where)
    output, _ = process.communicate(timeout=900)
    return process.returncode, output


def options(campaign: str, *arguments: str) -> tuple[str, ...]:
    return "run", "--scheduler", "slurm", "--site", "site.yml", "--campaign", campaign, *arguments


def run(lab: Lab, campaign: str, *arguments: str, **where: str) -> tuple[int, str]:
    return dlperf(lab, *options(campaign, *arguments), **where)


def add_own_workload(
    lab: Lab, folder: Path, program: str = OWN, framework: str = "nccl", launcher: str = "jax"
) -> None:
    (folder / "train.py").write_text(program)
    answers = {
        "--name": "mine",
        "--command": "'{python} train.py {total_steps} {batch_size_per_device}'",
        "--framework": framework,
        "--launcher": launcher,
        "--regex": r"'it (?P<step>\d+)/\d+ \| (?P<rate>\S+) img/s \| loss (?P<loss>\S+)'",
        "--unit": "samples",
        "--rates-are-per": "world",
        "--topologies": "1n1g,2n1g",
        "--total-steps": "12",
        "--warmup-steps": "2",
        "--file": "train.py",
    }
    words = [word for pair in answers.items() for word in pair]
    made = dlperf(lab, "--catalog", "/shared/catalog", "init-workload", *words)
    assert made[0] == 0, made[1]


def records(campaign: Path) -> list[dict[str, Any]]:
    return [json.loads(p.read_text()) for p in sorted(campaign.glob("runs/*/r*/run.json"))]


def outcome(campaign: Path) -> dict[str, Any]:
    (record,) = records(campaign)
    found = record["outcome"]
    assert isinstance(found, dict)
    return found


def wait_for(what: str, lab: Lab, command: str, expected: str, seconds: float = 60) -> str:
    """The output of a command as soon as it is as expected."""
    deadline = time.monotonic() + seconds
    while True:
        found = lab.ssh("node1", command).stdout.strip()
        if re.search(expected, found):
            return found
        assert time.monotonic() < deadline, f"{what}: {found}"
        time.sleep(1)


def wait_for_run(lab: Lab, campaign: str, number: int = 1) -> None:
    """Wait until run `number` of the campaign's first job has begun."""
    wait_for("its run", lab, f"ls /shared/{campaign}/jobs/1", rf"started\.{number}\.json", 120)


def cut_off(lab: Lab, node: str, seconds: int) -> None:
    """Take the node's network away for a while, soon."""
    cut = f"sleep 1; ip link set eth0 down; sleep {seconds}; ip link set eth0 up"
    lab.said(node, f"setsid sh -c '{cut}' > /dev/null 2>&1 < /dev/null &")


def signal_runner(lab: Lab, name: str) -> None:
    lab.said("node1", f"pkill -{name} -u dlperf -f 'dlperf_runner run'")
