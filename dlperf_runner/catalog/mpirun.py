"""Where a stack's mpirun is: OpenMPI built from source has a place of its own."""

from __future__ import annotations

from pathlib import Path

import yaml

STACKS = Path(__file__).parent / "stacks"
# By openmpi.method of the stack; the roles and playbooks say the same.
MPIRUN = {"package": "/usr/bin/mpirun", "source": "/usr/local/openmpi/bin/mpirun"}


def mpirun_of(stack: str) -> str:
    """The path on a node of that stack; of an unknown stack, the distributions'."""
    path = STACKS / f"{stack}.yml"
    method = "package"
    if path.is_file():
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
        method = (loaded.get("openmpi") or {}).get("method", method)
    return MPIRUN.get(method, MPIRUN["package"])
