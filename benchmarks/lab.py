"""A lab of the benchmarks' own, in a temporary directory; commands timed as a user types them."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]


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


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def lab(nodes: int) -> Iterator[Lab]:
    """A lab of bare nodes, taken down at the end."""
    with tempfile.TemporaryDirectory(prefix="dlperf-benchmark-") as directory:
        made = Lab(Path(directory) / "lab")
        made.play("playbooks/lab.yml", "-e", f"lab_nodes={nodes}")
        try:
            yield made
        finally:
            made.play("playbooks/lab.yml", "-e", "lab_state=absent")
