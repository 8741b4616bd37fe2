"""What the role openmpi refuses of a build from source, beside what every source needs."""

from __future__ import annotations

from typing import Any


def refusal(version: str, prefix: str, mpirun: str) -> str:
    """Why the mpirun that the inventory names is not that of the build; empty where it is."""
    wanted = f"{prefix}/bin/mpirun"
    if mpirun != wanted:
        return (
            f"OpenMPI {version} is built with its mpirun at {wanted}, and dlperf_mpirun says"
            f" {mpirun}. Remove dlperf_mpirun from the inventory: it follows the stack."
        )
    return ""


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"openmpi_refusal": refusal}
