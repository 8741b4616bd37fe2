"""Calls of the module benchmark_job, the processes that it starts, and the samples it keeps."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import executed_modules
from csv_tables import table

SLEEP = (sys.executable, "-c", "import time; time.sleep(600)")
BURN = "import time\nend = time.time() + 600\nwhile time.time() < end: pass"


LAUNCH: dict[str, Any] = {
    **dict.fromkeys(("runs", "cwd", "host"), ""),
    "launch": "t1",
    "log": "train.log",
    "marks": [],
    "cleanup": [],
    **{name: {} for name in ("env", "lock", "hosts", "idle", "sample_hosts")},
    "keep": 50,
    "timeout_s": 3600,
    "grace_s": 10,
    "lease_s": 90,
    "idle_wait_s": 0,
    "hung_after_s": 0,
    "hung_after_lines": 20,
    "first_step_s": 0,
    "is_only_launch": True,
    "sample_s": 0,
    "sample_gpus": True,
    "sample_devices": 0,
    "at_once_bytes": 1 << 22,
    "log_limit_mib": 1024,
    "telemetry_limit_mib": 256,
    "most_cores_beside": 1000,  # other tests may compute on this machine, as other users
}


class Clock:
    """The uptime of a node that only tests advance."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def call(
    directory: Path,
    *argv: str,
    wait_s: float = 300,
    order: str = "",
    launched: bool = False,
    check: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """One call of benchmark_job for a launch with these options. Without `wait_s`, it is expected
    to see the command's end."""
    launch = {**LAUNCH, "directory": str(directory), "argv": list(argv), **options}
    given = {"launch": launch, "order": order, "launched": launched, "wait_s": wait_s}
    return executed_modules.call("benchmark_job", check=check, **given)


def processes_of(marker: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if marker in (entry / "cmdline").read_text():
                found.append(int(entry.name))
    return found


def agents_of(directory: Path) -> list[int]:
    """The agents, and their samplers, of runs whose PATH has a folder of this directory."""
    found = []
    for pid in processes_of("node_agent"):
        with suppress(OSError):
            if f"{directory}/" in Path(f"/proc/{pid}/environ").read_text():
                found.append(pid)
    return found


@contextmanager
def of_another_user(code: str) -> Iterator[subprocess.Popen[bytes]]:
    other = subprocess.Popen(["/usr/bin/python3", "-c", code], user=4711, cwd="/")
    try:
        yield other
    finally:
        other.kill()
        other.wait()


def until(condition: Callable[[], object], seconds: float = 300) -> bool:
    """Wait until this is true. Only a defect reaches the limit, which is shorter than SLEEP."""
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(found)


def is_launched(directory: Path) -> bool:
    """Whether the supervisor has started the command, and so has made its log."""
    return "pid" in json.loads((directory / "job.json").read_text())


def has_ended(pid: int) -> bool:
    return until(lambda: not Path(f"/proc/{pid}").exists())


def until_gone(marker: str, seconds: float = 300) -> bool:
    return until(lambda: not processes_of(marker), seconds)


def lock_in(directory: Path) -> dict[str, Any]:
    """A lock as node_lock leaves it, for this user."""
    directory.mkdir()
    lease = directory / "lease.a"
    lease.touch()
    os.utime(lease, (0, 0))
    return {"directory": str(directory), "token": "a", "lease_s": 60}


def sampling(folder: Path, **environment: str) -> dict[str, Any]:
    """Options of a run whose node1 is sampled by the programs of a folder."""
    env = {"PATH": f"{folder}:/usr/bin:/bin", **environment}
    return {"sample_s": 1, "sample_hosts": {"node1": ""}, "env": env}


def telemetry(path: Path) -> list[dict[str, str]]:
    """The samples of devices, which stand before that of their node."""
    return [row for row in table(path) if row["device"]]
