"""Launchers: pure functions that turn a program into the commands for its nodes.

Each module of this package can define launchers in `LAUNCHERS`, by the names that workloads use in
the catalogue. New launchers need no further registration.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import TYPE_CHECKING

from .program import Launcher, Program, in_run_directory

if TYPE_CHECKING:
    from ..core.case import Command
    from ..core.node import Node

__all__ = ["Launcher", "Program", "in_run_directory", "launch", "launchers"]


@functools.cache
def launchers() -> dict[str, Launcher]:
    """All launchers, by name."""
    by_name: dict[str, Launcher] = {}
    for module in pkgutil.iter_modules(__path__):
        by_name |= getattr(importlib.import_module(f"{__name__}.{module.name}"), "LAUNCHERS", {})
    return by_name


def launch(name: str, program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """The commands that start `program` on `hosts`. They must be started at the same time."""
    return launchers()[name](program, hosts)
