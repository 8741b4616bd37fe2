"""The path of mpirun on a stack: OpenMPI built from source is in another directory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from .overrides import merged

CATALOG = Path(__file__).parent


def mpirun_of(stack: str, overrides: Mapping[str, Any] | None = None) -> str:
    """The path of mpirun on nodes of the stack, with the inventory's changes. An unknown stack has
    the distribution's."""
    changed = merged(_document(f"stacks/{stack}.yml"), overrides or {})
    method = (changed.get("openmpi") or {}).get("method", "package")
    paths = _document("mpirun.yml")["paths"]
    return str(paths.get(method, paths["package"]))


@cache
def _document(name: str) -> dict[str, Any]:
    """A file of the catalogue; empty if there is none. Read once for all nodes."""
    path = CATALOG / name
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
