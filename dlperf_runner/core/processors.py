"""How many processors this process may use."""

from __future__ import annotations

import os


def processors() -> int:
    """The processors that this process may run on; all of them where the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
