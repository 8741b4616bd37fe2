"""The path of mpirun on a stack: OpenMPI built from source is in another directory."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

CATALOG = Path(__file__).parent


@cache
def mpirun_of(stack: str) -> str:
    """The path of mpirun on nodes of the stack. An unknown stack has the distribution's."""
    path = CATALOG / f"stacks/{stack}.yml"
    method = "package"
    if path.is_file():
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
        method = (loaded.get("openmpi") or {}).get("method", method)
    declared = yaml.safe_load((CATALOG / "mpirun.yml").read_text(encoding="utf-8"))
    return str(declared["paths"].get(method, declared["paths"]["package"]))
