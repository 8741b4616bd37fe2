"""The run is one document: dataclass, argument_specs, plan and run.json agree, key for key."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import yaml

from dlperf_runner.core.case import Command, Run

ROOT = Path(__file__).parents[2]
OPTIONS = yaml.safe_load((ROOT / "roles/benchmark_run/meta/argument_specs.yml").read_text())[
    "argument_specs"
]["main"]["options"]
RUN = OPTIONS["benchmark_run_run"]["options"]
TYPES = {"str": "str", "int": "int"}


def test_argument_specs_declare_the_run() -> None:
    fields = {field.name: field.type for field in dataclasses.fields(Run)}
    assert list(RUN) == list(fields)
    for name, kind in fields.items():
        if kind in TYPES:
            assert RUN[name]["type"] == TYPES[kind], name


def test_argument_specs_declare_the_commands() -> None:
    assert list(RUN["commands"]["options"]) == [field.name for field in dataclasses.fields(Command)]
