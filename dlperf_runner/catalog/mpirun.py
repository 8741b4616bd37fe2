"""The path of mpirun on a stack: OpenMPI built from source is in another directory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ..core.files import read_text
from .overrides import merged

CATALOG = Path(__file__).parent


def mpirun_of(stack: str, overrides: Mapping[str, Any] | None = None) -> str:
    """The path of mpirun on nodes of the stack, with the inventory's changes. An unknown stack has
    the distribution's."""
    openmpi = merged(_read(CATALOG / f"stacks/{stack}.yml"), overrides or {}).get("openmpi")
    # Wrong values are reported where the stack is validated.
    method = openmpi.get("method", "package") if isinstance(openmpi, Mapping) else "package"
    paths = _read(CATALOG / "mpirun.yml")["paths"]
    return str(paths.get(str(method), paths["package"]))


@cache
def _read(path: Path) -> dict[str, Any]:
    """The document, once for all nodes; empty if there is none."""
    if not path.is_file():
        return {}
    found: dict[str, Any] = yaml.safe_load(read_text(path))
    return found
