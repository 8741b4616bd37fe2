"""Whether the interpreter of a node fits its environments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from packaging.specifiers import SpecifierSet

# Releases whose own python3 a site may choose.
RELEASES = {
    "Ubuntu 18.04": "3.6",
    "Ubuntu 20.04": "3.8",
    "Debian 11 (bullseye)": "3.9",
    "Ubuntu 22.04": "3.10",
    "Debian 12 (bookworm)": "3.11",
    "Ubuntu 24.04": "3.12",
    "Debian 13 (trixie)": "3.13",
}


def refusal(environments: Sequence[Mapping[str, Any]], node: Mapping[str, Any]) -> str:
    """Why a node (as the module node_facts says it) cannot have an environment; empty where it can.

    Names the nearest that can: another interpreter of the node, else a release.
    """
    for environment in environments:
        name, takes = environment["name"], SpecifierSet(environment["requires_python"])
        version = node["python_version"]
        if version is None:
            return (
                f"{node['interpreter']} is not there or cannot be started; the environment of"
                f" {name} takes Python {takes}: name another in python_env_interpreter"
            )
        if version in takes:
            continue
        others = [path for path in node["interpreters"] if re.split("python", path)[-1] in takes]
        releases = [name for name, python in RELEASES.items() if python in takes]
        releases.sort(key=lambda name: abs(_minor(RELEASES[name]) - _minor(version)))
        hint = "no release that this project knows has a Python in that range"
        if others:
            hint = f"this node also has {others[-1]}: name it in python_env_interpreter"
        elif releases:
            hint = (
                f"the nearest release whose Python fits is {releases[0]} with"
                f" {RELEASES[releases[0]]}; or name another interpreter of this node in"
                " python_env_interpreter"
            )
        return (
            f"the environment of {name} takes Python {environment['requires_python']};"
            f" this node's {node['interpreter']} is {version}; {hint}"
        )
    return ""


def _minor(version: str) -> int:
    return int(version.split(".")[1])


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"python_env_refusal": refusal}
