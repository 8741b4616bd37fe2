"""Check whether a node's Python supports its environments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from packaging.specifiers import SpecifierSet

SUITES = Path(__file__).parents[3] / "dlperf_runner/catalog/suites.yml"


@cache
def releases() -> dict[str, str]:
    """Python versions of the releases of Debian and Ubuntu, by the release's name."""
    versions = {}
    for name, suite in yaml.safe_load(SUITES.read_text(encoding="utf-8"))["suites"].items():
        code = f" ({name})" if suite["distribution"] == "debian" else ""
        versions[f"{suite['distribution'].title()} {suite['version']}{code}"] = suite["python"]
    return versions


def refusal(environments: Sequence[Mapping[str, Any]], node: Mapping[str, Any]) -> str:
    """Why a node (facts from node_facts) cannot have an environment; empty if it can have all.

    The message names another suitable interpreter of the node, or else the nearest release.
    """
    for environment in environments:
        name, takes = environment["name"], SpecifierSet(environment["requires_python"])
        version = node["python_version"]
        if version is None:
            return (
                f"{node['interpreter']} is missing or cannot be started. The environment of {name}"
                f" needs Python {takes}: set python_env_interpreter to another interpreter"
            )
        if version in takes:
            continue
        others = [path for path in node["interpreters"] if re.split("python", path)[-1] in takes]
        fitting = [item for item in releases().items() if item[1] in takes]
        fitting.sort(key=lambda item: abs(_minor(item[1]) - _minor(version)))
        hint = "no release known to this project has a suitable Python"
        if others:
            hint = f"this node also has {others[-1]}: set python_env_interpreter to it"
        elif fitting:
            hint = (
                f"use {' with '.join(fitting[0])}, or set python_env_interpreter to another"
                " interpreter of this node"
            )
        return (
            f"the environment of {name} needs Python {environment['requires_python']}, but this"
            f" node's {node['interpreter']} is {version}; {hint}"
        )
    return ""


def _minor(version: str) -> int:
    return int(version.split(".")[1])


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"python_env_refusal": refusal}
