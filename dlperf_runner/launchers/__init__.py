"""How a program is started on nodes: pure functions from a program to the command of each node.

A launcher is a module of this package with `LAUNCHERS`, functions by the names that workloads use
in the catalogue; a new one needs no entry anywhere.
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
    """Every known launcher by name."""
    found: dict[str, Launcher] = {}
    for module in pkgutil.iter_modules(__path__):
        found |= getattr(importlib.import_module(f"{__name__}.{module.name}"), "LAUNCHERS", {})
    return found


def launch(name: str, program: Program, hosts: tuple[Node, ...]) -> tuple[Command, ...]:
    """The commands that start `program` on `hosts`, all to be started at once."""
    return launchers()[name](program, hosts)
