"""The path of mpirun on a stack: OpenMPI built from source is in another directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .overrides import merged
from .reader import own_stacks

PATHS = {"package": "/usr/bin/mpirun", "source": "/usr/local/openmpi/bin/mpirun"}


def mpirun_of(stack: str, overrides: Mapping[str, Any] | None = None) -> str:
    """The path of mpirun on nodes of the stack, with the inventory's changes. An unknown stack has
    the distribution's."""
    known = own_stacks().get(stack)
    own = known.openmpi.model_dump() if known and known.openmpi else {}
    openmpi = merged({"openmpi": own}, overrides or {}).get("openmpi")
    # Wrong values are reported where the stack is validated.
    method = openmpi.get("method") if isinstance(openmpi, Mapping) else None
    return PATHS.get(str(method), PATHS["package"])
