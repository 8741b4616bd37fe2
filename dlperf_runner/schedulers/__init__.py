"""Schedulers: pure functions that turn runs into jobs, and a scheduler's answers into states.

Each module of this package can define a scheduler in `SCHEDULER`. New schedulers need no further
registration.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping

from ..core.errors import unknown_name
from .job import Allocation, JobState, Offer, Scheduler

__all__ = ["Allocation", "JobState", "Offer", "Scheduler", "here", "scheduler", "schedulers"]


@functools.cache
def schedulers() -> dict[str, Scheduler]:
    """All schedulers, by name."""
    modules = [
        importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)
    ]
    defined = [module.SCHEDULER for module in modules if hasattr(module, "SCHEDULER")]
    return {each.name: each for each in defined}


def scheduler(name: str) -> Scheduler:
    """The scheduler of this name. Raises UserError if there is none."""
    if name not in schedulers():
        raise unknown_name("scheduler", name, schedulers(), "--scheduler")
    return schedulers()[name]


def here(name: str, environment: Mapping[str, str]) -> Scheduler:
    """The same, or that for steps if the runner is in an allocation."""
    named = scheduler(name)
    return named.steps if named.steps and environment.get(named.given) else named
