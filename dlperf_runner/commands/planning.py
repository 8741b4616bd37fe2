"""Plans a campaign from a choice and an inventory, as `plan`, `run` and `aa` do."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..campaign.directory import create_campaign
from ..catalog.reader import load_catalog
from ..core.case import Run
from ..core.errors import UserError
from ..core.node import Node
from ..plan import inventory
from ..plan.choice import Choice, choice_options, option_name
from ..plan.make import make_plan, plan_document

SEEDS = 10**9


@dataclass(frozen=True)
class Planned:
    """A choice with its seed drawn, the nodes of the inventory, and the runs."""

    choice: Choice
    nodes: tuple[Node, ...]
    runs: tuple[Run, ...]

    def document(self) -> dict[str, Any]:
        return plan_document(self.choice, self.nodes, self.runs)

    def create(self, directory: Path) -> dict[str, Any]:
        return create_campaign(directory, self.choice, self.nodes, self.runs)


def planned(choice: Choice, inventories: Sequence[str] | None, limit: str) -> Planned:
    """Plan a campaign. A random order without a seed gets a new one, which the plan records."""
    if choice.order == "random" and choice.seed is None:
        choice = replace(choice, seed=secrets.randbelow(SEEDS))
    nodes = inventory.read_inventory(inventories or (), limit or None)
    return Planned(choice, nodes, make_plan(choice, load_catalog(), nodes))


def refuse_rounds(choice: Choice, inventories: Sequence[str], limit: str) -> None:
    """Raise UserError if bench.yml alone shall add repeats: a playbook cannot loop over rounds."""
    if choice.until_ci is None:
        return
    options = [f"{option_name(name)}={text}" for name, text in choice_options(choice).items()]
    options += [f"--parameter={name}={text}" for name, text in choice.parameters.items()]
    options += [f"--inventory={path}" for path in inventories]
    options += [f"--limit={limit}"] if limit else []
    raise UserError(
        "bench.yml alone cannot add repeats",
        where=f"-e until_ci={choice.until_ci}",
        hint=f"`dlperf run` does: {shlex.join(['dlperf', 'run', *options])}",
    )
