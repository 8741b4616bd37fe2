"""Calls of the module benchmark_job, and the processes that it starts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import executed_modules


def call(directory: Path, *argv: str, **options: Any) -> dict[str, Any]:
    """One call of benchmark_job."""
    arguments = {
        "directory": str(directory),
        "launch": "t1",
        "argv": list(argv),
        "log": "train.log",
        "wait_s": 10,
        "most_cores_beside": 1000,  # other tests may compute on this machine, as other users
    }
    return executed_modules.call("benchmark_job", **arguments | options)


def processes_of(marker: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if marker in (entry / "cmdline").read_text():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def until_gone(marker: str, seconds: float = 15) -> bool:
    deadline = time.monotonic() + seconds
    while processes_of(marker):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
