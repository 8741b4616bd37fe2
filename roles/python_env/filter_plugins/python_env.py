"""Whether the interpreter of a node fits its environments."""

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
    """The Python of each release of Debian and Ubuntu, by the release's name."""
    found = {}
    for name, suite in yaml.safe_load(SUITES.read_text(encoding="utf-8"))["suites"].items():
        code = f" ({name})" if suite["distribution"] == "debian" else ""
        found[f"{suite['distribution'].title()} {suite['version']}{code}"] = suite["python"]
    return found


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
        fitting = [item for item in releases().items() if item[1] in takes]
        fitting.sort(key=lambda item: abs(_minor(item[1]) - _minor(version)))
        hint = "no release that this project knows has a Python in that range"
        if others:
            hint = f"this node also has {others[-1]}: name it in python_env_interpreter"
        elif fitting:
            hint = (
                f"the nearest release whose Python fits is {' with '.join(fitting[0])}; or name"
                " another interpreter of this node in python_env_interpreter"
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
