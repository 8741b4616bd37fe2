"""A lab of the benchmarks' own, in a temporary directory; commands timed as a user types them."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

PROJECT = Path(__file__).resolve().parents[1]
OF_ONE_NODE = ("opt/dlperf/stamps", "etc/ssh/ssh_host_*", "home/dlperf/.ssh", "root/.ssh", "tmp/*")


@dataclass(frozen=True)
class Timed:
    """Seconds that a command took, and seconds of CPU time of it and its children."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Lab:
    directory: Path

    def seconds(self, *argv: str) -> float:
        """Wall time of a command that must succeed."""
        return self.timed(*argv).wall

    def timed(self, *argv: str) -> Timed:
        """The same with the CPU time of this machine as the controller: of the command, and of
        the SSH clients that it waits for, not of the nodes."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = os.environ | {"DLPERF_LAB_DIR": str(self.directory), "PATH": path}
        environment["DLPERF_CATALOG"] = str(self.directory.with_name("catalog"))
        before = _cpu()
        began = time.perf_counter()
        done = subprocess.run(
            argv,
            cwd=PROJECT,
            env=environment,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        elapsed = time.perf_counter() - began
        if done.returncode:
            sys.exit(f"{' '.join(argv)} failed:\n{done.stdout[-3000:]}")
        return Timed(elapsed, _cpu() - before)

    def play(self, *arguments: str) -> float:
        return self.seconds("ansible-playbook", *arguments)

    def cpu_of_nodes(self) -> float:
        """CPU seconds of all processes that were ever on the nodes."""
        holder = json.loads((self.directory / "lab.json").read_text())["pid"]
        parents, used = {}, {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                parents[int(stat.parent.name)] = int(fields[1])
                # Its own, and of its children that have ended.
                used[int(stat.parent.name)] = sum(map(int, fields[11:15]))
        inside = {holder}
        while more := {p for p, parent in parents.items() if parent in inside} - inside:
            inside |= more
        return sum(used.get(pid, 0) for pid in inside) / os.sysconf("SC_CLK_TCK")

    def logins(self, user: str = "dlperf") -> dict[str, int]:
        """The number of times that this user has logged in to each node."""
        line = f"Accepted publickey for {user} from"
        logs = (self.directory / "log").glob("node*.log")
        return {log.stem: log.read_text(errors="replace").count(line) for log in logs}


def spread(seconds: Sequence[float], digits: int = 2) -> str:
    """`1.25 s (1.20 to 1.31)`: the median and the range."""
    middle, *ends = (f"{function(seconds):.{digits}f}" for function in (median, min, max))
    return f"{middle} s ({' to '.join(ends)})"


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def lab(nodes: int, **variables: str) -> Iterator[Lab]:
    """A lab of bare nodes, taken down at the end. `variables` are those of the role."""
    with tempfile.TemporaryDirectory(prefix="dlperf-benchmark-") as directory:
        made = Lab(Path(directory) / "lab")
        made.directory.with_name("catalog").mkdir()
        given = {"lab_nodes": nodes, **variables}
        made.play("playbooks/lab.yml", "-e", json.dumps(given))
        try:
            yield made
        finally:
            made.play("playbooks/lab.yml", "-e", "lab_state=absent")


@contextmanager
def provisioned(nodes: int, framework: str) -> Iterator[Lab]:
    """A lab of nodes that share the root filesystem of one provisioned node: 64 that each
    install their own do not fit into memory."""
    with tempfile.TemporaryDirectory(prefix="dlperf-base-") as base:
        with lab(1, lab_frameworks=framework) as first:
            first.play("provision.yml")
            without = " ".join(f"--exclude='./{pattern}'" for pattern in OF_ONE_NODE)
            pack = f"tar --create --one-file-system {without} --directory / ."
            config = str(first.directory / "ssh_config")
            with (Path(base) / "bookworm.tar").open("wb") as archive:
                subprocess.run(["ssh", "-F", config, "node1", pack], stdout=archive, check=True)
        with lab(nodes, lab_frameworks=framework, lab_cache_dir=base) as made:
            made.play("provision.yml")
            yield made
