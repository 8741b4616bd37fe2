"""The role openmpi's own check of a build from source."""

from __future__ import annotations

from typing import Any


def refusal(version: str, prefix: str, mpirun: str) -> str:
    """Why the inventory's mpirun does not belong to the build; empty if it does."""
    wanted = f"{prefix}/bin/mpirun"
    if mpirun != wanted:
        return (
            f"The mpirun of OpenMPI {version} is {wanted}, but dlperf_mpirun is {mpirun}. Remove"
            " dlperf_mpirun from the inventory: the stack determines it."
        )
    return ""


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"openmpi_refusal": refusal}
