"""No variable of this project has a name that Ansible reserves: Ansible warns of each that has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from ansible.vars.reserved import get_reserved_names

from dlperf_runner.plan.choice import FURTHER, VARIABLES

PROJECT = Path(__file__).parents[2]
FILES = [
    path
    for pattern in ("playbooks/**/*.yml", "roles/**/*.yml", "inventory/**/*.yml")
    for path in PROJECT.glob(pattern)
]
WITH_NAMES = ("vars", "ansible.builtin.set_fact", "options")  # `options` of argument_specs
WITH_NAME = ("register", "loop_var", "index_var")


def variables(node: Any) -> Iterator[str]:
    """The names of all variables that a YAML document sets."""
    for item in node if isinstance(node, list) else ():
        yield from variables(item)
    for key, value in node.items() if isinstance(node, dict) else ():
        if key in WITH_NAMES and isinstance(value, dict):
            yield from value
        elif key in WITH_NAME and isinstance(value, str):
            yield value
        # Fields of a role's argument are no variables.
        if not (key == "options" and isinstance(value, dict)):
            yield from variables(value)


def found() -> dict[str, str]:
    """Each variable with a file that sets it."""
    names = dict.fromkeys([*VARIABLES, *FURTHER], "bench.yml")
    for path in FILES:
        document = yaml.safe_load(path.read_text())
        own = list(variables(document))
        if {"defaults", "vars", "group_vars", "host_vars"} & set(path.parts):
            own += document or {}
        names |= dict.fromkeys(own, str(path.relative_to(PROJECT)))
    return names


def test_no_variable_has_a_name_that_ansible_reserves() -> None:
    names, reserved = found(), get_reserved_names()
    assert len(names) > 300
    assert {"bench_run", "benchmark_run_run", "bench_planned", "dlperf_stack"} <= set(names)
    assert "order" in reserved
    assert {name: at for name, at in names.items() if name in reserved} == {}
