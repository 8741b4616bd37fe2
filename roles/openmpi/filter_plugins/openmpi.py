"""What the role openmpi refuses of a build from source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def refusal(
    version: str,
    releases: Mapping[str, Mapping[str, str]],
    archive: str,
    sha256: str,
    prefix: str,
    mpirun: str,
) -> str:
    """Why a version cannot be built as it is asked for; empty where it can.

    A version that the release table lacks, and a file of the operator's, need the operator's
    checksum: the table's is that of the project's own file.
    """
    known = ", ".join(sorted(releases))
    if not version:
        return f"openmpi_method: source needs openmpi_version; known is {known}"
    if version not in releases and not archive:
        return (
            f"OpenMPI {version} is not known here; known is {known}. For another one give its"
            " source in openmpi_archive (a path or an address) and its checksum in openmpi_sha256."
        )
    if not (sha256 or releases.get(version, {}).get("sha256")):
        return (
            f"The source of OpenMPI {version} has no known checksum, and nothing is built without"
            " one. Give its sha256 (64 hexadecimal digits, as sha256sum says it of a file that you"
            " trust) in openmpi_sha256."
        )
    if sha256 and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        return f"openmpi_sha256: 64 hexadecimal digits were expected, found {sha256}"
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
