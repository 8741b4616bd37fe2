"""The run is one document: dataclass, argument_specs, plan and run.json agree, key for key.

And nothing else crosses between the Python package and Ansible: neither imports the other.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import call
from plan_examples import lab_nodes

from dlperf_runner.campaign.directory import create_campaign
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.commands import plan
from dlperf_runner.core.case import Command, Run
from dlperf_runner.plan import inventory
from dlperf_runner.plan.choice import FURTHER, VARIABLES, Choice, choice_of_variables
from dlperf_runner.plan.make import make_plan

ROOT = Path(__file__).parents[2]
OPTIONS_OF_ROLE = yaml.safe_load((ROOT / "roles/benchmark_run/meta/argument_specs.yml").read_text())
RUN = OPTIONS_OF_ROLE["argument_specs"]["main"]["options"]["benchmark_run_run"]["options"]
TYPES = {str: "str", int: "int", float: "float", bool: "bool", tuple: "list", dict: "dict"}
JSON_TYPES = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict}


def declared(kind: type) -> dict[str, str]:
    """The fields of a dataclass with the types that argument_specs has for them."""
    hints = typing.get_type_hints(kind)
    return {
        field.name: TYPES[typing.get_origin(hints[field.name]) or hints[field.name]]
        for field in dataclasses.fields(kind)
    }


def as_specified(specs: Mapping[str, Any]) -> dict[str, str]:
    return {name: spec["type"] for name, spec in specs.items()}


def test_argument_specs_declare_the_run() -> None:
    assert as_specified(RUN) == declared(Run)
    assert as_specified(RUN["commands"]["options"]) == declared(Command)


def check_types(document: Mapping[str, Any], specs: Mapping[str, Any]) -> None:
    assert set(document) - {"outcome"} == set(specs)
    for name, spec in specs.items():
        assert isinstance(document[name], JSON_TYPES[spec["type"]]), name
        for item in document[name] if spec["type"] == "list" else ():
            assert isinstance(item, JSON_TYPES[spec["elements"]]), name
            if "options" in spec:
                check_types(item, spec["options"])


def test_the_printed_plan_and_run_json_are_what_the_role_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "read_inventory", lambda *_: lab_nodes())
    runs = call("plan", "--json", "--model", "resnet50v1b").document["runs"]
    assert runs
    for run in runs:
        check_types(run, RUN)
    choice = Choice(model=("resnet50v1b",))
    planned = make_plan(choice, load_catalog(), lab_nodes())
    create_campaign(tmp_path / "c", choice, lab_nodes(), planned)
    for path in (tmp_path / "c").glob("runs/*/*/run.json"):
        check_types(json.loads(path.read_text()), RUN)


def test_each_choice_is_declared_once() -> None:
    """A field of Choice is an option of plan and run, and a variable of bench.yml."""
    assert {item.name for item in VARIABLES.values()} <= set(plan.command.__annotations__)
    samples = {"source": "builtin", "container": "podman", "precision": "fp32"}
    samples |= {"run_order": "random", "until_ci": "1%", "data": "synthetic"}
    for name, item in VARIABLES.items():
        text = samples.get(name, "1")
        assert getattr(choice_of_variables({name: text}, ()), item.name)
        assert name not in FURTHER
    bench = (ROOT / "playbooks/bench.yml").read_text()
    assert not [name for name in VARIABLES if f"{name} | default" in bench]


def imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").split(".")[0])
    return found


def test_ansible_imports_nothing_of_the_package_and_the_package_no_plugin() -> None:
    ours = [
        path
        for folder in ("roles", "playbooks", "library", "module_utils")
        for path in (ROOT / folder).rglob("*.py")
    ]
    assert ours
    assert [path for path in ours if "dlperf_runner" in imports(path)] == []
    # Programs that nodes get with their own copy of module_utils.
    package = [p for p in (ROOT / "dlperf_runner").rglob("*.py") if p.parent.name != "on_nodes"]
    assert [path for path in package if "ansible" in imports(path)] == []
    runner = [path for path in package if "ansible_runner" in imports(path)]
    assert runner == [ROOT / "dlperf_runner/campaign/execute.py"]
