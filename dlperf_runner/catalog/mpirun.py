"""The path of mpirun on a stack: OpenMPI built from source is in another directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from .overrides import merged

CATALOG = Path(__file__).parent


def mpirun_of(stack: str, overrides: Mapping[str, Any] | None = None) -> str:
    """The path of mpirun on nodes of the stack, with the inventory's changes. An unknown stack has
    the distribution's."""
    path = CATALOG / f"stacks/{stack}.yml"
    method = "package"
    if path.is_file():
        loaded = merged(yaml.safe_load(path.read_text(encoding="utf-8")), overrides or {})
        method = (loaded.get("openmpi") or {}).get("method", method)
    declared = yaml.safe_load((CATALOG / "mpirun.yml").read_text(encoding="utf-8"))
    return str(declared["paths"].get(method, declared["paths"]["package"]))
