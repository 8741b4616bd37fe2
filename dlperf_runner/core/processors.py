"""The number of processors that this process may use."""

from __future__ import annotations

import os


def processors() -> int:
    """The number of processors this process may run on. If unknown, all processors count."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
