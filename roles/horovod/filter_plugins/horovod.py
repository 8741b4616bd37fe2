"""What the proof of Horovod in an environment depends on, besides what the node has."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def options(environment: Mapping[str, Any]) -> dict[str, Any]:
    """What a wheel depends on that is chosen for its build."""
    wanted = environment["horovod"]
    requirements = Path(wanted["requirements"]).read_text(encoding="utf-8").rstrip()
    digest = hashlib.sha256(requirements.encode()).hexdigest()
    return {"environment": wanted["build_environment"], "requirements": digest}


def wanted(
    environment: Mapping[str, Any], mpirun: str, interface: str, arguments: Sequence[str]
) -> dict[str, Any]:
    """The inputs of the proof, but for the wheel's key, which only the node can tell."""
    return {
        "version": environment["horovod"]["version"],
        "options": options(environment),
        "mpirun": mpirun,
        "interface": interface,
        "arguments": list(arguments),
    }


def stands(proven: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether this was proven, with whatever wheel the node's files (the stamp's) call for."""
    return {key: value for key, value in proven.items() if key != "wheel"} == wanted


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "horovod_options": options,
            "horovod_stands": stands,
            "horovod_wanted": wanted,
        }
