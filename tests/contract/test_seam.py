"""The run is one document: dataclass, argument_specs, plan and run.json agree, key for key.

Filters are a list of names of the package's functions.
"""

import dataclasses
import json
import re
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import call
from executed_modules import playbook
from modules import load
from plan_examples import lab_nodes

from dlperf_runner.campaign.directory import create_campaign
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.commands import plan
from dlperf_runner.core.case import Command, Run
from dlperf_runner.plan import inventory
from dlperf_runner.plan.choice import FURTHER, VARIABLES, Choice, choice_of_variables
from dlperf_runner.plan.make import make_plan

ROOT = Path(__file__).parents[2]
FILTERS = load("playbooks/filter_plugins/dlperf.py").FILTERS
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
    monkeypatch.setattr(inventory, "read_inventory", lambda *_, **__: lab_nodes())
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


def test_each_filter_is_called_and_each_that_is_called_exists() -> None:
    texts = [
        path.read_text(encoding="utf-8")
        for pattern in ("playbooks/*.yml", "roles/*/*/*.yml")
        for path in ROOT.glob(pattern)
    ]
    called = {name for text in texts for name in re.findall(r"\|\s*(?:map\(')?([a-z]\w*)", text)}
    prefixes = {name.partition("_")[0] for name in FILTERS}
    own = {name for name in called if "_" in name and name.partition("_")[0] in prefixes}
    elsewhere = {"benchmark_outcome", "from_json", "from_yaml", "to_json", "to_nice_json"}
    assert sorted(own - FILTERS.keys() - elsewhere) == []
    assert sorted(FILTERS.keys() - called) == []


def test_a_python_without_the_package_is_told_in_one_line(tmp_path: Path) -> None:
    """In an environment that has Ansible, and lacks what the package needs."""
    (tmp_path / "pydantic.py").write_text("raise ModuleNotFoundError(name='pydantic')\n")
    (tmp_path / "hosts.yml").write_text("nodes: {hosts: {a: {ansible_connection: local}}}\n")
    done = playbook("provision.yml", "-i", tmp_path / "hosts.yml", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "lacks pydantic" in line and "make setup" in line
