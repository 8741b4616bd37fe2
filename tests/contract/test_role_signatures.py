"""A role's argument specs and its defaults are one signature, said twice: they must not differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).parents[2]
ROLES = sorted(path.parents[1] for path in PROJECT.glob("roles/*/meta/argument_specs.yml"))


def read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text()) or {} if path.exists() else {}


def options(role: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for entry in read(role / "meta/argument_specs.yml")["argument_specs"].values():
        found |= entry.get("options") or {}
    return found


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_default_is_an_argument_and_every_argument_has_a_default_or_is_required(
    role: Path,
) -> None:
    arguments, defaults = options(role), read(role / "defaults/main.yml")
    assert set(defaults) <= set(arguments)
    without = {
        name for name in set(arguments) - set(defaults) if not arguments[name].get("required")
    }
    assert not without
    assert all(name.startswith(f"{role.name}_") for name in arguments)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_default_is_the_same_value_and_one_that_is_computed_stands_in_the_defaults(
    role: Path,
) -> None:
    defaults = read(role / "defaults/main.yml")
    for name, argument in options(role).items():
        is_computed = "{{" in str(defaults.get(name))
        if name in defaults and not (is_computed and "default" not in argument):
            assert argument["default"] == defaults[name], name
