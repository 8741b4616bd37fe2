"""The extra variables of this playbook's command line."""

from __future__ import annotations

from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.utils.vars import load_extra_vars

DOCUMENTATION = """
name: with_extra_variables
short_description: A dictionary updated with the variables of `-e`
options:
  _input: {description: Values for variables that `-e` does not set., type: dict, required: true}
"""


def with_extra_variables(defaults: dict[str, Any]) -> dict[str, Any]:
    """Return the defaults, updated with `-e`, which Ansible parses only once."""
    return {**defaults, **load_extra_vars(DataLoader())}


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"with_extra_variables": with_extra_variables}
