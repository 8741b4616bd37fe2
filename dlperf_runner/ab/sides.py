"""The two sides: what the user says of each, and a campaign for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from ..control.scheduled import create_case
from ..core.errors import UserError, unknown_name
from ..core.node import Node
from ..options import Chosen
from ..options.scheduler import Scheduled
from ..plan.choice import VARIABLES, Choice, parse_choice
from ..plan.inventory import VARIABLES as OF_NODES
from ..plan.inventory import read_inventory

_ENVIRONMENT = re.compile(r"[A-Z][A-Z0-9_]*", re.ASCII)
# What follows from the pairs, and what both sides have in common.
OF_PAIRS = ("repeats", "order", "seed", "until_ci", "max_repeats")
_SHARED = [key for key, item in VARIABLES.items() if item.name in ("nodes", *OF_PAIRS)]
_CHOSEN = {key: item.name for key, item in VARIABLES.items() if key not in _SHARED}


@dataclass(frozen=True)
class Side:
    """A choice, parameters of the workload, variables of the nodes, and environment variables."""

    texts: tuple[str, ...]
    choice: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join(self.texts)

    def chosen(self, choice: Choice) -> Choice:
        """The choice with what this side changes."""
        own = parse_choice(self.choice)
        changed = {name: getattr(own, name) for name in self.choice}
        return replace(choice, **changed, parameters=choice.parameters | self.parameters, repeats=1)

    def on(self, nodes: Sequence[Node]) -> list[Node]:
        """The nodes with this side's environment variables."""
        return [replace(node, env=node.env | self.environment) for node in nodes]


def parse_side(texts: Sequence[str], where: str) -> Side:
    """A side from its `NAME=VALUE`. A name is an option of `run` (precision), a variable of nodes
    (dlperf_stack), an environment variable (NCCL_ALGO) or, else, a parameter of the workload."""
    side = Side(tuple(texts))
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier() or not value.isprintable():
            raise UserError("invalid side", where=where, expected="NAME=VALUE", found=repr(text))
        if name in _SHARED:
            raise UserError("both sides have this in common", where=f"{where} {text}")
        if name in _CHOSEN:
            side.choice[_CHOSEN[name]] = value
        elif name in OF_NODES:
            side.nodes[name] = _yaml(value, f"{where} {text}")
        elif name.startswith("dlperf_"):
            raise unknown_name("variable", name, OF_NODES, where)
        elif _ENVIRONMENT.fullmatch(name):
            side.environment[name] = value
        else:
            side.parameters[name] = value
    return side


def _yaml(text: str, where: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError("invalid value", where=where, found=str(error)) from None


def create(
    directory: Path, side: Side, chosen: Chosen, own: Scheduled, say: Callable[[str], None]
) -> None:
    """A new campaign with one run of the side. Raises UserError if the choice has several cases, or
    if the campaign exists and has other runs."""
    choice, settings = side.chosen(chosen.choice), None
    nodes: Sequence[Node]
    if own.name:
        if side.nodes:
            raise UserError(
                "the nodes of a scheduler have the variables of --site",
                where=f"{next(iter(side.nodes))}=",
                expected="an environment variable, an option or a parameter",
            )
        choice, nodes, settings = own.planned(replace(chosen, choice=choice))
    else:
        nodes = read_inventory(chosen.inventories, chosen.limit or None, side.nodes, connects=True)
    create_case(directory, choice, side.on(nodes), settings, say, "ab")


def sides_of(texts: Mapping[str, Sequence[str] | None]) -> list[Side]:
    """Both sides. Raises UserError if they say the same."""
    sides = [parse_side(own or [], name) for name, own in texts.items()]
    if sides[0] == sides[1]:
        raise UserError("both sides are the same", where="ab", hint="--a NAME=VALUE --b NAME=VALUE")
    return sides
